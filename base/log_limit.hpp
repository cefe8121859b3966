#pragma once

#include "base/clock.hpp"

#include <cstdint>

namespace troupe {

/// Limits repeated log lines: the first few of each interval are logged one by one, the others are counted and reported
/// in one line. Time is an argument and must not run backwards.
class log_limit {
public:
  log_limit(std::uint32_t lines, duration interval) : lines_(lines), interval_(interval) {}

  /// Counts an event; returns true if it is to be logged.
  bool tell(timestamp now) noexcept {
    if (notified_ == 0 || now - began_ >= interval_) {
      began_ = now;
      notified_ = 0;
    }
    if (notified_ < lines_) {
      ++notified_;
      return true;
    }
    ++suppressed_;
    return false;
  }

  /// The number of events that were not logged, once their interval has ended; each is counted once.
  std::uint64_t take_suppressed(timestamp now) noexcept {
    if (suppressed_ == 0 || now - began_ < interval_)
      return 0;
    const auto n = suppressed_;
    suppressed_ = 0;
    return n;
  }

private:
  std::uint32_t lines_;
  duration interval_;
  timestamp began_{};
  std::uint32_t notified_ = 0;
  std::uint64_t suppressed_ = 0;
};

} // namespace troupe
