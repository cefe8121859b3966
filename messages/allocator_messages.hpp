#pragma once

#include "base/identifiers.hpp"
#include "messages/packed.hpp"

#include <cstdint>

/// What registry shards say to the allocator of one (namespace, rank).

namespace troupe {

/// As many slots as can be had now or after eviction, up to what was asked for.
struct take_reply {
  packed<slot_ref> slots;
};

/// How far a shard has come with giving slots back to one rank. Sent along with the slots, and with the answer to an
/// eviction, so that a later one replaces an earlier one, whichever got lost.
struct release_progress {
  static constexpr std::uint32_t no_shard = 0xffffffff;

  std::uint32_t shard = no_shard;
  /// Live slots that the shard has released to the rank since it began. An evicted key releases one on each rank that
  /// has a page of it. Slots of reservations, and of pages that were found bad, do not count.
  std::uint64_t released = 0;
  /// Keys of the namespace with a page that the shard has left.
  std::uint64_t keys = 0;

  friend bool operator==(const release_progress&, const release_progress&) = default;
};

/// A batch of slots to publish (reserved → live), abort (reserved → quarantined → free) or release (live →
/// quarantined → free).
struct slot_batch {
  packed<slot_ref> slots;
  /// When they are aborted or released: their writers may go on beyond the time that they were promised. Counts where
  /// no io worker can say that they do not; there, slots that need no rest are free at once.
  bool rest = true;
  /// With released slots: these are counted in it.
  release_progress progress{};
};

/// One code per slot, as `errc`: ok, out_of_range, stale (another's or already given back).
struct slot_results {
  packed<std::uint8_t> results;
};

/// Slots by state; the four add up to `total` at every quiet moment.
struct allocator_stats {
  std::uint64_t total = 0;
  std::uint64_t free = 0;
  std::uint64_t reserved = 0;
  std::uint64_t live = 0;
  std::uint64_t quarantined = 0;
  /// Requests that named a slot the caller did not hold.
  std::uint64_t refused = 0;
};

} // namespace troupe
