#pragma once

#include "base/namespace_spec.hpp"
#include "tests/simulation/random.hpp"

#include <cstdint>
#include <string>

namespace troupe::simulation {

/// The parameters that a seed decides for a world of slot clients. Small pools and short protection times, so that
/// slots are used again all the time.
struct slot_parameters {
  namespace_spec ns;
  std::uint32_t ranks = 1;
  std::uint32_t shards = 1;
  std::uint32_t clients = 1;
  std::uint32_t sessions = 1;
  std::uint32_t slots = 8;
  std::uint32_t low_watermark = 0;
  std::uint32_t high_watermark = 0;
  std::uint32_t branches = 2;
  std::uint32_t depth = 6;

  duration protect{};
  duration reservation{};
  duration rest{};
  duration children_hold{};
  duration sync_time{};
  duration io_time{};
  duration think_time{};
  duration request_timeout{};
  duration nemesis_interval{};

  bool untrue_parents = false;
  bool late_writers = false;
  bool failing_writes = false;
  bool erasing = false;
  bool cut = false;
  bool kill_client = false;
  bool kill_node = false;
  /// Engines restart with another number of pages.
  bool new_sizes = false;
  /// The store refuses batches at times, as when its queue is full.
  bool refusing_store = false;
  /// Some runs leave the index aside, or find the namespace's name taken.
  bool other_runs = false;

  /// The longest time of protection.
  duration promised() const noexcept { return protect > reservation ? protect : reservation; }
  /// One line.
  std::string describe() const;
};

slot_parameters make_slot_parameters(random_source random);

} // namespace troupe::simulation
