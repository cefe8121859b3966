#pragma once

#include "base/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::http {

/// A rate limit of requests per second, as a token bucket: it holds the requests of one second, and is full at first.
/// So that many requests may arrive at once; later ones have to wait. Time is an argument, and does not go back.
class request_bucket {
public:
  /// At least 1.
  explicit request_bucket(std::uint32_t per_second) noexcept
      : interval_(duration{std::chrono::seconds{1}} / per_second) {}

  /// Takes one request. If there is none: the time until there is one.
  std::optional<duration> take(timestamp now) noexcept;

  bool is_full(timestamp now) const noexcept { return full_at_ <= now; }

private:
  /// The time to refill one request.
  duration interval_;
  /// When the bucket will be full without further requests.
  timestamp full_at_ = timestamp::min();
};

/// The buckets of all callers. Thread-safe.
class request_rates {
public:
  /// Beyond this number, full buckets are removed, which is the state of a caller without one.
  static constexpr std::size_t many = 1024;

  /// 0: no limit.
  explicit request_rates(std::uint32_t per_second) noexcept : per_second_(per_second) {}

  bool is_limited() const noexcept { return per_second_ > 0; }
  /// Takes one request of the caller with this identity; else the time that it has to wait.
  std::optional<duration> take(std::string_view identity, timestamp now);

  /// For tests.
  std::size_t size() const;

private:
  const std::uint32_t per_second_;
  mutable std::mutex mutex_;
  std::map<std::string, request_bucket, std::less<>> buckets_;
};

} // namespace troupe::http
