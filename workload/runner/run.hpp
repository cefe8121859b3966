#pragma once

#include "base/clock.hpp"
#include "workload/replay/pattern.hpp"
#include "workload/replay/report.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace troupe::replay {

/// Observes the progress of a run, and may request its end. Only the thread of the run calls it.
class run_observer {
public:
  run_observer() = default;
  run_observer(const run_observer&) = delete;
  run_observer& operator=(const run_observer&) = delete;
  virtual ~run_observer() = default;

  /// Announces work before the first request, which may take a while.
  virtual void preparing(std::string_view what) = 0;

  /// Requests begin: from here to the end, `wants_end` is called at least once per `interval`.
  virtual void begins() = 0;
  virtual std::chrono::milliseconds interval() const = 0;
  virtual void progress(const replay_progress& x, bool last) = 0;

  /// Whether no further request should begin.
  virtual bool wants_end() = 0;
};

/// The options of every run.
struct run_options {
  /// The number of concurrent requests.
  std::uint32_t concurrency = 4;
  /// The number of requests before the measured ones.
  std::uint64_t warm_up = 0;
  /// Changes all keys of the trace.
  std::uint64_t salt = 0;
  /// The GPU that holds the KV cache; host memory if not given.
  std::optional<int> gpu;
  /// What blocks are filled with; only for runs without a model of an engine.
  page_values values = page_values::random;
  /// The requested length of leases, and the time limit of a transfer.
  duration lease{};
  duration task_deadline{};
  /// How long to wait for a node that does not respond.
  duration patience{};
};

} // namespace troupe::replay
