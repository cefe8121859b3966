#pragma once

#include "base/identifiers.hpp"
#include "messages/packed.hpp"

#include <cstdint>

/// Requests of registry shards to the allocator of one (namespace, rank).

namespace troupe {

/// The slots that are available now or after eviction, up to the requested number.
struct take_reply {
  packed<slot_ref> slots;
};

/// A shard's progress in giving slots back to one rank. Sent along with the slots, and with the answer to an eviction,
/// so that a later one replaces an earlier one if that was lost.
struct release_progress {
  static constexpr std::uint32_t no_shard = 0xffffffff;

  std::uint32_t shard = no_shard;
  /// Live slots that the shard has released to the rank since it began. An evicted key releases one on each rank that
  /// has a page of it. Slots of reservations and of damaged pages do not count.
  std::uint64_t released = 0;
  /// Keys of the namespace with a page that remain in the shard.
  std::uint64_t keys = 0;

  friend bool operator==(const release_progress&, const release_progress&) = default;
};

/// A batch of slots to publish (reserved → live), abort (reserved → quarantined → free) or release (live →
/// quarantined → free).
struct slot_batch {
  packed<slot_ref> slots;
  /// For aborted or released slots: whether their writers may continue beyond their deadline, so that the slots are
  /// quarantined. Ignored where an io worker can exclude that: such slots are free at once.
  bool rest = true;
  /// With released slots: the progress that includes them.
  release_progress progress{};
};

/// One code per slot, as `errc`: ok, out_of_range, stale (belongs to another key, or was given back already).
struct slot_results {
  packed<std::uint8_t> results;
};

/// Slots by state; the four add up to `total` between two requests.
struct allocator_stats {
  std::uint64_t total = 0;
  std::uint64_t free = 0;
  std::uint64_t reserved = 0;
  std::uint64_t live = 0;
  std::uint64_t quarantined = 0;
  /// Requests for a slot that the caller did not hold.
  std::uint64_t refused = 0;
  /// The part of the total beyond the slab file, for pages that are in memory only.
  std::uint64_t beyond_slab = 0;
};

} // namespace troupe
