#include "actors/node/io_worker/scrub_pace.hpp"

#include <algorithm>
#include <chrono>

namespace troupe {

scrub_pace::scrub_pace(std::uint64_t bytes_per_second)
    : bytes_per_second_(static_cast<double>(std::max<std::uint64_t>(bytes_per_second, 1))) {}

void scrub_pace::join() {
  const std::lock_guard guard(mutex_);
  ++joined_;
}

void scrub_pace::leave() {
  const std::lock_guard guard(mutex_);
  --joined_;
}

timestamp scrub_pace::take(std::uint64_t bytes, timestamp now) {
  const std::lock_guard guard(mutex_);
  const auto begin = std::max(free_at_, now);
  free_at_ = begin + time_of(bytes, 1);
  return begin;
}

duration scrub_pace::rest(std::uint64_t bytes) const {
  const std::lock_guard guard(mutex_);
  return time_of(bytes, std::max<std::size_t>(joined_, 1));
}

duration scrub_pace::time_of(std::uint64_t bytes, std::size_t slabs) const {
  const auto seconds = static_cast<double>(bytes) * static_cast<double>(slabs) / bytes_per_second_;
  // Large pages at a pace of one byte per second would overflow a duration, so the time is bounded.
  constexpr double most = 365.0 * 24 * 3600;
  return std::chrono::duration_cast<duration>(std::chrono::duration<double>(std::min(seconds, most)));
}

} // namespace troupe
