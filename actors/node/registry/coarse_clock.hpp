#pragma once

#include "base/clock.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace troupe {

/// Time in quarters of a second since a shard's first request, beginning with 1, in 29 bits. This lasts four years;
/// after that nothing counts as protected any more. 0 is before all times.
using coarse_time = std::uint32_t;

/// Later than every time.
inline constexpr coarse_time coarse_never = 0xffffffff;

/// A converter from timestamps to coarse time. The first conversion sets its beginning.
class coarse_clock {
public:
  static constexpr duration tick = std::chrono::milliseconds(250);
  static constexpr coarse_time last = (coarse_time{1} << 29U) - 1;

  /// The tick that contains `t`.
  coarse_time now(timestamp t) { return number(t, duration::zero()); }

  /// The first tick that begins at or after `t` + `by`.
  coarse_time after(timestamp t, duration by) {
    now(t); // sets the beginning to `t` and not to `t` + `by`
    return number(later(t, by), tick - duration(1));
  }

  /// The first tick that begins when `by` has passed since the clock's beginning, which may be in the future.
  static coarse_time since_beginning(duration by) {
    const auto ticks = by / tick + (by % tick > duration::zero() ? 1 : 0);
    return static_cast<coarse_time>(std::min<std::int64_t>(ticks + 1, last));
  }

  /// When the tick begins.
  timestamp begin(coarse_time x) const {
    return beginning_ && x > 0 ? later(*beginning_, tick * (x - 1)) : timestamp::min();
  }

private:
  coarse_time number(timestamp t, duration round) {
    if (!beginning_)
      beginning_ = t;
    if (t <= *beginning_)
      return 1;
    const auto ticks = (duration(t - *beginning_) / tick) + (duration(t - *beginning_) % tick + round) / tick;
    return static_cast<coarse_time>(std::min<std::int64_t>(ticks + 1, last));
  }

  std::optional<timestamp> beginning_;
};

} // namespace troupe
