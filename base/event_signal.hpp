#pragma once

#include <cerrno>
#include <cstdint>
#include <unistd.h>

namespace troupe {

/// Wakes the thread that polls this eventfd. Thread-safe, and safe in a signal handler except for errno. Failures do
/// not matter: an eventfd whose counter is full is readable anyway.
inline void signal_event(int eventfd) noexcept {
  const std::uint64_t one = 1;
  while (::write(eventfd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

/// Clears all signals so far. The eventfd must not block; one without a signal counts as cleared.
inline void clear_event(int eventfd) noexcept {
  std::uint64_t signals = 0;
  while (::read(eventfd, &signals, sizeof signals) < 0 && errno == EINTR) {
  }
}

} // namespace troupe
