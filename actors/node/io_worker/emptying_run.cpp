#include "actors/node/io_worker/emptying_run.hpp"

namespace troupe {

void emptying_run::begin(bool must, timestamp deadline) noexcept {
  must_ = must;
  deadline_ = deadline;
  paused_ = true;
}

void emptying_run::begin_step() noexcept {
  paused_ = false;
  needs_writes_ = false;
}

errc emptying_run::obstacle(bool short_of_memory, timestamp now) const noexcept {
  if (now >= deadline_)
    return errc::timeout;
  return short_of_memory && !must_ ? errc::busy : errc::ok;
}

void emptying_run::end(const emptying_end& x) noexcept {
  begin_step();
  end_ = x;
}

} // namespace troupe
