#include "actors/lmcache/lmcache_server.hpp"
#include "actors/lmcache/memory_opener.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/spawn_with_thread.hpp"
#include "base/log.hpp"
#include "lmcache/worker_devices.hpp"

#include <algorithm>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

using lmcache::protocol::operation;

/// After a disconnection from an unknown process, its worker may still be copying. No copy takes that long.
constexpr duration rest_time = std::chrono::minutes(10);

/// An actor whose end ends an attachment: it does nothing until it receives an exit message.
caf::behavior link_of_worker(caf::event_based_actor*) {
  return {[](caf::tick_atom) {}};
}

bool unregisters(const lmcache::incoming& x) {
  return x.what == operation::unregister_context || x.what == operation::unregister_kv_cache;
}

/// Whether it registers memory that the node copies to and from.
bool opens_memory(const lmcache::incoming& x) {
  return x.what == operation::register_kv_cache;
}

/// On a device, LMCache's workers gather blocks while the engine goes on, and the engine gives those behind a window,
/// and of the state before, to other requests at its next step. So what they store may be of another request.
std::optional<error> fault_of_worker(const lmcache::incoming& x) {
  if (opens_memory(x) || std::ranges::all_of(x.registration->groups, [](const lmcache::context_group& group) {
        return group.window_chunks == 0;
      }))
    return std::nullopt;
  const auto on_device = lmcache::has_device_open(x.process);
  if (on_device && !*on_device)
    return std::nullopt;
  return error{errc::unsupported,
               std::string("groups with windows or states, of a worker ") +
                   (on_device ? "that has a device open, as a GPU" : "whose process and devices cannot be seen") +
                   ": LMCache copies their blocks while the engine gives them to other requests; workers on CPUs in "
                   "the node's process namespace are served, and vLLM with Troupe's plug-in on GPUs"};
}

} // namespace

// -- actions of the rules
// ----------------------------------------------------------------------------------------------

void lmcache_server::change_registration(const request_ptr& x) {
  const instance_name name(x->client, *x->instance);
  // It accesses no page of its earlier registration.
  if (const auto node = lost_.extract(name); !node.empty())
    for (const auto& old : node.mapped().nodes)
      rest(old);
  change_number number = 0;
  error why;
  if (unregisters(*x)) {
    number = rules_.unregister(name, x->process, now());
  } else {
    server_rules::registration wanted{name, x->process, {}, nullptr, false, false, false};
    if (opens_memory(*x) ? !x->opened : !x->registration) {
      wanted.invalid = true;
      why = opens_memory(*x) ? x->opened.error() : x->registration.error();
    } else if (x->malformed) {
      wanted.invalid = true;
      why = {errc::invalid_argument, "its version is not supported"};
    } else if (!opens_memory(*x) && !parts_.extents->shared_name_is_there()) {
      wanted.invalid = true;
      why = {errc::unsupported, "the name of the shared memory was removed"};
    } else if (auto fault = fault_of_worker(*x)) {
      wanted.invalid = true;
      why = std::move(*fault);
    } else if (opens_memory(*x)) {
      wanted.ns = x->opened->ns.id();
      wanted.memory = x->opened->memory;
      wanted.sliding = x->opened->sliding;
    } else {
      wanted.ns = x->registration->first().ns.id();
      wanted.has_begun = transfers_.has_begun(rules_.current(name));
    }
    number = rules_.enroll(std::move(wanted), now());
  }
  changes_.emplace(number, open_change{x, std::move(why)});
  flush();
}

// An action may add further ones, which are executed after it.
void lmcache_server::flush() {
  if (std::exchange(flushing_, true))
    return;
  for (;;) {
    auto transfers = transfers_.take_outbox();
    for (auto& effect : transfers)
      std::visit([this](auto& x) { perform(x); }, effect);
    const auto effects = rules_.take_outbox();
    for (const auto& effect : effects)
      std::visit([this](const auto& x) { perform(x); }, effect);
    if (transfers.empty() && effects.empty())
      break;
  }
  flushing_ = false;
  if (const auto next = rules_.next_deadline(); next != timestamp::max())
    plan_tick(std::max(next - now(), duration::zero()));
  answer_drain();
}

