#include "actors/node/namespaces/namespaces.hpp"

#include "actors/node/allocator/allocator.hpp"
#include "actors/node/registry/key_space.hpp"
#include "base/log.hpp"

#include <memory>
#include <new>
#include <utility>

namespace troupe {

namespace {

/// A function to be called with the outcome of each of so many parts; after the last it calls `then` with the first
/// error, or with ok, and with how many were ok.
template <class Then>
auto gather(std::size_t parts, Then then) {
  struct gathering {
    std::size_t open;
    std::size_t good = 0;
    error first{errc::ok, {}};
  };
  return [all = std::make_shared<gathering>(gathering{parts}), then = std::move(then)](const error& outcome) {
    if (outcome.code == errc::ok)
      ++all->good;
    else if (all->first.code == errc::ok)
      all->first = outcome;
    if (--all->open == 0)
      then(all->first, all->good);
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

/// Asks all shards the same, and calls `then(error, accepted)` once, with ok if all said yes.
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

std::string name_of(rank_number rank, const std::string& space) {
  return "rank " + std::to_string(rank) + " of namespace '" + space + "'";
}

} // namespace

std::uint64_t bytes_of_slots(std::uint64_t slots, std::size_t shards) noexcept {
  return slots * (allocator_state::bytes_per_slot + shards * key_space::bytes_per_indexed_slot);
}

result<allocator_actor> spawn_foreign_allocator(caf::actor_system& system, const namespaces_config& options,
                                                const register_rank_request& wanted) {
  auto slots = options_for_slots(wanted.slots, options.low_watermark, options.high_watermark);
  slots.rest = options.rest;
  const auto what = "rank " + std::to_string(wanted.rank) + " with " + std::to_string(wanted.slots) + " pages";
  auto memory = memory_share::of(options.memory, bytes_of_slots(wanted.slots, options.shards.size()), what);
  if (!memory)
    return tl::unexpected<error>(std::move(memory.error()));
  try {
    auto out = spawn_actor<allocator>(system, slots, wanted.space, wanted.rank, io_worker_actor{}, std::move(*memory));
    caf::anon_send(out, bind_atom_v, registry_peers{options.shards, {}, {}, {}});
    return out;
  } catch (const std::bad_alloc&) {
    return fail(errc::no_space, "the system has no memory left for " + what);
  }
}

namespaces::namespaces(caf::actor_config& config, namespaces_config options,
                       const std::vector<add_namespace_request>& known, const std::vector<known_rank>& ranks)
    : namespaces_actor::base(config), options_(std::move(options)) {
  for (const auto& x : known)
    spaces_[x.spec.id()].name = x.spec.name;
  for (const auto& x : options_.own) {
    auto& space = spaces_[x.id()];
    space.name = x.name;
    space.own = true;
  }
  const auto add_ranks = [this](const std::vector<known_rank>& all) {
    for (const auto& x : all)
      spaces_[x.space].ranks[x.rank] = {x.slots, x.allocator, x.incarnation, rank_entry::phase::registered, {}};
  };
  add_ranks(ranks);
  add_ranks(options_.own_ranks);
  for (const auto& x : ranks)
    monitor(x.allocator);
  set_down_handler([this](caf::down_msg& down) { on_down(down); });
}

void namespaces::on_down(const caf::down_msg& down) {
  for (const auto& [id, space] : spaces_)
    for (const auto& [rank, entry] : space.ranks)
      if (entry.allocator.address() == down.source) {
        log::get("namespaces")
            ->critical("the allocator of {} has died ({}): its slots are lost, so the node ends",
                       name_of(rank, space.name), system().render(down.reason));
        return quit(caf::exit_reason::unhandled_exception);
      }
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
  ask_all(this, options_.shards, wanted,
          [this, number, id, name = wanted.spec.name](const error& outcome, std::size_t) {
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
  if (space.own)
    return to_caf(error{errc::not_owner, "namespace '" + space.name +
                                             "' is one of the config's: to remove it, take it out of `namespaces` "
                                             "there and start the node again; to forget its keys, clear it"});
  for (const auto& [rank, entry] : space.ranks)
    if (entry.state == rank_entry::phase::under_way || entry.state == rank_entry::phase::replacing)
      return to_caf(error{errc::busy, name_of(rank, space.name) + " is being registered; try again in a moment"});
  auto promise = make_response_promise();
  space.removing.push_back(promise);
  if (space.removing.size() > 1)
    return promise; // shares the answer of the one under way
  const auto end = gather(options_.shards.size(),
                          [this, id = wanted.space](const error& outcome, std::size_t) { removal_ended(id, outcome); });
  for (const auto& shard : options_.shards)
    remove_from(shard, wanted, end);
  return promise;
}

void namespaces::remove_from(const registry_actor& shard, const remove_namespace_request& wanted,
                             outcome_function then) {
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
      end_allocator(entry.allocator);
    spaces_.erase(i);
  }
  deliver_all(std::move(waiting), outcome);
}

// -- ranks ------------------------------------------------------------------------------------------------------------

result<allocator_actor> namespaces::make_allocator(const register_rank_request& wanted) {
  auto made = spawn_foreign_allocator(system(), options_, wanted);
  if (made)
    monitor(*made);
  return made;
}

void namespaces::end_allocator(const allocator_actor& which) {
  demonitor(which.address());
  send_exit(which, caf::exit_reason::user_shutdown);
}

caf::result<void> namespaces::register_rank(const register_rank_request& wanted) {
  const auto found = spaces_.find(wanted.space);
  if (found == spaces_.end())
    return to_caf(error{errc::unknown_namespace, "no such namespace; create it first"});
  auto& space = found->second;
  if (space.own)
    return register_own(space, wanted);
  if (!space.removing.empty())
    return to_caf(error{errc::busy, "namespace '" + space.name + "' is being removed"});
  if (wanted.slots == 0 || wanted.slots > options_.max_slots)
    return to_caf(error{errc::out_of_range, "a rank has 1 to " + std::to_string(options_.max_slots) +
                                                " pages; asked for were " + std::to_string(wanted.slots)});
  if (space.ranks.contains(wanted.rank))
    return register_again(space, wanted);
  auto made = make_allocator(wanted);
  if (!made)
    return to_caf(made.error());
  auto promise = make_response_promise();
  space.ranks[wanted.rank] = {
      wanted.slots, std::move(*made), fresh_incarnation(), rank_entry::phase::under_way, {promise}};
  register_at_shards(wanted);
  return promise;
}

caf::result<void> namespaces::register_own(const space_entry& space, const register_rank_request& wanted) const {
  const auto known = space.ranks.find(wanted.rank);
  if (known == space.ranks.end())
    return to_caf(error{errc::out_of_range, "namespace '" + space.name + "' is one of the config's, where it has " +
                                                std::to_string(space.ranks.size()) + " ranks, from 0 on"});
  if (known->second.slots == wanted.slots)
    return caf::unit;
  return to_caf(error{errc::identity_mismatch, name_of(wanted.rank, space.name) + " has " +
                                                   std::to_string(known->second.slots) + " slots, not " +
                                                   std::to_string(wanted.slots) +
                                                   ": they come from the config (`storage.ranks`)"});
}

caf::result<void> namespaces::register_again(space_entry& space, const register_rank_request& wanted) {
  auto& known = space.ranks.at(wanted.rank);
  const bool same = known.slots == wanted.slots;
  using phase = rank_entry::phase;
  if (same && known.state == phase::registered)
    return caf::unit;
  if (known.state == phase::replacing || (!same && known.state == phase::under_way))
    return to_caf(error{errc::busy, name_of(wanted.rank, space.name) +
                                        " is being registered with another number of pages; try again in a moment"});
  auto fresh = same ? known.allocator : allocator_actor{};
  if (!same) {
    auto made = make_allocator(wanted);
    if (!made)
      return to_caf(made.error());
    fresh = std::move(*made);
  }
  auto promise = make_response_promise();
  known.waiting.push_back(promise);
  if (!same)
    replace(wanted, fresh);
  else if (std::exchange(known.state, phase::under_way) == phase::half_known)
    register_at_shards(wanted);
  return promise;
}

void namespaces::tell_shards(const register_rank_request& wanted, answers_function then) {
  const auto& entry = entry_of(wanted);
  ask_all(this, options_.shards,
          add_rank_request{wanted.space, wanted.rank, entry.slots, entry.allocator, entry.incarnation},
          std::move(then));
}

void namespaces::register_at_shards(const register_rank_request& wanted) {
  tell_shards(wanted,
              [this, wanted](const error& outcome, std::size_t accepted) { registered(wanted, outcome, accepted); });
}

void namespaces::registered(const register_rank_request& wanted, const error& outcome, std::size_t accepted) {
  auto& space = spaces_.at(wanted.space);
  auto& entry = space.ranks.at(wanted.rank);
  auto waiting = std::exchange(entry.waiting, {});
  if (outcome.code == errc::ok) {
    entry.state = rank_entry::phase::registered;
    log::get("namespaces")->info("namespace '{}' has rank {} with {} pages", space.name, wanted.rank, wanted.slots);
  } else if (accepted > 0) {
    // Those that said yes may have given slots away already: no other allocator can take its place.
    entry.state = rank_entry::phase::half_known;
  } else {
    end_allocator(entry.allocator);
    space.ranks.erase(wanted.rank);
  }
  deliver_all(std::move(waiting), outcome);
}

void namespaces::replace(const register_rank_request& wanted, const allocator_actor& fresh) {
  entry_of(wanted).state = rank_entry::phase::replacing;
  ask_all(this, options_.shards, retire_rank_request{wanted.space, wanted.rank},
          [this, wanted, fresh](const error& outcome, std::size_t) {
            if (outcome.code == errc::ok)
              retired(wanted, fresh);
            else
              keep_old(wanted, fresh, outcome);
          });
}

void namespaces::retired(const register_rank_request& wanted, const allocator_actor& fresh) {
  // Shards have nothing of it any more. What they gave back may be on its way, or rest because of a late writer.
  const auto then = [this, wanted, fresh](const allocator_stats& x) {
    auto& entry = entry_of(wanted);
    if (x.free != x.total)
      return keep_old(wanted, fresh,
                      {errc::busy, name_of(wanted.rank, spaces_.at(wanted.space).name) + " has " +
                                       std::to_string(x.total - x.free) +
                                       " slots that are not free yet: try again when their time is over"});
    end_allocator(entry.allocator);
    log::get("namespaces")
        ->info("{} had {} pages and holds nothing: it is registered anew",
               name_of(wanted.rank, spaces_.at(wanted.space).name), entry.slots);
    entry.slots = wanted.slots;
    entry.allocator = fresh;
    entry.incarnation = fresh_incarnation();
    register_at_shards(wanted);
  };
  request(entry_of(wanted).allocator, caf::infinite, stats_atom_v)
      .then(then, [this, wanted, fresh](const caf::error& e) { keep_old(wanted, fresh, from_caf(e)); });
}

void namespaces::keep_old(const register_rank_request& wanted, const allocator_actor& fresh, const error& why) {
  end_allocator(fresh);
  tell_shards(wanted, [this, wanted, why](const error& outcome, std::size_t) {
    auto& entry = entry_of(wanted);
    using phase = rank_entry::phase;
    entry.state = outcome.code == errc::ok ? phase::registered : phase::half_known;
    deliver_all(std::exchange(entry.waiting, {}), why);
  });
}

void namespaces::on_exit() {
  const error gone{errc::shutting_down, "the node is ending"};
  promises_.fail_all(gone);
  for (auto& [id, space] : spaces_) {
    deliver_all(std::move(space.removing), gone);
    for (auto& [rank, entry] : space.ranks) {
      deliver_all(std::move(entry.waiting), gone);
      if (!space.own)
        end_allocator(entry.allocator);
    }
  }
  spaces_.clear();
  options_ = {};
}

} // namespace troupe
