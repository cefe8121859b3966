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
    if (told_ == 0 || now - began_ >= interval_) {
      began_ = now;
      told_ = 0;
    }
    if (told_ < lines_) {
      ++told_;
      return true;
    }
    ++untold_;
    return false;
  }

  /// The number of events that were not logged, once their interval has ended; each is counted once.
  std::uint64_t take_untold(timestamp now) noexcept {
    if (untold_ == 0 || now - began_ < interval_)
      return 0;
    const auto n = untold_;
    untold_ = 0;
    return n;
  }

private:
  std::uint32_t lines_;
  duration interval_;
  timestamp began_{};
  std::uint32_t told_ = 0;
  std::uint64_t untold_ = 0;
};

} // namespace troupe
