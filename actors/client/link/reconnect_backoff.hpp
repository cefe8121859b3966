#pragma once

#include "base/clock.hpp"

#include <algorithm>
#include <cstdint>
#include <random>

namespace troupe {

/// The pause before the next attempt to reach a node. It doubles each time between two bounds, with jitter, so that
/// clients that lost the same node do not all reconnect at once.
class reconnect_backoff {
public:
  reconnect_backoff(duration shortest, duration longest, std::uint64_t seed)
      : shortest_(shortest), longest_(std::max(shortest, longest)), next_(shortest), random_(seed) {}

  /// The time to wait now: between half of the current step and the whole of it.
  duration next() {
    const auto step = next_;
    next_ = std::min(longest_, 2 * next_);
    const auto half = step / 2;
    return half + duration(std::uniform_int_distribution<duration::rep>(0, (step - half).count())(random_));
  }

  /// Call this after a success.
  void reset() { next_ = shortest_; }

private:
  duration shortest_;
  duration longest_;
  duration next_;
  std::mt19937_64 random_;
};

} // namespace troupe
