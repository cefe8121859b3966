#pragma once

#include "connector/live/engine_halves.hpp"
#include "workload/replay/engine_report.hpp"
#include "workload/replay/trace.hpp"
#include "workload/runner/run.hpp"
#include "workload/runner/slab_damage.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace troupe::replay {

/// The injected faults of an engine: requests are aborted, and blocks are scarce so that requests are preempted.
struct engine_faults {
  std::uint64_t seed = 0;
  /// Damages the node's pages on disk; null for no damage.
  std::unique_ptr<slab_damage> damage;
};

struct engine_run_options {
  run_options common;
  /// Blocks of KV cache on each worker; enough for all concurrent requests if not given.
  std::optional<std::uint32_t> kv_blocks;
  std::uint32_t blocks_per_page = 1;
  std::optional<engine_faults> faults;
  /// Loads are part of the step that runs their request.
  bool synchronous_loads = false;
};

struct engine_outcome {
  engine_report report;
  /// A description of the first wrong byte.
  std::string first_wrong;
  /// The whole trace was played.
  bool whole = true;
};

/// Plays a trace on a model of an engine, whose connector's halves use the node of `connection` in its namespace
/// `ns`. All KV that a forward pass reads is compared byte by byte. Errors: the reason why it cannot begin.
result<engine_outcome> play_through_engine(caf::actor_system& system, const connector::half_connection& connection,
                                           const namespace_spec& ns, const trace& what, engine_run_options options,
                                           run_observer& observer);

} // namespace troupe::replay
