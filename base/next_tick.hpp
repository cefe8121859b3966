#pragma once

#include "base/clock.hpp"

namespace troupe {

/// When the next of the ticks comes that an actor sends to itself.
///
/// A tick can't be called back. One that an earlier one has overtaken still comes, and leads to no further one: if each
/// that comes were followed by another, there would be more of them each time that something is due sooner, for ever.
class next_tick {
public:
  /// Something is due then: true where a tick is to be sent for it, as none comes by then.
  bool plan(timestamp due) noexcept {
    if (due >= at_)
      return false;
    at_ = due;
    return true;
  }

  /// A tick has come.
  void came(timestamp now) noexcept {
    if (now >= at_)
      at_ = timestamp::max();
  }

private:
  timestamp at_ = timestamp::max();
};

} // namespace troupe
