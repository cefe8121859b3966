#include "actors/lmcache/lmcache_server.hpp"

#include "actors/support/actor_support.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

using lmcache::protocol::operation;

constexpr duration tick_interval = std::chrono::seconds(1);

error not_bound() {
  return {errc::unsupported, "the copy engine of LMCache's workers is bound to nothing"};
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
    : lmcache_actor::base(config), parts_(std::move(parts)), sessions_(lmcache::session_table::options{}) {
  set_down_handler([this](const caf::down_msg& down) { shard_lost(down); });
}

lmcache_server::behavior_type lmcache_server::make_behavior() {
  plan_tick(tick_interval);
  return {
      [this](caf::update_atom) { look_into_inbox(); },
      [this](caf::tick_atom) { tick(); },
      [this](drain_atom) { return drain(); },
      [](bind_atom, owner_id, const arena_info&) -> caf::result<void> { return to_caf(not_bound()); },
      [](lend_atom, owner_id, const arena_info&) -> caf::result<remote_offer> { return to_caf(not_bound()); },
      [](unbind_atom, owner_id) -> caf::result<void> { return to_caf(not_bound()); },
      [this](gather_atom, const copy_order& order) { return carry_out(true, order); },
      [this](scatter_atom, const copy_order& order) { return carry_out(false, order); },
  };
}

void lmcache_server::on_exit() {
  for (const auto& x : open_requests_.take_all())
    parts_.answer(*x, refusal_of(*x));
  for (auto& x : std::exchange(drains_, {}))
    x.deliver(to_caf(error{errc::shutting_down, "the server of LMCache's clients has ended"}));
  for (const auto& [number, x] : instances_)
    end_ranks(*x);
  for (const auto& x : attachments_)
    send_exit(x->link, caf::exit_reason::user_shutdown);
  for (const auto& x : lanes_.all)
    send_exit(x, caf::exit_reason::user_shutdown);
  instances_.clear();
  changes_.clear();
  attachments_.clear();
  lost_.clear();
  namespaces_.clear();
  leases_.clear();
  lookups_.clear();
  events_.streams.clear();
  lanes_.all.clear();
  for (auto& [number, x] : std::exchange(orders_, {}))
    x.deliver(to_caf(error{errc::shutting_down, "the server of LMCache's clients has ended"}));
  waiting_.clear();
  // The listener knows this actor, but the memory must be released with the node.
  parts_ = lmcache_server_parts{};
}

void lmcache_server::plan_tick(duration in) {
  if (tick_.plan(now() + in))
    delayed_send(this, in, caf::tick_atom_v);
}

void lmcache_server::tick() {
  const auto time = now();
  tick_.came(time);
  deadlines_.expire(*this, time);
  sessions_.tick(time);
  end_unneeded();
  limit_lookups(time);
  renew_leases(time);
  settle_waiting();
  refuse_late(time);
  rules_.tick(time);
  flush();
  while (!quiescing_.empty() && quiescing_.front().first <= time) {
    tell(parts_.node, owner_quiesced_atom_v, quiescing_.front().second);
    quiescing_.pop_front();
  }
  report_counters();
  plan_tick(waiting_.empty() ? std::min(tick_interval, shortest_lease_ / 4) : status_patience);
}

void lmcache_server::report_counters() {
  parts_.counters->instances.store(rules_.instances(), std::memory_order_relaxed);
  parts_.counters->sessions.store(sessions_.sessions(), std::memory_order_relaxed);
  parts_.counters->expired_sessions.store(sessions_.expired(), std::memory_order_relaxed);
  parts_.counters->locks.store(sessions_.locks(), std::memory_order_relaxed);
}

void lmcache_server::look_into_inbox() {
  for (auto& x : parts_.inbox->take()) {
    if (const auto* gone = std::get_if<client_number>(&x)) {
      client_disconnected(*gone);
      continue;
    }
    const request_ptr asked = std::get<std::shared_ptr<lmcache::incoming>>(std::move(x));
    open_requests_.add(asked, now());
    parts_.counters->requests[static_cast<std::size_t>(asked->what)].fetch_add(1, std::memory_order_relaxed);
    begin(asked);
  }
  // Also where a subscriber has confirmed, or there are new changes.
  send_events();
}

void lmcache_server::begin(const request_ptr& x) {
  // No answer to a registration rejects it: pings do.
  if (x->malformed && x->instance && lmcache::protocol::changes_registration(x->what))
    return change_registration(x);
  if (x->malformed || (stopping_ && !lmcache::protocol::changes_registration(x->what)))
    return refuse(x);
  switch (x->what) {
  case operation::get_chunk_size:
  case operation::negotiate_chunk_size:
    // A worker that needs another multiple reports that itself, and does not start.
    return answer(x, lmcache::protocol::answer(std::uint64_t{parts_.chunk_tokens}));
  case operation::ping:
    return answer(x, lmcache::protocol::answer(!x->instance || rules_.answer_ping({x->client, *x->instance})));
  case operation::noop:
    return answer(x, lmcache::protocol::answer_text("OK"));
  case operation::get_experimental:
    return answer(x, parts_.log ? lmcache::protocol::answer_texts(std::array{lmcache::protocol::event_capability})
                                : lmcache::protocol::answer_texts({}));
  case operation::subscribe_kv_events:
    return subscribe(x);
  case operation::report_block_allocation:
    return answer(x, std::nullopt);
  case operation::register_context:
  case operation::register_kv_cache:
  case operation::unregister_context:
  case operation::unregister_kv_cache:
    return change_registration(x);
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
  case operation::prepare_retrieve:
  case operation::store:
  case operation::retrieve:
    return begin_transfer(x);
  case operation::commit_store:
  case operation::commit_retrieve:
    return commit_transfer(x);
  case operation::clear:
    return clear(x);
  default:
    return refuse(x);
  }
}

void lmcache_server::refuse(const request_ptr& x) {
  parts_.counters->refused.fetch_add(1, std::memory_order_relaxed);
  answer(x, refusal_of(*x));
}

std::optional<std::string> lmcache_server::refusal_of(const lmcache::incoming& x) const {
  // A worker without shared memory would send its tensors over the network, and wait for each of them: a rejected one
  // gets the name of the memory as well, but no slot in it.
  return x.what == operation::register_context ? answer_of_registration() : lmcache::protocol::refusal(x.what);
}

std::string lmcache_server::answer_of_registration() const {
  // If the name was removed or reused, a worker would crash, or mistake the new file for this memory.
  if (parts_.extents->shared_name_is_there())
    return lmcache::protocol::answer_registration(parts_.shared_name, parts_.extents->info().bytes);
  log::get("lmcache")->warn("shared memory /dev/shm/{} was removed: LMCache's workers run without it; restart the node",
                            parts_.shared_name);
  return lmcache::protocol::answer_registration("", 0);
}

void lmcache_server::answer(const request_ptr& x, std::optional<std::string> frame) {
  if (open_requests_.close(x))
    parts_.answer(*x, std::move(frame));
}

void lmcache_server::refuse_late(timestamp time) {
  for (const auto& x : open_requests_.take_late(time)) {
    log::get("lmcache")->warn("{} of a client timed out; it is rejected", lmcache::protocol::to_string(x->what));
    parts_.counters->refused.fetch_add(1, std::memory_order_relaxed);
    parts_.answer(*x, refusal_of(*x));
    transfers_.late(x, time);
  }
}

void lmcache_server::client_disconnected(client_number client) {
  events_.streams.client_disconnected(client);
  sessions_.client_disconnected(client);
  end_unneeded();
  settle_waiting();
  // The node detects the end of their processes, or their waiting time has passed.
  std::erase_if(lost_, [&](const auto& x) { return x.first.first == client; });
  rules_.client_disconnected(client, now());
  flush();
}

caf::result<void> lmcache_server::drain() {
  drains_.push_back(make_response_promise());
  const auto out = drains_.back();
  if (!std::exchange(stopping_, true)) {
    rules_.stop(now());
    events_.streams.clear();
    // Requests in progress in the node's name end by themselves, without a receiver. Copies end with the current work
    // of lanes.
    for (const auto& x : open_requests_.take_all())
      parts_.answer(*x, refusal_of(*x));
    waiting_.clear();
  }
  flush();
  return out;
}

void lmcache_server::answer_drain() {
  if (drains_.empty() || !rules_.drained() || open_requests_.size() > 0)
    return;
  for (auto& x : std::exchange(drains_, {}))
    x.deliver(caf::unit);
}

void lmcache_server::clear(const request_ptr& x) {
  const auto left = std::make_shared<std::size_t>(parts_.shards.size() * namespaces_.size());
  if (*left == 0)
    return answer(x, std::nullopt);
  for (const auto& [id, ns] : namespaces_)
    for (const auto& shard : parts_.shards)
      clear_some(x, shard, id, 0, [this, x, left] {
        if (--*left == 0)
          answer(x, std::nullopt);
      });
}

void lmcache_server::clear_some(const request_ptr& x, const registry_actor& shard, const namespace_id& ns,
                                std::uint32_t from, std::function<void()> then) {
  ask(shard, clear_request{ns, all_ranks, from})
      .then(
          [this, x, shard, ns, then](const clear_reply& reply) {
            if (reply.more && open_requests_.is_open(x))
              clear_some(x, shard, ns, reply.next, then);
            else
              then();
          },
          [then](const caf::error&) { then(); });
}

} // namespace troupe