void lmcache_server::perform(const server_rules::prepare& x) {
  const auto asked = changes_.at(x.change).request;
  const auto made = std::make_shared<instance>();
  made->number = x.change;
  made->id = *asked->instance;
  made->client = asked->client;
  const auto add = [&](const namespace_spec& ns) -> instance_group& {
    return made->groups.emplace_back(instance_group{ns, ns.id()});
  };
  if (opens_memory(*asked)) {
    made->memory = asked->opened->memory;
    made->sliding = asked->opened->sliding;
    add(asked->opened->ns);
  } else {
    for (const auto& group : asked->registration->groups) {
      auto& own = add(group.ns);
      own.shape = group.shape;
      own.needs = {group.window_chunks, group.recurrent};
    }
  }
  attach_next(made, asked);
}

void lmcache_server::attach_next(const instance_ptr& made, const request_ptr& asked) {
  const auto next = std::ranges::find_if(made->groups, [](const instance_group& x) { return x.node == nullptr; });
  if (next == made->groups.end())
    return prepared(made, {});
  const auto group = static_cast<std::size_t>(next - made->groups.begin());
  // If the node copies, the attachment is of this process: no other one accesses the frames of its pages.
  attach(next->spec, made->memory ? 0 : asked->process, "lmcache instance " + std::to_string(made->id),
         [this, made, asked, group](result<attachment_ptr> as) {
           if (!as)
             return prepared(made, tl::unexpected<error>(as.error()));
           auto& own = made->groups[group];
           own.node = std::move(*as);
           own.ns = own.node->node.ns_id;
           if (made->memory)
             return open_memory(made, asked);
           join_namespace(made, group, [this, made, asked](const result<void>& joined) {
             joined ? attach_next(made, asked) : prepared(made, joined);
           });
         });
}

void lmcache_server::perform(const server_rules::settle& x) {
  auto change = changes_.extract(x.change);
  if (change.empty())
    return;
  const auto& asked = change.mapped().request;
  const auto& why = change.mapped().why;
  if (unregisters(*asked))
    return answer(asked, std::nullopt);
  const auto logger = log::get("lmcache");
  if (x.accepted) {
    logger->info("instance {} ({}) registered", *asked->instance,
                 opens_memory(*asked) ? "the node copies" : "process " + std::to_string(asked->process));
    return answer(asked, opens_memory(*asked) ? std::nullopt : std::optional(answer_of_registration()));
  }
  if (why.text.empty())
    logger->info("instance {}: registration ignored: replaced by a later one, timed out, or the node is stopping",
                 *asked->instance);
  // This operation has no answer that rejects it. The worker believes that it is registered until its next ping; its
  // stores and retrieves are rejected until then.
  else if (opens_memory(*asked))
    logger->warn("instance {} rejected: {}; its next ping will fail; with lmcache.mp.mp_transfer_mode "
                 "\"engine_driven\" workers copy themselves",
                 *asked->instance, to_string(why));
  else
    logger->warn("instance {} rejected: {}", *asked->instance, to_string(why));
  refuse(asked);
}

void lmcache_server::perform(const server_rules::end& x) {
  const auto known = instances_.find(x.change);
  if (known == instances_.end())
    return;
  const auto of = known->second;
  if (x.why == server_rules::end_reason::disconnected)
    log::get("lmcache")->info("instance {} disconnected", of->id);
  if (x.why == server_rules::end_reason::sent_away)
    log::get("lmcache")->warn("instance {} deregistered: the node has ended its attachment, as when its namespace is "
                              "removed; pings make the worker register again",
                              of->id);
  leave_namespace(of);
  transfers_.ended(of->number, now());
}

void lmcache_server::perform(const server_rules::release& x) {
  if (const auto node = instances_.extract(x.change); !node.empty())
    let_go(node.mapped(), x.why);
}

// -- attachments ------------------------------------------------------------------------------------------------------

