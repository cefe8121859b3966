#pragma once

#include "base/namespace_spec.hpp"
#include "tests/simulation/random.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::simulation {

/// The parameters that a seed decides for a world in which namespaces are created and removed.
struct namespace_parameters {
  /// The namespaces of clients. Some share a name.
  std::vector<namespace_spec> namespaces;
  std::uint32_t shards = 1;
  std::uint32_t clients = 1;
  std::uint32_t sessions = 1;
  std::uint32_t keys = 8;

  /// `registry.durability`.
  std::string durability = "relaxed";
  bool write_eagerly = true;
  bool second_hit = false;
  std::uint32_t prefetch_pages = 0;
  std::uint32_t extents = 2;
  std::uint64_t extent_bytes = 0;
  std::uint64_t disk_bytes = 0;

  /// Some pages are encoded, and lie in frames for encoded pages. What share of them changes as often as that.
  bool encodings = false;
  duration encoding_period{};
  /// Slab files are sparse; only with encodings.
  bool sparse = false;

  duration io_time{};
  duration sync_time{};
  duration copy_time{};
  duration think_time{};
  duration lease{};
  duration reservation{};
  duration patience{};
  duration process_hang{};
  duration removal_interval{};
  duration nemesis_interval{};

  /// Some removals are forced.
  bool forced = false;
  bool kill_client = false;
  bool kill_node = false;
  bool leave = false;
  /// The node does not know the processes of some clients, which may die without ever reporting that they are quiesced.
  bool unknown_processes = false;
  /// The index refuses batches at times, as when its queue is full.
  bool refusing_store = false;
  ppm disk_full = 0;
  ppm write_error = 0;
  ppm read_error = 0;

  bool durable() const noexcept { return durability != "none"; }
  bool strict() const noexcept { return durability == "strict"; }
  /// One line.
  std::string describe() const;
};

namespace_parameters make_namespace_parameters(random_source random, const namespace_spec& like);

} // namespace troupe::simulation
