#pragma once

#include <chrono>

namespace troupe {

/// Time as the rules see it: always an argument, never read inside a state class. Monotonic.
using timestamp = std::chrono::steady_clock::time_point;

/// A span of time. Deadlines cross nodes as durations, since clocks of two machines share no zero.
using duration = std::chrono::nanoseconds;

/// `from + by`, or the beginning or end of time where that is out of range: spans of time come from other processes.
constexpr timestamp later(timestamp from, duration by) noexcept {
  if (by > duration::zero() && from > timestamp::max() - by)
    return timestamp::max();
  if (by < duration::zero() && from < timestamp::min() - by)
    return timestamp::min();
  return from + by;
}

} // namespace troupe
