#include "http/explain/unix_clock.hpp"

namespace troupe {

namespace {

/// A larger difference is not one of rates: the clock was set.
constexpr auto set_at_least = std::chrono::milliseconds(50);

} // namespace

unix_clock::reading unix_clock::read() noexcept {
  reading out;
  out.before = std::chrono::steady_clock::now();
  out.wall = std::chrono::system_clock::now().time_since_epoch();
  out.after = std::chrono::steady_clock::now();
  return out;
}

unix_clock::unix_time unix_clock::of(timestamp at, const reading& now) {
  const std::lock_guard guard(mutex_);
  // The reading was taken between these two.
  const auto least = now.wall - now.after.time_since_epoch();
  const auto most = now.wall - now.before.time_since_epoch();
  if (!origin_ || *origin_ < least - set_at_least || *origin_ > most + set_at_least)
    origin_ = most;
  return *origin_ + at.time_since_epoch();
}

} // namespace troupe
