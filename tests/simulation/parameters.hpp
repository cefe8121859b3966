#pragma once

#include "base/namespace_spec.hpp"
#include "tests/simulation/random.hpp"

#include <cstdint>
#include <string>

namespace troupe::simulation {

/// The fault rates of a disk, per transfer.
struct disk_faults {
  ppm read_error = 0;
  ppm write_error = 0;
  ppm lost_write = 0;
  ppm misdirected_write = 0;
  ppm flipped_read = 0;
  /// Ends long after its deadline.
  ppm hang = 0;
};

/// How long pages stay in memory alone.
enum class tier : std::uint8_t {
  /// Only until they are reported as stored.
  strict,
  /// As short as can be.
  eager,
  /// Until memory runs short.
  on_eviction,
  /// For ever: there is no disk.
  memory_only,
};

/// The memory of a node.
struct memory_parameters {
  tier kind = tier::eager;
  std::uint32_t extents_per_rank = 1;
  /// The extents of all ranks: they may be fewer than all could use, and are then reassigned.
  std::uint32_t extents = 1;
  /// How long a rank may try to empty an extent, and how long an assigned extent stays its own.
  duration give_patience{};
  duration keep_at_least{};
  /// By how much pages of one rank have to be older than those of another one that wants its memory.
  duration age_margin{};
  std::uint32_t frames_per_extent = 8;
  /// Not all of an extent is frames.
  bool uneven_extents = false;
  std::uint32_t waiting_max = 1024;
  std::uint32_t reads_max = 256;
  std::uint32_t writes_max = 64;
  duration write_retry{};
  /// Pages are written only when they are asked for again.
  bool second_hit = false;
  /// And kept so long before they are dropped.
  duration commit_time{};
  /// Pages that are read ahead at most, at once, and that may wait for it.
  std::uint32_t prefetch_pages = 0;
  std::uint32_t prefetch_reads_max = 32;
  std::uint32_t prefetch_waiting_max = 1024;
  /// The host has no memory for an extent, when one is asked for.
  ppm short_host = 0;
  /// The pause between two scrubbed pages of each disk, and between two passes; 0: no scrub.
  duration scrub_interval{};
  duration scrub_pause{};
};

/// Events of processes, links and slabs.
struct nemesis_faults {
  bool cut = false;
  bool pause_client = false;
  bool pause_node = false;
  bool kill_client = false;
  bool leave = false;
  bool kill_node = false;
  bool drain_node = false;
  bool flip = false;
  bool truncate = false;
  /// Requests erase keys, which may be leased and read.
  bool erase = false;
  /// A client writes into the arena where it should not.
  bool corrupt_memory = false;
  /// A process that is killed stays for a while, and what its devices were copying still lands.
  bool hang_process = false;
  /// A client names pins of others.
  bool stray_words = false;
};

/// All that a seed decides before the first step. Each seed switches faults on or off and picks sizes and times, so
/// that no fault is always masked by another one, and no limit is always out of reach.
struct parameters {
  namespace_spec ns;
  std::uint32_t ranks = 1;
  std::uint32_t shards = 1;
  std::uint32_t clients = 1;
  /// Page slots per rank: places on its disk, and further ones for pages that are in memory only.
  std::uint32_t slots = 16;
  std::uint32_t memory_slots = 0;
  std::uint32_t low_watermark = 0;
  std::uint32_t high_watermark = 0;
  memory_parameters memory;
  /// Pages that a client may have pinned per rank, for loads and saves together.
  std::uint32_t pinned_pages = 8;
  /// The blocks of a client's KV cache, per rank.
  std::uint32_t blocks = 32;
  std::uint32_t batch_pages = 4;
  std::uint32_t batch_keys = 32;
  std::uint32_t tasks_max = 16;
  std::uint32_t lookups_max = 16;
  std::uint32_t sessions = 2;
  std::uint32_t parked_max = 1024;
  std::uint32_t leases_max = 1U << 16;
  std::uint32_t leases_per_owner = 1U << 14;
  std::uint32_t reserved_pages_max = 1U << 20;
  std::uint32_t tick_work = 1U << 13;
  std::uint32_t eviction_looks = 1U << 14;

  /// The tree that all sequences of keys are paths of.
  std::uint32_t branches = 2;
  std::uint32_t depth = 12;

  /// Engines cancel saves and loads now and then.
  bool cancels = false;

  duration local_delay{};
  duration network_delay{};
  duration disk_time{};
  duration hang_time{};
  /// The duration of a copy between a client's device and the arena.
  duration copy_time{};
  /// Until a killed process has ended.
  duration process_hang{};
  duration think_time{};
  duration request_timeout{};
  duration io_deadline{};
  duration task_deadline_min{};
  duration task_deadline_max{};
  duration lease_max{};
  duration reservation_max{};
  duration notice_min{};
  duration notice_max{};
  duration nemesis_interval{};

  disk_faults disk;
  nemesis_faults nemesis;
  /// Another node of a cluster finds pages here and keeps copies, and some of the saved pages are transient copies.
  bool other_node = false;

  bool bytes_at_risk() const noexcept;
  /// Correctly written pages may be corrupted afterwards.
  bool disks_lie() const noexcept;
  /// A key that is leased may lose its pages.
  bool pages_at_risk() const noexcept {
    return bytes_at_risk() || nemesis.erase || memory.second_hit || (memory_slots > 0 && memory_moves());
  }
  /// Ranks may lose memory to other ranks: also where there is enough for all, a rank may have had more than its part.
  bool memory_moves() const noexcept { return ranks > 1; }
  std::uint32_t all_slots() const noexcept { return slots + memory_slots; }
  /// One line.
  std::string describe() const;
};

parameters make_parameters(random_source& random);

} // namespace troupe::simulation
