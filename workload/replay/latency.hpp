#pragma once

#include "base/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::replay {

/// In microseconds.
struct latency_summary {
  double p50 = 0;
  double p99 = 0;
  double max = 0;
};

/// All samples of a latency (8 MB for a million), so that percentiles are exact. One thread.
class latency_samples {
public:
  /// A negative time counts as 0.
  void record(duration d);

  std::size_t size() const noexcept { return samples_.size(); }

  /// The nearest-rank percentile: the smallest sample that at least `percent` % of all samples do not exceed. `percent`
  /// is clamped to 0 … 100; 0 gives the smallest sample. Without samples: 0.
  duration percentile(double percent) const;

  /// p50, p99 and the maximum; zeros without samples.
  latency_summary summary() const;

private:
  /// Nanoseconds; sorted when asked.
  mutable std::vector<duration> samples_;
  mutable bool sorted_ = true;
};

/// The time during which at least one of several overlapping activities was in progress, by which bytes are divided to
/// get their bandwidth. Beginnings and ends that several actors report by messages may arrive slightly out of order: no
/// time counts twice. One thread.
class busy_time {
public:
  void begin(timestamp now) noexcept;

  /// Ends one activity; ignored where none is in progress.
  void end(timestamp now) noexcept;

  /// The total up to now, including activities in progress.
  duration total(timestamp now) const noexcept;

private:
  std::uint64_t active_ = 0;
  timestamp since_{};
  /// The latest end so far.
  timestamp until_ = timestamp::min();
  duration total_{};
};

} // namespace troupe::replay