void lmcache_server::attach(const namespace_spec& ns, std::int32_t process, const std::string& name,
                            std::function<void(result<attachment_ptr>)> then) {
  attach_request wanted;
  wanted.client_name = name;
  wanted.process = process != 0 ? process : ::getpid();
  // Lanes of this process may still seal pages in frames of a worker that has died.
  wanted.home = home_in_node;
  wanted.wish = namespace_wish::made;
  wanted.ns = ns;
  auto out = std::make_shared<attachment>();
  out->link = system().spawn(link_of_worker);
  out->watched = process != 0;
  // An attachment that arrives later ends with its link.
  request(parts_.node, attach_time, std::move(wanted), out->link)
      .then(
          [this, out, then](attach_reply& reply) {
            out->node = std::move(reply);
            attachments_.insert(out);
            if (!out->node.shards.empty())
              monitor(out->node.shards.front());
            then(out);
          },
          [this, out, then](const caf::error& e) {
            send_exit(out->link, caf::exit_reason::user_shutdown);
            then(tl::unexpected<error>(from_caf(e)));
          });
}

void lmcache_server::detach(const attachment_ptr& x, bool quiesced) {
  attachments_.erase(x);
  const auto owner = x->node.owner;
  if (!quiesced && !x->watched)
    quiescing_.emplace_back(now() + rest_time, owner);
  if (x->lost) {
    if (quiesced)
      rest(x);
    return send_exit(x->link, caf::exit_reason::user_shutdown);
  }
  const auto left = [this, x, quiesced] {
    send_exit(x->link, caf::exit_reason::user_shutdown);
    if (quiesced)
      rest(x);
  };
  // It fails if the node has ended the attachment, and that is not known here yet.
  ask(parts_.node, caf::leave_atom_v, owner, x->link).then(left, [left](const caf::error&) { left(); });
}

void lmcache_server::rest(const attachment_ptr& x) {
  tell(parts_.node, owner_quiesced_atom_v, x->node.owner);
}

// The node ends the proxies of a client that it detaches. Attachments that have been left are not found.
void lmcache_server::shard_lost(const caf::down_msg& down) {
  std::vector<attachment_ptr> gone;
  for (const auto& x : attachments_)
    if (!x->node.shards.empty() && tells_of(down, x->node.shards.front()))
      gone.push_back(x);
  for (const auto& x : gone) {
    attachments_.erase(x);
    x->lost = true;
    send_away([&x](const instance& y) { return y.has(x); });
    std::vector<namespace_id> namespaces;
    for (const auto& [id, y] : namespaces_)
      if (y.node == x)
        namespaces.push_back(id);
    for (const auto& id : namespaces)
      namespace_lost(id);
  }
  flush();
}

template <class Predicate>
void lmcache_server::send_away(Predicate is_meant) {
  for (const auto& [number, x] : instances_)
    if (is_meant(*x))
      rules_.sent_away(number, now());
}

/// Without the attachment of its lookups, no key of a namespace is found: so its workers register again.
void lmcache_server::namespace_lost(const namespace_id& ns) {
  const auto known = namespaces_.find(ns);
  const auto house = std::exchange(known->second.node, nullptr);
  for (auto& [number, lease] : leases_)
    std::erase_if(lease.keys, [&](const held_keys& x) { return x.node == house; });
  detach(house, true);
  send_away([&ns](const instance& x) {
    return std::ranges::any_of(x.groups, [&](const instance_group& y) { return y.ns == ns; });
  });
  if (known->second.instances == 0)
    namespaces_.erase(known);
}

void lmcache_server::join_namespace(const instance_ptr& made, std::size_t group,
                                    std::function<void(const result<void>&)> then) {
  auto& own = made->groups[group];
  const auto id = own.ns;
  auto& ns = namespaces_[id];
  ns.spec = own.spec;
  ns.needs = own.needs;
  ns.groups = made->groups.size();
  ++ns.instances;
  own.counted = true;
  if (ns.node)
    return then({});
  ns.waiting.push_back(std::move(then));
  if (ns.waiting.size() > 1)
    return;
  attach(own.spec, 0, "lmcache lookups", [this, id](result<attachment_ptr> house) {
    const auto known = namespaces_.find(id);
    if (known == namespaces_.end()) {
      if (house)
        detach(*house, true);
      return;
    }
    if (house)
      known->second.node = *house;
    // The last failing one removes the namespace.
    for (const auto& waiting : std::exchange(known->second.waiting, {}))
      waiting(house ? result<void>() : tl::unexpected<error>(house.error()));
  });
}

