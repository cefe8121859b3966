#pragma once

#include "connector/scheduler/scheduler_state.hpp"
#include "connector/worker/worker_state.hpp"
#include "workload/engine_model/options.hpp"
#include "workload/engine_model/request.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::engine_simulation {

/// Time in the simulation has no finer unit.
inline constexpr duration tick = std::chrono::microseconds(1);

/// The faults of single steps. Each is drawn with the rate of the window that is open.
enum class fault : std::uint8_t {
  lost_answer,
  late_answer,
  failed_read,
  failed_write,
  corrupt_page,
  eviction,
  full,
  task_timeout,
};
inline constexpr std::size_t fault_count = 8;

/// Something that happens to the engine or to the cache. A run is its actions: any of them can be left out.
struct action {
  enum class kind : std::uint8_t {
    /// A request arrives.
    add,
    /// It is aborted, if it is still there.
    abort,
    /// A fault happens with `rate` until step `until`.
    disturb,
    /// The cache's node dies, and is back in step `until`.
    kill_node,
    /// All pages that are not held are evicted.
    evict_all,
    /// The engine's weights have changed.
    reset_cache,
    /// The engine is to forget its own prefixes.
    reset_prefix_cache,
  };

  kind what = kind::add;
  std::uint32_t step = 0;
  std::uint32_t until = 0;
  engine::request_spec request;
  /// Whom to abort.
  std::string id;
  fault which = fault::lost_answer;
  std::uint32_t rate_ppm = 0;
  /// The node forgets its pages.
  bool loses_index = false;
  /// A reset preempts all running requests.
  bool reset_running = false;

  std::string describe() const;
};

/// The speed and the capacity of the cache.
struct cache_shape {
  /// Keys.
  std::uint32_t capacity = 64;
  /// The duration of one phase of a task or lookup, in ticks.
  std::uint32_t delay_max = 40;
  /// Between two hooks, in ticks.
  std::uint32_t hook_max = 4;
};

/// All that a seed decides.
struct plan {
  std::uint64_t seed = 0;
  engine::engine_options engine;
  connector::scheduler_options scheduler;
  connector::worker_options worker;
  cache_shape cache;
  /// Different pages of a key, and workers that have the same.
  std::uint32_t ranks = 1;
  std::uint32_t workers_per_rank = 1;
  /// How much later than the forward pass a GPU writes, at most, in ticks; 0: in host memory, at once.
  std::uint32_t late_writes_max = 0;
  /// No faults, and leases that last: every load succeeds.
  bool calm = false;
  /// At the end the workers are shut down while they are busy, and the engine continues without them.
  bool shut_down = false;
  /// Without it the engine stands alone, and has to be right as well.
  bool connector = true;
  /// Properties that are not checked, ",P1a,P1b,": to see whether others find the same.
  std::string ignored;
  std::uint32_t steps = 200;
  std::vector<action> actions;

  std::uint32_t workers() const noexcept { return ranks * workers_per_rank; }
  std::uint32_t page_tokens() const noexcept { return engine.block_tokens * worker.blocks_per_page; }
  std::string describe() const;
};

plan make_plan(std::uint64_t seed, std::uint32_t steps);

} // namespace troupe::engine_simulation
