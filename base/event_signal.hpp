#pragma once

#include <cerrno>
#include <cstdint>
#include <unistd.h>

namespace troupe {

/// Wakes who polls this eventfd. Thread-safe, and safe in a signal handler but for errno. Cannot fail in a way that
/// matters: the counter of an eventfd that takes no more is not zero, so it wakes its reader anyway.
inline void signal_event(int eventfd) noexcept {
  const std::uint64_t one = 1;
  while (::write(eventfd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

/// Takes back all signals so far. Of an eventfd that does not block; one without a signal is as good as cleared.
inline void clear_event(int eventfd) noexcept {
  std::uint64_t signals = 0;
  while (::read(eventfd, &signals, sizeof signals) < 0 && errno == EINTR) {
  }
}

} // namespace troupe