void lmcache_server::leave_namespace(const instance_ptr& made) {
  for (auto& own : made->groups) {
    if (!std::exchange(own.counted, false))
      continue;
    const auto ns = namespaces_.find(own.ns);
    if (ns == namespaces_.end() || --ns->second.instances > 0)
      continue;
    // Results of lookups in it could not be loaded. It pins nothing.
    if (ns->second.node)
      detach(ns->second.node, true);
    namespaces_.erase(ns);
  }
}

// -- registrations ----------------------------------------------------------------------------------------------------

void lmcache_server::prepared(const instance_ptr& made, const result<void>& outcome) {
  // Its attachment may have ended while its memory was opened.
  auto code = outcome ? errc::ok : outcome.error().code;
  if (outcome && std::ranges::any_of(made->groups, [](const instance_group& x) { return x.node->lost; }))
    code = errc::busy;
  if (code == errc::ok) {
    instances_.emplace(made->number, made);
    rules_.prepared(made->number, now());
    return flush();
  }
  if (const auto change = changes_.find(made->number); change != changes_.end())
    change->second.why = outcome ? error{code, "its namespace was removed"} : outcome.error();
  let_go(made, server_rules::end_reason::replaced);
  rules_.failed(made->number, code, now());
  flush();
}

void lmcache_server::open_memory(const instance_ptr& made, const request_ptr& x) {
  auto opener = spawn_with_thread<memory_opener>(system(), thread_name("troupe-map"), "the thread that opens memory");
  if (!opener)
    return prepared(made, tl::unexpected<error>(opener.error()));
  request(*opener, until_answered, open_order{made->memory})
      .then(
          [this, made, spec = x->opened->ns](opened_memory& opened) {
            if (!opened.cache)
              return prepared(made, tl::unexpected<error>(opened.why_not));
            made->events = std::make_shared<remote_events>();
            made->mover =
                std::make_shared<remote_mover>(std::move(opened.cache), *made->memory, spec.geometry, made->events);
            join_namespace(made, 0, [this, made](const result<void>& joined) { prepared(made, joined); });
          },
          [this, made](const caf::error& e) { prepared(made, failed<void>(e)); });
}

void lmcache_server::let_go(const instance_ptr& x, server_rules::end_reason why) {
  using end_reason = server_rules::end_reason;
  leave_namespace(x);
  const bool may_touch = transfers_.may_touch(x->number);
  // First the coordinators: results of orders that are answered from now on are ignored. The frames are released with
  // the attachment.
  end_ranks(*x);
  auto jobs = transfers_.forget(x->number);
  // If the node copies, no other process does.
  const bool quiesced = x->memory || why == end_reason::replaced || (why == end_reason::sent_away && !may_touch);
  std::vector<attachment_ptr> nodes;
  for (const auto& own : x->groups)
    if (own.node) {
      detach(own.node, quiesced);
      nodes.push_back(own.node);
    }
  if (!nodes.empty() && !quiesced && why == end_reason::sent_away)
    lost_[{x->client, x->id}] = {std::move(nodes), std::move(jobs)};
}

void lmcache_server::end_job_of_lost(const request_ptr& x) {
  const auto known = lost_.find({x->client, x->instance.value_or(0)});
  if (known == lost_.end())
    return;
  auto& of = known->second;
  of.jobs.erase(lmcache::transfer_rules::name_of(*x));
  if (!of.jobs.empty())
    return;
  for (const auto& node : of.nodes)
    rest(node);
  lost_.erase(known);
}

lmcache_server::instance_ptr lmcache_server::find(const request_ptr& x) const {
  const auto number = rules_.current({x->client, x->instance.value_or(0)});
  const auto i = instances_.find(number);
  return i == instances_.end() ? nullptr : i->second;
}

bool lmcache_server::fits(const instance& of, const lmcache::chunk_range& chunks) const {
  const auto& ns = of.first().node->node.ns;
  return chunks.begin < chunks.end && chunks.model == ns.model && chunks.world_size == ns.world_size &&
         std::ranges::all_of(of.groups, [&](const instance_group& x) { return bool{worker_of(x, *chunks.worker)}; });
}

} // namespace troupe
