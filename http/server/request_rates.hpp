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

/// How many requests may come in a second. A bucket that holds as many as one second brings, and is full at first: so
/// that many may come at once, and after that each has to wait until its time has come. Time is an argument, and does
/// not go back.
class request_bucket {
public:
  /// At least 1.
  explicit request_bucket(std::uint32_t per_second) noexcept
      : interval_(duration{std::chrono::seconds{1}} / per_second) {}

  /// Takes one request out. Where there is none: how long until there is.
  std::optional<duration> take(timestamp now) noexcept;

  bool is_full(timestamp now) const noexcept { return full_at_ <= now; }

private:
  /// What one request takes to come back.
  duration interval_;
  /// When the bucket will be full, if nobody takes anything.
  timestamp full_at_ = timestamp::min();
};

/// The buckets of all callers. Thread-safe.
class request_rates {
public:
  /// Buckets beyond these make those go that are full, which is what a caller has without one.
  static constexpr std::size_t many = 1024;

  /// 0: no limit, for anybody.
  explicit request_rates(std::uint32_t per_second) noexcept : per_second_(per_second) {}

  bool is_limited() const noexcept { return per_second_ > 0; }
  /// Takes one request of the caller with this identity; else how long it has to wait.
  std::optional<duration> take(std::string_view identity, timestamp now);

  /// For tests.
  std::size_t size() const;

private:
  const std::uint32_t per_second_;
  mutable std::mutex mutex_;
  std::map<std::string, request_bucket, std::less<>> buckets_;
};

} // namespace troupe::http
