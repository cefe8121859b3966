#include "actors/node/lmcache/lmcache_server.hpp"

#include "actors/support/actor_support.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

using lmcache::wire::operation;

constexpr duration tick_interval = std::chrono::seconds(1);

/// A client that is gone without a word and whose process is not known may still be copying. No copy takes that long.
constexpr duration rest_time = std::chrono::minutes(10);

/// Instances of one client that it may be told of.
constexpr std::size_t told_max = 65536;

/// What attachments hang on: does nothing, and dies when told to.
caf::behavior link_of_worker(caf::event_based_actor*) {
  return {[](caf::tick_atom) {}};
}

} // namespace

bool lmcache_inbox::put(event x) {
  const std::lock_guard guard(mutex_);
  events_.push_back(std::move(x));
  return events_.size() == 1;
}

std::deque<lmcache_inbox::event> lmcache_inbox::take() {
  const std::lock_guard guard(mutex_);
  return std::exchange(events_, {});
}

lmcache_server::lmcache_server(caf::actor_config& config, lmcache_server_parts parts)
    : lmcache_actor::base(config), parts_(std::move(parts)), sessions_(lmcache::session_table::options{}) {}

lmcache_server::behavior_type lmcache_server::make_behavior() {
  plan_tick(tick_interval);
  return {
      [this](caf::update_atom) { look_into_inbox(); },
      [this](caf::tick_atom) { tick(); },
  };
}

void lmcache_server::on_exit() {
  for (const auto& [id, x] : instances_) {
    send_exit(x->node->link, caf::exit_reason::user_shutdown);
    for (const auto& lane : {x->gathers, x->scatters})
      if (lane)
        send_exit(lane, caf::exit_reason::user_shutdown);
  }
  for (const auto& [id, x] : spaces_)
    if (x.node)
      send_exit(x.node->link, caf::exit_reason::user_shutdown);
  for (const auto& x : lanes_)
    send_exit(x, caf::exit_reason::user_shutdown);
  for (const auto& x : opening_)
    send_exit(x, caf::exit_reason::user_shutdown);
  instances_.clear();
  spaces_.clear();
  leases_.clear();
  lookups_.clear();
  lanes_.clear();
  opening_.clear();
  waiting_.clear();
  // The door knows this actor, and the memory is to go with the node.
  parts_ = lmcache_server_parts{};
}

void lmcache_server::plan_tick(duration in) {
  if (tick_.plan(now() + in))
    delayed_send(this, in, caf::tick_atom_v);
}

void lmcache_server::tick() {
  const auto time = now();
  tick_.came(time);
  sessions_.tick(time);
  end_unneeded();
  limit_lookups(time);
  renew_leases(time);
  settle_waiting();
  while (!resting_.empty() && resting_.front().first <= time) {
    request(parts_.node, caf::infinite, owner_at_rest_atom_v, resting_.front().second)
        .then([] {}, [](const caf::error&) {});
    resting_.pop_front();
  }
  tell_counters();
  plan_tick(waiting_.empty() ? std::min(tick_interval, shortest_lease_ / 4) : status_patience);
}

void lmcache_server::tell_counters() {
  parts_.counters->instances.store(instances_.size(), std::memory_order_relaxed);
  parts_.counters->sessions.store(sessions_.sessions(), std::memory_order_relaxed);
  parts_.counters->expired_sessions.store(sessions_.expired(), std::memory_order_relaxed);
  parts_.counters->locks.store(sessions_.locks(), std::memory_order_relaxed);
}

void lmcache_server::look_into_inbox() {
  for (auto& x : parts_.inbox->take()) {
    if (const auto* gone = std::get_if<client_number>(&x)) {
      client_gone(*gone);
      continue;
    }
    const request_ptr asked = std::get<std::shared_ptr<lmcache::incoming>>(std::move(x));
    clients_.insert(asked->client);
    parts_.counters->requests[static_cast<std::size_t>(asked->what)].fetch_add(1, std::memory_order_relaxed);
    begin(asked);
  }
}

