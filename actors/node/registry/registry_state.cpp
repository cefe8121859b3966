#include "actors/node/registry/registry_state.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace troupe {

registry_state::registry_state(const registry_options& options)
    : namespaces_(options), groups_(namespaces_), leases_(namespaces_), writes_(namespaces_),
      administration_(namespaces_, leases_, writes_), restoring_(namespaces_), descriptions_(namespaces_),
      tables_(options.memory) {
  assert(options.shard < options.shard_count);
}

result<remove_namespace_reply> registry_state::remove_namespace(const remove_namespace_request& request,
                                                                timestamp now) {
  if (auto begun = administration_.begin_removal(request); !begun)
    return tl::unexpected<error>(std::move(begun.error()));
  tick(now);
  return administration_.go_on_removing(request.ns);
}

bool registry_state::removal_waits(const namespace_id& ns, timestamp now) const {
  return !leases_.has_due(now) && !writes_.has_due(now) && administration_.waits_for_slots(ns);
}

result<void> registry_state::count_children(const children_request& request, timestamp) {
  if (request.changes.size() > child_changes_max)
    return namespaces_.refuse({errc::limit_exceeded, std::to_string(request.changes.size()) +
                                                         " changes of children in one request; at most " +
                                                         std::to_string(child_changes_max)});
  // The other shards may not know of the removal yet, so this is not an error.
  if (administration_.is_being_removed(request.ns))
    return {};
  const auto ns = namespaces_.find_namespace(request.ns);
  if (!ns)
    return namespaces_.refuse(ns.error());
  bool all = true;
  for (const auto& change : request.changes)
    all = !change.parent.is_null() && ns->keys.add_children(change) && all;
  if (!all)
    return namespaces_.refuse(
        {errc::invalid_argument, "a change names no parent, or counts more children than there can be"});
  return {};
}

result<evict_reply> registry_state::evict(const evict_request& request, timestamp now) {
  const auto ns = namespaces_.find_rank(request.ns, request.rank);
  if (!ns)
    return namespaces_.refuse(ns.error());
  auto& keys = ns->keys;
  const auto released = keys.progress_of(request.rank).released;
  const auto unseen = released - std::min(request.seen, released);
  evict_reply reply;
  if (unseen > 0) {
    // The request repeats one whose result the allocator has not counted. It gets that result and asks again if it
    // needs more. Evicting more here would be too much, because a rank that knows those slots asks other shards for the
    // same number.
    reply.slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(unseen, request.wanted));
    reply.more = true;
  } else {
    namespaces_.advance_history(now);
    const auto looks = std::min<std::uint64_t>(std::uint64_t{4} * request.wanted + 64, options().max_eviction_looks);
    reply = keys.evict({request.rank, request.wanted, static_cast<std::uint32_t>(looks), request.force},
                       namespaces_.clock().now(now));
  }
  reply.progress = keys.progress_of(request.rank);
  return reply;
}

bool registry_state::owner_died(owner_id owner, timestamp now) {
  leases_.doom(owner);
  writes_.doom(owner);
  return tick(now);
}

void registry_state::account() {
  if (!options().memory)
    return;
  tables_.set(leases_.lease_bytes() + writes_.resident_bytes());
  namespaces_.for_each([](std::uint32_t, key_space& ns) { ns.account(); });
}

bool registry_state::tick(timestamp now) {
  namespaces_.advance_history(now);
  account();
  descriptions_.look_at_tiers();
  std::size_t left = options().tick_work;
  if (!leases_.end_due(now, left))
    return true;
  writes_.end_due(now, left);
  bool more = leases_.has_due(now) || writes_.has_due(now);
  const auto coarse = namespaces_.clock().now(now);
  namespaces_.for_each([&](std::uint32_t, key_space& ns) {
    left -= ns.release_due(coarse, left);
    more = more || ns.next_release().value_or(coarse_never) <= coarse;
  });
  return more;
}

std::optional<timestamp> registry_state::next_deadline() const {
  std::optional<timestamp> first;
  const auto consider = [&](std::optional<timestamp> at) {
    if (at && (!first || *at < *first))
      first = at;
  };
  consider(leases_.next_deadline());
  consider(writes_.next_deadline());
  namespaces_.for_each([&](std::uint32_t, const key_space& ns) {
    if (const auto next = ns.next_release())
      consider(namespaces_.clock().begin(*next));
  });
  return first;
}

registry_outbox registry_state::take_outbox() {
  groups_.follow();
  auto out = administration_.take_left_over();
  namespaces_.for_each([&](std::uint32_t, key_space& ns) { ns.drain_into(out); });
  return out;
}

registry_stats registry_state::stats() const {
  registry_stats s;
  s.evicted_keys = administration_.evicted();
  namespaces_.for_each([&](std::uint32_t, const key_space& ns) {
    s.keys += ns.keys();
    s.complete_keys += ns.complete_keys();
    s.evicted_keys += ns.evicted_keys();
    s.evict_first_keys += ns.evict_first_keys();
    s.withheld_slots += ns.withheld_slots();
    s.resident_bytes += ns.resident_bytes();
  });
  s.leases = leases_.size();
  s.reservations = writes_.pages();
  s.invalidated_in_memory = writes_.invalidated(page_tier::memory);
  s.invalidated_on_disk = writes_.invalidated(page_tier::disk);
  s.invalidated_pages = s.invalidated_in_memory + s.invalidated_on_disk + writes_.invalidated(page_tier::unknown);
  s.reclaimed_pages = writes_.reclaimed();
  s.erased_pages = administration_.erased();
  s.expired_leases = leases_.expired();
  s.expired_reservations = writes_.expired();
  s.refused = namespaces_.refused();
  s.resident_bytes += leases_.resident_bytes() + writes_.resident_bytes();
  if (const auto* const history = namespaces_.history())
    s.resident_bytes += history->resident_bytes();
  return s;
}

std::uint64_t registry_state::keys() const {
  std::uint64_t n = 0;
  namespaces_.for_each([&](std::uint32_t, const key_space& ns) { n += ns.keys(); });
  return n;
}

std::string registry_state::namespace_name(const namespace_id& id) const {
  const auto* ns = namespaces_.find(id);
  return ns != nullptr ? ns->spec().name : std::string();
}

bool registry_state::is_complete(const namespace_id& id, const key_digest& key) const {
  const auto* ns = namespaces_.find(id);
  if (ns == nullptr)
    return false;
  const auto entry = ns->table().find(key);
  return entry != no_entry && ns->complete(entry);
}

} // namespace troupe
