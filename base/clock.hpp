#pragma once

#include <chrono>

namespace troupe {

/// Time as the rules see it: always an argument, never read inside a state class. Monotonic.
using timestamp = std::chrono::steady_clock::time_point;

/// A span of time. Deadlines cross nodes as durations, since clocks of two machines share no zero.
using duration = std::chrono::nanoseconds;

} // namespace troupe
