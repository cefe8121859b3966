#include "actors/namespaces/namespaces.hpp"

#include "actors/allocator/allocator.hpp"
#include "base/log.hpp"

#include <memory>
#include <utility>

namespace troupe {

namespace {

/// A function to be called with the outcome of each of so many parts; after the last it calls `then` with the first
/// error, or with ok.
template <class Then>
auto gather(std::size_t parts, Then then) {
  return [open = std::make_shared<std::size_t>(parts), first = std::make_shared<error>(error{errc::ok, {}}),
          then = std::move(then)](const error& outcome) {
    if (first->code == errc::ok)
      *first = outcome;
    if (--*open == 0)
      then(*first);
  };
}

void deliver_all(std::vector<caf::response_promise> waiting, const error& outcome) {
  for (auto& promise : waiting) {
    if (outcome.code == errc::ok)
      promise.deliver(caf::unit);
    else
      promise.deliver(to_caf(outcome));
  }
}

/// Asks all shards the same, and calls `then(error)` once, with ok if all said yes.
template <class Self, class Request, class Then>
void ask_all(Self* self, const std::vector<registry_actor>& shards, const Request& request, Then then) {
  const auto end = gather(shards.size(), std::move(then));
  for (const auto& shard : shards)
    self->request(shard, caf::infinite, request)
        .then(
            [end] {
              end({errc::ok, {}});
            },
            [end](const caf::error& e) { end(from_caf(e)); });
}

} // namespace

allocator_actor spawn_foreign_allocator(caf::actor_system& system, const namespaces_config& options,
                                        const register_rank_request& wanted) {
  auto slots = options_for_slots(wanted.slots, options.low_watermark, options.high_watermark);
  slots.rest = options.rest;
  auto out = spawn_actor<allocator>(system, slots, wanted.space, wanted.rank, io_worker_actor{});
  caf::anon_send(out, bind_atom_v, registry_peers{options.shards, {}, {}, {}});
  return out;
}

namespaces::namespaces(caf::actor_config& config, namespaces_config options,
                       const std::vector<add_namespace_request>& known, const std::vector<known_rank>& ranks)
    : namespaces_actor::base(config), options_(std::move(options)) {
  for (const auto& x : known)
    spaces_[x.spec.id()].name = x.spec.name;
  for (const auto& x : ranks)
    spaces_[x.space].ranks[x.rank] = {x.slots, x.allocator, true, {}};
}

namespaces::behavior_type namespaces::make_behavior() {
  return {
      [this](const add_namespace_request& x) { return add(x); },
      [this](const remove_namespace_request& x) { return remove(x); },
      [this](const register_rank_request& x) { return register_rank(x); },
  };
}

caf::result<void> namespaces::add(const add_namespace_request& wanted) {
  const auto id = wanted.spec.id();
  if (const auto i = spaces_.find(id); i != spaces_.end() && !i->second.removing.empty())
    return to_caf(error{errc::busy, "namespace '" + i->second.name + "' is being removed; try again in a moment"});
  auto promise = make_response_promise();
  const auto number = promises_.add(promise);
  ask_all(this, options_.shards, wanted, [this, number, id, name = wanted.spec.name](const error& outcome) {
    if (outcome.code != errc::ok)
      return promises_.deliver(number, to_caf(outcome));
    spaces_[id].name = name;
    promises_.deliver(number, caf::unit);
  });
  return promise;
}

caf::result<void> namespaces::remove(const remove_namespace_request& wanted) {
  const auto i = spaces_.find(wanted.space);
  if (i == spaces_.end())
    return to_caf(error{errc::unknown_namespace, "no such namespace"});
  auto& space = i->second;
  for (const auto& [rank, entry] : space.ranks)
    if (!entry.registered)
      return to_caf(error{errc::busy, "rank " + std::to_string(rank) + " of namespace '" + space.name +
                                          "' is being registered; try again in a moment"});
  auto promise = make_response_promise();
  space.removing.push_back(promise);
  if (space.removing.size() > 1)
    return promise; // shares the answer of the one under way
  const auto end =
      gather(options_.shards.size(), [this, id = wanted.space](const error& outcome) { removal_ended(id, outcome); });
  for (const auto& shard : options_.shards)
    remove_from(shard, wanted, end);
  return promise;
}

void namespaces::remove_from(const registry_actor& shard, const remove_namespace_request& wanted,
                             std::function<void(const error&)> then) {
  request(shard, caf::infinite, wanted)
      .then(
          [this, shard, wanted, then](const remove_namespace_reply& reply) {
            if (reply.more)
              remove_from(shard, wanted, then);
            else
              then({errc::ok, {}});
          },
          [then](const caf::error& e) {
            const auto why = from_caf(e);
            // A shard that has forgotten it already, when an earlier attempt failed elsewhere.
            then(why.code == errc::unknown_namespace ? error{errc::ok, {}} : why);
          });
}

void namespaces::removal_ended(const namespace_id& space, const error& outcome) {
  const auto i = spaces_.find(space);
  auto waiting = std::exchange(i->second.removing, {});
  if (outcome.code == errc::ok) {
    log::get("namespaces")->info("namespace '{}' is removed", i->second.name);
    for (const auto& [rank, entry] : i->second.ranks)
      send_exit(entry.allocator, caf::exit_reason::user_shutdown);
    spaces_.erase(i);
  }
  deliver_all(std::move(waiting), outcome);
}

caf::result<void> namespaces::register_rank(const register_rank_request& wanted) {
  const auto space = spaces_.find(wanted.space);
  if (space == spaces_.end())
    return to_caf(error{errc::unknown_namespace, "no such namespace; create it first"});
  const auto& name = space->second.name;
  if (!space->second.removing.empty())
    return to_caf(error{errc::busy, "namespace '" + name + "' is being removed"});
  if (wanted.slots == 0 || wanted.slots > options_.max_slots)
    return to_caf(error{errc::out_of_range, "a rank has 1 to " + std::to_string(options_.max_slots) +
                                                " pages; asked for were " + std::to_string(wanted.slots)});
  auto& ranks = space->second.ranks;
  if (const auto i = ranks.find(wanted.rank); i != ranks.end()) {
    auto& known = i->second;
    if (known.slots != wanted.slots)
      return to_caf(
          error{errc::identity_mismatch, "rank " + std::to_string(wanted.rank) + " of namespace '" + name + "' has " +
                                             std::to_string(known.slots) + " pages and cannot be given " +
                                             std::to_string(wanted.slots) +
                                             ": use another namespace, or remove this one with all its keys first"});
    if (known.registered)
      return caf::unit;
    auto promise = make_response_promise();
    known.waiting.push_back(promise);
    return promise;
  }
  auto promise = make_response_promise();
  ranks[wanted.rank] = {wanted.slots, spawn_foreign_allocator(system(), options_, wanted), false, {promise}};
  ask_all(this, options_.shards,
          add_rank_request{wanted.space, wanted.rank, wanted.slots, ranks[wanted.rank].allocator, fresh_incarnation()},
          [this, wanted](const error& outcome) { registered(wanted, outcome); });
  return promise;
}

void namespaces::registered(const register_rank_request& wanted, const error& outcome) {
  auto& ranks = spaces_.at(wanted.space).ranks;
  const auto i = ranks.find(wanted.rank);
  auto waiting = std::exchange(i->second.waiting, {});
  if (outcome.code == errc::ok) {
    i->second.registered = true;
    log::get("namespaces")
        ->info("namespace '{}' has rank {} with {} pages", spaces_.at(wanted.space).name, wanted.rank, wanted.slots);
  } else {
    send_exit(i->second.allocator, caf::exit_reason::user_shutdown);
    ranks.erase(i);
  }
  deliver_all(std::move(waiting), outcome);
}

void namespaces::on_exit() {
  const error gone{errc::shutting_down, "the node is ending"};
  promises_.fail_all(gone);
  for (auto& [id, space] : spaces_) {
    deliver_all(std::move(space.removing), gone);
    for (auto& [rank, entry] : space.ranks) {
      deliver_all(std::move(entry.waiting), gone);
      send_exit(entry.allocator, caf::exit_reason::user_shutdown);
    }
  }
  spaces_.clear();
  options_.shards.clear();
}

} // namespace troupe
