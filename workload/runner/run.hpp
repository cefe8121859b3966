#pragma once

#include "base/clock.hpp"
#include "workload/replay/report.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace troupe::replay {

/// Who has started a run: hears how far it is, and may want it to end. Only the thread that runs calls it.
class run_observer {
public:
  run_observer() = default;
  run_observer(const run_observer&) = delete;
  run_observer& operator=(const run_observer&) = delete;
  virtual ~run_observer() = default;

  /// What is done before the first request, which may take a while.
  virtual void preparing(std::string_view what) = 0;

  /// Requests begin: from here to the end, `wants_end` is asked at least as often as `interval` says.
  virtual void begins() = 0;
  virtual std::chrono::milliseconds interval() const = 0;
  virtual void progress(const replay_progress& x, bool last) = 0;

  /// Whether no further request is to begin.
  virtual bool wants_end() = 0;
};

/// What every run is told.
struct run_options {
  /// Requests under way at once.
  std::uint32_t concurrency = 4;
  /// So many requests are played before those that count.
  std::uint64_t warm_up = 0;
  /// Other keys for the same trace.
  std::uint64_t salt = 0;
  /// The GPU that holds the KV cache; host memory if not given.
  std::optional<int> gpu;
  /// How long a lease is asked for, and how long a transfer may take.
  duration lease{};
  duration task_deadline{};
  /// How long to wait for a node that does not answer.
  duration patience{};
};

} // namespace troupe::replay
