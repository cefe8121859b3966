#pragma once

#include "base/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::replay {

/// Microseconds.
struct latency_summary {
  double p50 = 0;
  double p99 = 0;
  double max = 0;
};

/// Keeps every sample (8 MB for a million), so that percentiles are exact. One thread.
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

/// The time during which at least one of several overlapping activities was under way: what bytes are divided by to
/// get their bandwidth when transfers overlap each other and the rest of the replay. Told by several of them in
/// messages, beginnings and ends may come a little out of order: no time counts twice. One thread.
class busy_time {
public:
  void begin(timestamp now) noexcept;

  /// Ends one of those that began; ignored where none is under way.
  void end(timestamp now) noexcept;

  /// Up to now, including what is under way.
  duration total(timestamp now) const noexcept;

private:
  std::uint64_t active_ = 0;
  timestamp since_{};
  /// The latest end of all.
  timestamp until_ = timestamp::min();
  duration total_{};
};

} // namespace troupe::replay
