#pragma once

#include <chrono>

namespace troupe {

/// Time for state classes: always an argument, never read inside. Monotonic.
using timestamp = std::chrono::steady_clock::time_point;

/// A span of time. Deadlines are sent between nodes as durations, since the clocks of two machines have different
/// origins.
using duration = std::chrono::nanoseconds;

/// `from + by`, clamped to the range of time: durations may come from other processes.
constexpr timestamp later(timestamp from, duration by) noexcept {
  if (by > duration::zero() && from > timestamp::max() - by)
    return timestamp::max();
  if (by < duration::zero() && from < timestamp::min() - by)
    return timestamp::min();
  return from + by;
}

} // namespace troupe
