#include "actors/node/registry/registry_state.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace troupe {

registry_state::registry_state(const registry_options& options)
    : spaces_(options), leases_(spaces_), writes_(spaces_), administration_(spaces_, leases_, writes_),
      restoring_(spaces_), tables_(options.memory) {
  assert(options.shard < options.shard_count);
}

result<remove_namespace_reply> registry_state::remove_namespace(const remove_namespace_request& request,
                                                                timestamp now) {
  if (auto begun = administration_.begin_removal(request); !begun)
    return tl::unexpected<error>(std::move(begun.error()));
  tick(now);
  return administration_.go_on_removing(request.space);
}

bool registry_state::removal_waits(const namespace_id& space, timestamp now) const {
  return !leases_.has_due(now) && !writes_.has_due(now) && administration_.waits_for_slots(space);
}

result<void> registry_state::count_children(const children_request& request, timestamp) {
  if (request.changes.size() > child_changes_max)
    return spaces_.refuse({errc::limit_exceeded, std::to_string(request.changes.size()) +
                                                     " changes of children in one request; at most " +
                                                     std::to_string(child_changes_max)});
  // The other shards may not know of the removal yet, so this is not an error.
  if (administration_.is_being_removed(request.space))
    return {};
  const auto space = spaces_.find_space(request.space);
  if (!space)
    return spaces_.refuse(space.error());
  bool all = true;
  for (const auto& change : request.changes)
    all = !change.parent.is_null() && space->keys.add_children(change.parent, change.delta) && all;
  if (!all)
    return spaces_.refuse(
        {errc::invalid_argument, "a change names no parent, or counts more children than there can be"});
  return {};
}

result<evict_reply> registry_state::evict(const evict_request& request, timestamp now) {
  const auto space = spaces_.find_rank(request.space, request.rank);
  if (!space)
    return spaces_.refuse(space.error());
  auto& keys = space->keys;
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
    const auto looks = std::min<std::uint64_t>(std::uint64_t{4} * request.wanted + 64, options().max_eviction_looks);
    reply = keys.evict({request.rank, request.wanted, static_cast<std::uint32_t>(looks), request.force},
                       spaces_.clock().now(now));
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
  spaces_.for_each([](std::uint32_t, key_space& space) { space.account(); });
}

bool registry_state::tick(timestamp now) {
  account();
  std::size_t left = options().tick_work;
  if (!leases_.end_due(now, left))
    return true;
  writes_.end_due(now, left);
  bool more = leases_.has_due(now) || writes_.has_due(now);
  const auto coarse = spaces_.clock().now(now);
  spaces_.for_each([&](std::uint32_t, key_space& space) {
    left -= space.release_due(coarse, left);
    more = more || space.next_release().value_or(coarse_never) <= coarse;
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
  spaces_.for_each([&](std::uint32_t, const key_space& space) {
    if (const auto next = space.next_release())
      consider(spaces_.clock().begin(*next));
  });
  return first;
}

registry_outbox registry_state::take_outbox() {
  auto out = administration_.take_left_over();
  spaces_.for_each([&](std::uint32_t, key_space& space) { space.drain_into(out); });
  changes_ += out.changes.size();
  out.sequence = changes_;
  return out;
}

registry_stats registry_state::stats() const {
  registry_stats s;
  s.evicted_keys = administration_.evicted();
  spaces_.for_each([&](std::uint32_t, const key_space& space) {
    s.keys += space.keys();
    s.complete_keys += space.complete_keys();
    s.evicted_keys += space.evicted_keys();
    s.evict_first_keys += space.evict_first_keys();
    s.withheld_slots += space.withheld_slots();
    s.resident_bytes += space.resident_bytes();
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
  s.refused = spaces_.refused();
  s.resident_bytes += leases_.resident_bytes() + writes_.resident_bytes();
  return s;
}

std::uint64_t registry_state::keys() const {
  std::uint64_t n = 0;
  spaces_.for_each([&](std::uint32_t, const key_space& space) { n += space.keys(); });
  return n;
}

std::string registry_state::space_name(const namespace_id& id) const {
  const auto* space = spaces_.find(id);
  return space != nullptr ? space->spec().name : std::string();
}

bool registry_state::is_complete(const namespace_id& id, const key_digest& key) const {
  const auto* space = spaces_.find(id);
  if (space == nullptr)
    return false;
  const auto entry = space->table().find(key);
  return entry != no_entry && space->complete(entry);
}

} // namespace troupe