void lmcache_server::begin(const request_ptr& x) {
  if (x->malformed)
    return x->what == operation::register_kv_cache && x->instance ? refuse_memory(x, x->opened.error()) : refuse(x);
  switch (x->what) {
  case operation::get_chunk_size:
  case operation::negotiate_chunk_size:
    // A worker that needs another multiple says so itself, and does not start.
    return answer(x, lmcache::wire::answer(std::uint64_t{parts_.chunk_tokens}));
  case operation::ping:
    return answer(x, lmcache::wire::answer(answer_ping(*x)));
  case operation::noop:
    return answer(x, lmcache::wire::answer_text("OK"));
  case operation::get_experimental:
    return answer(x, lmcache::wire::answer_texts({}));
  case operation::report_block_allocation:
    return answer(x, std::nullopt);
  case operation::register_context:
    return register_instance(x);
  case operation::register_kv_cache:
    return register_memory(x);
  case operation::store:
  case operation::retrieve:
    return queue_copy(x);
  case operation::unregister_context:
  case operation::unregister_kv_cache:
    drop({x->client, *x->instance}, true);
    return answer(x, std::nullopt);
  case operation::lookup:
    return look_up(x);
  case operation::query_prefetch_status:
    return answer_status(x, status_patience);
  case operation::wait_prefetch_status:
    return answer_status(x, x->patience);
  case operation::free_lookup_locks:
    sessions_.freed(x->client, x->chunks.request, x->chunks.begin, x->chunks.end);
    end_unneeded();
    return answer(x, std::nullopt);
  case operation::end_session:
    sessions_.ended(x->client, x->request);
    end_unneeded();
    settle_waiting();
    return answer(x, std::nullopt);
  case operation::prepare_store:
    return prepare_store(x);
  case operation::commit_store:
    return commit_store(x);
  case operation::prepare_retrieve:
    return prepare_retrieve(x);
  case operation::commit_retrieve:
    return commit_retrieve(x);
  case operation::clear:
    return clear(x);
  default:
    return refuse(x);
  }
}

void lmcache_server::refuse(const request_ptr& x) {
  parts_.counters->refused.fetch_add(1, std::memory_order_relaxed);
  // A worker without shared memory would send its tensors over the wire, and wait for each of them: one that is refused
  // gets the name of the memory as well, and no place in it.
  if (x->what == operation::register_context)
    return answer(x, lmcache::wire::answer_registration(parts_.shared_name, parts_.extents->info().bytes));
  answer(x, lmcache::wire::refusal(x->what));
}

// A client registers again when a ping succeeds after one that did not. So an instance that is not known, since the
// node was started after it, is told no and then yes.
bool lmcache_server::answer_ping(const lmcache::incoming& x) {
  if (!x.instance)
    return true;
  const instance_name name(x.client, *x.instance);
  if (instances_.contains(name))
    return true;
  if (refused_.contains(name))
    return false;
  if (told_unknown_.erase(name) > 0)
    return true;
  if (told_unknown_.size() < told_max)
    told_unknown_.insert(name);
  return false;
}

void lmcache_server::client_gone(client_number client) {
  clients_.erase(client);
  sessions_.client_gone(client);
  end_unneeded();
  settle_waiting();
  for (auto* names : {&told_unknown_, &refused_})
    for (auto i = names->lower_bound({client, std::numeric_limits<instance_id>::min()});
         i != names->end() && i->first == client;)
      i = names->erase(i);
  std::vector<instance_name> lost;
  for (const auto& [name, x] : instances_)
    if (name.first == client)
      lost.push_back(name);
  for (const auto& name : lost) {
    log::get("lmcache")->info("instance {} is gone", name.second);
    drop(name, false);
  }
}

void lmcache_server::attach(const namespace_spec& space, std::int32_t process, const std::string& name,
                            std::function<void(result<attachment_ptr>)> then) {
  attach_request wanted;
  wanted.client_name = name;
  wanted.process = process != 0 ? process : ::getpid();
  wanted.wish = space_wish::made;
  wanted.space = space;
  auto out = std::make_shared<attachment>();
  out->link = system().spawn(link_of_worker);
  out->watched = process != 0;
  request(parts_.node, caf::infinite, std::move(wanted), out->link)
      .then(
          [out, then](attach_reply& reply) {
            out->node = std::move(reply);
            then(out);
          },
          [this, out, then](const caf::error& e) {
            send_exit(out->link, caf::exit_reason::user_shutdown);
            then(tl::unexpected<error>(from_caf(e)));
          });
}

void lmcache_server::detach(const attachment_ptr& x, bool at_rest) {
  const auto owner = x->node.owner;
  request(parts_.node, caf::infinite, caf::leave_atom_v, owner, x->link)
      .then(
          [this, owner, at_rest, link = x->link] {
            send_exit(link, caf::exit_reason::user_shutdown);
            if (at_rest)
              request(parts_.node, caf::infinite, owner_at_rest_atom_v, owner).then([] {}, [](const caf::error&) {});
          },
          [this, link = x->link](const caf::error&) { send_exit(link, caf::exit_reason::user_shutdown); });
  if (!at_rest && !x->watched)
    resting_.emplace_back(now() + rest_time, owner);
}

void lmcache_server::drop(const instance_name& which, bool at_rest) {
  const auto node = instances_.extract(which);
  if (node.empty())
    return;
  auto& x = *node.mapped();
  x.ended = true;
  x.at_rest = at_rest;
  if (x.copies == 0)
    let_go(x);
  if (const auto space = spaces_.find(x.space); space != spaces_.end() && --space->second.instances == 0) {
    // Nobody can load what a lookup of it would find. It pins nothing.
    if (space->second.node)
      detach(space->second.node, true);
    spaces_.erase(space);
  }
}

