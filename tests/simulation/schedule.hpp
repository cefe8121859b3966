#pragma once

#include "base/clock.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace troupe::simulation {

/// The planned events and their times. It is the only clock: time stands still while an event runs and jumps to the
/// next one afterwards. Events of the same time happen in the order they were planned.
class schedule {
public:
  /// Time begins here, and not at zero, so that "long ago" can be said.
  static constexpr timestamp start = timestamp(std::chrono::hours(1));

  timestamp now() const noexcept { return now_; }
  bool empty() const noexcept { return heap_.empty(); }
  timestamp next_time() const noexcept { return heap_.front().at; }

  void at(timestamp when, std::function<void()> run);
  void after(duration delay, std::function<void()> run) { at(now_ + delay, std::move(run)); }

  /// Runs the next event. False if it turned out to have nothing to do, see `idle` and `postpone`.
  bool run_next();

  /// Lets time pass in which nothing happens.
  void wait_until(timestamp when) noexcept { now_ = std::max(now_, when); }

  /// Said by an event: nothing came of it.
  void idle() noexcept { idle_ = true; }

  /// Said by an event that has done nothing yet: it shall happen later. It keeps its place among those planned before
  /// and after it.
  void postpone(timestamp until) noexcept { postponed_ = until; }

private:
  struct event {
    timestamp at;
    std::uint64_t number = 0;
    std::function<void()> run;
  };

  static bool later(const event& a, const event& b) noexcept {
    return a.at != b.at ? a.at > b.at : a.number > b.number;
  }

  void push(event what);

  std::vector<event> heap_;
  timestamp now_ = start;
  std::uint64_t planned_ = 0;
  bool idle_ = false;
  std::optional<timestamp> postponed_;
};

} // namespace troupe::simulation
