#pragma once

#include "base/clock.hpp"

#include <vector>

namespace troupe {

/// When the ticks come that an actor has sent to itself.
///
/// A tick can't be called back. Where one is sent that comes before it, it comes all the same, and does for what is due
/// then; if another one were sent for that each time, there would be more of them for as long as the actor lives. So
/// one is sent only where it is earlier than all that are on their way: no more of them than there were things due
/// sooner and sooner.
class next_tick {
public:
  /// Something is due then: true where a tick is to be sent for it, as none comes by then.
  bool plan(timestamp due) {
    if (due == timestamp::max() || (!coming_.empty() && due >= coming_.back()))
      return false;
    coming_.push_back(due);
    return true;
  }

  /// A tick has come. One that somebody else has sent counts for nothing.
  void came(timestamp now) {
    while (!coming_.empty() && coming_.back() <= now)
      coming_.pop_back();
  }

private:
  /// The next one last.
  std::vector<timestamp> coming_;
};

} // namespace troupe
