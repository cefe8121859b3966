#pragma once

#include <atomic>
#include <cstdint>

/// The shared state in which a test orders faults of the 3FS stand-in and reads its counters: a file below the mount
/// point that the test, the library and the daemon map.

namespace troupe::test::stand_in {

inline constexpr const char* control_name = ".control";
inline constexpr const char* alive_name = ".alive";
inline constexpr const char* files_name = ".files";

struct control {
  // -- faults; 0: none

  /// Results of a batch come in another order, and batches of one ring overtake each other.
  std::atomic<std::uint32_t> reorder;
  /// Each n-th read, or write, moves half of its bytes.
  std::atomic<std::uint32_t> short_every;
  /// Each n-th transfer fails with this errno.
  std::atomic<std::uint32_t> fail_every;
  std::atomic<std::int32_t> fail_with;
  /// The daemon takes transfers and does nothing about them for as long.
  std::atomic<std::uint32_t> stalled;
  /// The library says that the ring is full.
  std::atomic<std::uint32_t> ring_full;
  std::atomic<std::uint32_t> refuse_iovs;
  std::atomic<std::uint32_t> refuse_rings;
  /// A result that belongs to no transfer comes before each n-th one.
  std::atomic<std::uint32_t> stray_every;
  /// Descriptors that were registered with a daemon are of no use once that has ended, as those of a file system that
  /// was mounted again.
  std::atomic<std::uint32_t> lose_descriptors;
  /// Each transfer takes so long.
  std::atomic<std::uint32_t> delay_microseconds;

  // -- counters

  std::atomic<std::uint64_t> prepared;
  std::atomic<std::uint64_t> submits;
  std::atomic<std::uint64_t> reads;
  std::atomic<std::uint64_t> writes;
  std::atomic<std::uint64_t> copied_bytes;
  std::atomic<std::uint64_t> largest_batch;
  std::atomic<std::uint64_t> batches;
  /// Rings that were asked for, and those that the daemon has now.
  std::atomic<std::uint64_t> rings_asked;
  std::atomic<std::uint64_t> rings_live;
  std::atomic<std::uint64_t> iovs_created;
  std::atomic<std::uint64_t> iovs_wrapped;
  /// Rings whose io_depth or timeout was not 0.
  std::atomic<std::uint64_t> odd_rings;
  /// Reads on rings that take a hole for zeroes.
  std::atomic<std::uint64_t> reads_of_holes_allowed;
  /// Transfers across the edge of a block, or outside of their memory: refused.
  std::atomic<std::uint64_t> across_blocks;
  std::atomic<std::uint64_t> out_of_bounds;
  std::atomic<std::uint64_t> registered;
  std::atomic<std::uint64_t> deregistered;
  /// Waits that could have lasted beyond the call.
  std::atomic<std::uint64_t> blocking_waits;
  /// The descriptor table of the library when it was loaded.
  std::atomic<std::uint64_t> descriptor_table;
  /// The number of daemons so far.
  std::atomic<std::uint64_t> daemons;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

} // namespace troupe::test::stand_in
