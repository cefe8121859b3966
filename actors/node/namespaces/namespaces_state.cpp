#include "actors/node/namespaces/namespaces_state.hpp"

#include "actors/node/namespaces/shard_outcomes.hpp"

#include <algorithm>

namespace troupe {

namespace {

const error good{errc::ok, {}};

} // namespace

std::string name_of(rank_number rank, const std::string& ns) {
  return "rank " + std::to_string(rank) + " of namespace '" + ns + "'";
}

void namespaces_state::know_own(const namespace_spec& ns) {
  know(ns);
  namespaces_.at(ns.id()).own = true;
}

void namespaces_state::know(const namespace_id& id, const std::string& name) {
  auto& ns = namespaces_[id];
  // A repeated request may use another name; the first one stays, as in the shards.
  if (ns.name.empty())
    ns.name = name;
  options_.names->add(id, ns.name);
}

void namespaces_state::know(const known_allocator& x) {
  namespaces_[x.rank.ns].ranks[x.rank.rank] = {x.rank.slots, x.allocator, x.incarnation, phase::registered, {}};
}

std::string namespaces_state::rank_of(allocator_number allocator) const {
  for (const auto& [id, ns] : namespaces_)
    for (const auto& [rank, entry] : ns.ranks)
      if (entry.allocator == allocator)
        return name_of(rank, ns.name);
  return {};
}

void namespaces_state::reply(request_number request, error outcome) {
  outbox_.emplace_back(answer{request, std::move(outcome)});
}

void namespaces_state::reply_all(std::vector<request_number> waiting, const error& outcome) {
  for (const auto request : waiting)
    reply(request, outcome);
}

namespaces_state::order_number namespaces_state::expect(outcomes_function then) {
  open_orders_.emplace(++last_order_, std::move(then));
  return last_order_;
}

void namespaces_state::notified(order_number number, std::span<const error> outcomes) {
  if (const auto order = open_orders_.extract(number); !order.empty())
    order.mapped()(outcomes);
}

void namespaces_state::counted(order_number number, const result<allocator_stats>& stats) {
  if (const auto order = open_counts_.extract(number); !order.empty())
    order.mapped()(stats);
}

// -- namespaces -------------------------------------------------------------------------------------------------------

void namespaces_state::add(request_number request, const add_namespace_request& wanted) {
  const auto id = wanted.spec.id();
  if (taken_back_.contains(id))
    return reply(request, {errc::busy, "namespace '" + wanted.spec.name +
                                           "' is being removed because some shards refused it; try again in a "
                                           "moment"});
  if (const auto i = namespaces_.find(id); i != namespaces_.end()) {
    if (!i->second.removing.empty())
      return reply(request, {errc::busy, "namespace '" + i->second.name + "' is being removed; try again in a moment"});
    if (i->second.half_removed)
      return reply(request, half_removed_error(i->second.name));
  }
  const auto number = expect([this, request, id, name = wanted.spec.name](std::span<const error> outcomes) {
    auto outcome = first_error(outcomes);
    // If another request for the same namespace follows, that one's answer decides.
    if (outcome.code != errc::ok && any_good(outcomes) && !namespaces_.contains(id) && adding_.count(id) == 1)
      return take_back(request, id, name, std::move(outcome));
    adding_.erase(adding_.find(id));
    if (outcome.code == errc::ok)
      know(id, name);
    reply(request, std::move(outcome));
  });
  adding_.insert(id);
  outbox_.emplace_back(report_namespace{number, wanted});
}

void namespaces_state::take_back(request_number request, const namespace_id& id, const std::string& name, error why) {
  taken_back_.insert(id);
  const auto number = expect([this, request, id, name, why = std::move(why)](std::span<const error> outcomes) {
    taken_back_.erase(id);
    adding_.erase(adding_.find(id));
    if (const auto bad = first_error(outcomes, errc::unknown_namespace); bad.code != errc::ok)
      outbox_.emplace_back(
          note{"some shards refused namespace '" + name + "', and others failed to remove it: " + bad.text});
    reply(request, why);
  });
  outbox_.emplace_back(order_removal{number, {id, true}});
}

void namespaces_state::remove(request_number request, const remove_namespace_request& wanted) {
  const auto i = namespaces_.find(wanted.ns);
  if (i == namespaces_.end())
    return reply(request, {errc::unknown_namespace, "no such namespace"});
  auto& ns = i->second;
  if (ns.own)
    return reply(request, {errc::not_owner, "namespace '" + ns.name +
                                                "' comes from the config: to remove it, delete it from `namespaces` "
                                                "there and restart the node; to erase its keys, clear it"});
  for (const auto& [rank, entry] : ns.ranks)
    if (entry.state == phase::under_way || entry.state == phase::replacing)
      return reply(request, {errc::busy, name_of(rank, ns.name) + " is being registered; try again in a moment"});
  ns.removing.push_back(request);
  if (ns.removing.size() > 1)
    return; // shares the answer of the removal in progress
  order_all_removals(wanted.ns, wanted.force || ns.half_removed);
}

void namespaces_state::order_all_removals(const namespace_id& id, bool force) {
  const auto number =
      expect([this, id, force](std::span<const error> outcomes) { removal_ended(id, force, outcomes); });
  outbox_.emplace_back(order_removal{number, {id, force}});
}

void namespaces_state::removal_ended(const namespace_id& id, bool forced, std::span<const error> outcomes) {
  const auto i = namespaces_.find(id);
  auto& ns = i->second;
  // A shard may have removed it already in an earlier attempt that failed elsewhere.
  if (const auto bad = first_error(outcomes, errc::unknown_namespace); bad.code != errc::ok) {
    ns.half_removed = ns.half_removed || any_gone(outcomes);
    if (ns.half_removed && !forced)
      return order_all_removals(id, true);
    if (ns.half_removed)
      outbox_.emplace_back(note{half_removed_error(ns.name).text + ": " + bad.text});
    return reply_all(std::exchange(ns.removing, {}), ns.half_removed ? half_removed_error(ns.name) : bad);
  }
  auto waiting = std::exchange(ns.removing, {});
  outbox_.emplace_back(note{"namespace removed: '" + ns.name + "'"});
  for (const auto& [rank, entry] : ns.ranks)
    outbox_.emplace_back(end_allocator{entry.allocator});
  namespaces_.erase(i);
  options_.names->remove(id);
  reply_all(std::move(waiting), good);
}

// -- ranks ------------------------------------------------------------------------------------------------------------

void namespaces_state::register_rank(request_number request, const rank_order& wanted) {
  const auto found = namespaces_.find(wanted.ns);
  if (found == namespaces_.end())
    return reply(request, {errc::unknown_namespace, "no such namespace; create it first"});
  auto& ns = found->second;
  if (ns.own)
    return register_own(request, ns, wanted);
  if (!ns.removing.empty())
    return reply(request, {errc::busy, "namespace '" + ns.name + "' is being removed"});
  if (ns.half_removed)
    return reply(request, half_removed_error(ns.name));
  if (wanted.slots == 0 || wanted.slots > options_.max_slots)
    return reply(request, {errc::out_of_range, "a rank has 1 to " + std::to_string(options_.max_slots) +
                                                   " pages; requested were " + std::to_string(wanted.slots)});
  if (ns.ranks.contains(wanted.rank))
    return register_again(request, ns, wanted);
  const auto made = options_.make_allocator(wanted, ns.name, false);
  if (!made)
    return reply(request, made.error());
  ns.ranks[wanted.rank] = {wanted.slots, *made, options_.fresh(), phase::under_way, {request}};
  register_at_shards(wanted);
}

void namespaces_state::register_own(request_number request, const namespace_entry& ns, const rank_order& wanted) {
  const auto known = ns.ranks.find(wanted.rank);
  if (known == ns.ranks.end())
    return reply(request, {errc::out_of_range, "namespace '" + ns.name + "' comes from the config, where it has " +
                                                   std::to_string(ns.ranks.size()) + " ranks, from 0 on"});
  if (known->second.slots == wanted.slots)
    return reply(request);
  reply(request, {errc::identity_mismatch,
                  name_of(wanted.rank, ns.name) + " has " + std::to_string(known->second.slots) + " slots, not " +
                      std::to_string(wanted.slots) + ": they come from the config (`storage.ranks`)"});
}

void namespaces_state::register_again(request_number request, namespace_entry& ns, const rank_order& wanted) {
  auto& known = ns.ranks.at(wanted.rank);
  const bool same = known.slots == wanted.slots;
  if (same && known.state == phase::registered)
    return reply(request);
  if (known.state == phase::replacing || (!same && known.state == phase::under_way))
    return reply(request, {errc::busy, name_of(wanted.rank, ns.name) +
                                           " is being registered with another number of pages; try again in a moment"});
  if (same) {
    known.waiting.push_back(request);
    if (std::exchange(known.state, phase::under_way) == phase::half_known)
      register_at_shards(wanted);
    return;
  }
  const auto made = options_.make_allocator(wanted, ns.name, true);
  if (!made)
    return reply(request, made.error());
  known.waiting.push_back(request);
  replace(wanted, *made);
}

void namespaces_state::notify_shards(const rank_order& wanted, outcomes_function then) {
  const auto& entry = entry_of(wanted);
  outbox_.emplace_back(report_rank{expect(std::move(then)),
                                   {{wanted.ns, wanted.rank, entry.slots}, entry.allocator, entry.incarnation}});
}

void namespaces_state::register_at_shards(const rank_order& wanted) {
  notify_shards(wanted, [this, wanted](std::span<const error> outcomes) { registered(wanted, outcomes); });
}

void namespaces_state::registered(const rank_order& wanted, std::span<const error> outcomes) {
  auto& ns = namespaces_.at(wanted.ns);
  auto& entry = ns.ranks.at(wanted.rank);
  auto waiting = std::exchange(entry.waiting, {});
  const auto outcome = first_error(outcomes);
  if (outcome.code == errc::ok) {
    entry.state = phase::registered;
    outbox_.emplace_back(
        note{name_of(wanted.rank, ns.name) + " registered with " + std::to_string(wanted.slots) + " pages"});
  } else if (any_good(outcomes) || entry.replaces) {
    // Shards that accepted may have granted slots already, so no other allocator can replace this one. The same holds
    // for an allocator that rests because writers of the earlier registration may be late.
    entry.state = phase::half_known;
  } else {
    outbox_.emplace_back(end_allocator{entry.allocator});
    ns.ranks.erase(wanted.rank);
  }
  reply_all(std::move(waiting), outcome);
}

void namespaces_state::replace(const rank_order& wanted, allocator_number fresh) {
  entry_of(wanted).state = phase::replacing;
  const auto number = expect([this, wanted, fresh](std::span<const error> outcomes) {
    if (const auto outcome = first_error(outcomes); outcome.code != errc::ok)
      keep_old(wanted, fresh, outcome);
    else
      retired(wanted, fresh);
  });
  outbox_.emplace_back(order_retirement{number, wanted.ns, wanted.rank});
}

void namespaces_state::retired(const rank_order& wanted, allocator_number fresh) {
  open_counts_.emplace(++last_order_, [this, wanted, fresh](const result<allocator_stats>& slots) {
    if (slots)
      replaced(wanted, fresh, *slots);
    else
      keep_old(wanted, fresh, slots.error());
  });
  outbox_.emplace_back(count_slots{last_order_, entry_of(wanted).allocator});
}

void namespaces_state::replaced(const rank_order& wanted, allocator_number fresh, const allocator_stats& old_slots) {
  auto& entry = entry_of(wanted);
  const auto waiting = old_slots.total - std::min(old_slots.total, old_slots.free);
  auto text = "rank registered again: " + name_of_rank(wanted) + " had " + std::to_string(entry.slots) +
              " pages, has now " + std::to_string(wanted.slots);
  if (waiting > 0) {
    text += "; writers or readers of " + std::to_string(waiting) +
            " old pages may be late, so no page is granted until their promises expire";
    outbox_.emplace_back(rest_allocator{fresh});
  }
  outbox_.emplace_back(end_allocator{entry.allocator});
  outbox_.emplace_back(note{std::move(text)});
  entry.slots = wanted.slots;
  entry.allocator = fresh;
  entry.incarnation = options_.fresh();
  entry.replaces = true;
  register_at_shards(wanted);
}

void namespaces_state::keep_old(const rank_order& wanted, allocator_number fresh, const error& why) {
  outbox_.emplace_back(end_allocator{fresh});
  notify_shards(wanted, [this, wanted, why](std::span<const error> outcomes) {
    auto& entry = entry_of(wanted);
    entry.state = first_error(outcomes).code == errc::ok ? phase::registered : phase::half_known;
    reply_all(std::exchange(entry.waiting, {}), why);
  });
}

} // namespace troupe