void lmcache_server::register_instance(const request_ptr& x) {
  const auto logger = log::get("lmcache");
  if (!x->registration) {
    logger->warn("instance {} is refused: {}", *x->instance, to_string(x->registration.error()));
    // It would be the same each time: its pings are answered with no, and then it asks for nothing.
    if (refused_.size() < told_max && clients_.contains(x->client))
      refused_.emplace(x->client, *x->instance);
    return refuse(x);
  }
  const auto& space = x->registration->space;
  const instance_name name(x->client, *x->instance);
  if (const auto known = instances_.find(name); known != instances_.end()) {
    if (known->second->space == space.id() && !known->second->memory)
      return answer(x, lmcache::wire::answer_registration(parts_.shared_name, parts_.extents->info().bytes));
    // Who registers anew touches nothing of before.
    drop(name, true);
  }
  attach(space, x->process, "lmcache instance " + std::to_string(*x->instance), [this, x](result<attachment_ptr> as) {
    if (!as) {
      log::get("lmcache")->warn("instance {} is refused: {}", *x->instance, to_string(as.error()));
      return refuse(x);
    }
    auto made = std::make_shared<instance>();
    made->shape = x->registration->shape;
    made->node = std::move(*as);
    attached(x, made);
  });
}

void lmcache_server::attached(const request_ptr& x, const instance_ptr& made) {
  const auto welcome = [this, x, copied = made->memory != nullptr] {
    answer(x, copied ? std::nullopt
                     : std::optional(
                           lmcache::wire::answer_registration(parts_.shared_name, parts_.extents->info().bytes)));
  };
  // Its connection has ended meanwhile, or it has asked twice.
  if (!clients_.contains(x->client) || instances_.contains({x->client, *x->instance})) {
    made->memory ? let_go(*made) : detach(made->node, true);
    return clients_.contains(x->client) ? welcome() : refuse(x);
  }
  made->id = *x->instance;
  made->client = x->client;
  made->space = made->node->node.space_id;
  const auto& spec = made->memory ? x->opened->space : x->registration->space;
  told_unknown_.erase({x->client, made->id});
  refused_.erase({x->client, made->id});
  const auto id = made->space;
  instances_.emplace(instance_name(made->client, made->id), made);
  auto& space = spaces_[id];
  space.spec = spec;
  const bool first = space.instances++ == 0;
  log::get("lmcache")->info("instance {} ({}) is registered", *x->instance,
                            made->memory ? "the node copies" : "process " + std::to_string(x->process));
  if (!first)
    return welcome();
  attach(spec, 0, "lmcache lookups", [this, x, id, welcome](result<attachment_ptr> house) {
    const auto known = spaces_.find(id);
    if (!house) {
      log::get("lmcache")->warn("instance {} is refused: {}", *x->instance, to_string(house.error()));
      drop({x->client, *x->instance}, true);
      return refuse(x);
    }
    if (known == spaces_.end() || known->second.node)
      detach(*house, true);
    else
      known->second.node = *house;
    welcome();
  });
}

lmcache_server::instance_ptr lmcache_server::find(const request_ptr& x) const {
  const auto i = instances_.find({x->client, x->instance.value_or(0)});
  return i == instances_.end() ? nullptr : i->second;
}

bool lmcache_server::is_known(const instance& x) const {
  const auto known = instances_.find({x.client, x.id});
  return known != instances_.end() && known->second.get() == &x;
}

bool lmcache_server::fits(const instance& of, const lmcache::chunk_range& chunks) const {
  const auto& space = of.node->node.space;
  return chunks.begin < chunks.end && chunks.model == space.model && chunks.world_size == space.world_size &&
         worker_of(of, *chunks.worker);
}

void lmcache_server::clear(const request_ptr& x) {
  const auto left = std::make_shared<std::size_t>(parts_.shards.size() * spaces_.size());
  if (*left == 0)
    return answer(x, std::nullopt);
  for (const auto& [id, space] : spaces_)
    for (const auto& shard : parts_.shards)
      clear_some(shard, id, 0, [this, x, left] {
        if (--*left == 0)
          answer(x, std::nullopt);
      });
}

void lmcache_server::clear_some(const registry_actor& shard, const namespace_id& space, std::uint32_t from,
                                std::function<void()> then) {
  request(shard, caf::infinite, clear_request{space, all_ranks, from})
      .then(
          [this, shard, space, then](const clear_reply& reply) {
            if (reply.more)
              clear_some(shard, space, reply.next, then);
            else
              then();
          },
          [then](const caf::error&) { then(); });
}

} // namespace troupe
