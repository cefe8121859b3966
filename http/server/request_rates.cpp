#include "http/server/request_rates.hpp"

#include <algorithm>
#include <chrono>

namespace troupe::http {

std::optional<duration> request_bucket::take(timestamp now) noexcept {
  const auto from = std::max(full_at_, now);
  // If the bucket is full in less than a second from now, it contains a whole request.
  const auto missing = from + interval_ - (now + std::chrono::seconds{1});
  if (missing > duration::zero())
    return missing;
  full_at_ = from + interval_;
  return std::nullopt;
}

std::optional<duration> request_rates::take(std::string_view identity, timestamp now) {
  if (!is_limited())
    return std::nullopt;
  const std::lock_guard guard{mutex_};
  auto found = buckets_.find(identity);
  if (found == buckets_.end()) {
    // Otherwise callers whose tokens were removed would stay for ever.
    if (buckets_.size() >= many)
      std::erase_if(buckets_, [now](const auto& x) { return x.second.is_full(now); });
    found = buckets_.emplace(identity, per_second_).first;
  }
  return found->second.take(now);
}

std::size_t request_rates::size() const {
  const std::lock_guard guard{mutex_};
  return buckets_.size();
}

} // namespace troupe::http
