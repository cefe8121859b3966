#pragma once

#include "base/clock.hpp"

#include <vector>

namespace troupe {

/// Tracks the ticks that an actor has scheduled for itself.
///
/// A tick cannot be cancelled. When an earlier one is scheduled, the later one still arrives and serves what is due
/// then; if each of these scheduled another tick, their number would grow for the life of the actor. So a tick is
/// scheduled only if it is earlier than all pending ones, which bounds their number.
class next_tick {
public:
  /// Plans for an event at `due`; returns true if a tick has to be scheduled, since none arrives by then.
  bool plan(timestamp due) {
    if (due == timestamp::max() || (!coming_.empty() && due >= coming_.back()))
      return false;
    coming_.push_back(due);
    return true;
  }

  /// A tick has arrived. Ticks from other senders are ignored.
  void came(timestamp now) {
    while (!coming_.empty() && coming_.back() <= now)
      coming_.pop_back();
  }

private:
  /// The pending ticks, the next one last.
  std::vector<timestamp> coming_;
};

} // namespace troupe
