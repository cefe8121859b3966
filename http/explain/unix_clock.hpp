#pragma once

#include "base/clock.hpp"

#include <chrono>
#include <mutex>
#include <optional>

namespace troupe {

/// Unix time of points of the steady clock, for people and for other programs. The same point has the same time in each
/// answer, until the system clock is set. Thread-safe.
class unix_clock {
public:
  using unix_time = std::chrono::nanoseconds;

  /// A reading of the system clock between two of the steady clock.
  struct reading {
    timestamp before{};
    unix_time wall{};
    timestamp after{};
  };

  static reading read() noexcept;

  /// The time of `at`, given a reading of now. The first reading, and the first one after the system clock was set, say
  /// what time it is; all others only show that it was not set.
  unix_time of(timestamp at, const reading& now);

private:
  std::mutex mutex_;
  /// Unix time of the steady clock's origin. Two readings never give exactly the same, and if each answer had its own,
  /// the time of a lookup would change by a millisecond from answer to answer.
  std::optional<unix_time> origin_;
};

} // namespace troupe
