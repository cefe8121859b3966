#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::http::slots {

/// Is told how many items were refused, and why. Called from any thread; short, and does not throw.
using refusal_counter = std::function<void(errc why, std::uint64_t count)>;

/// Counts what was refused of requests whose answer has no room to say so, and logs it, now and then. Thread-safe.
class refusals {
public:
  /// One line at most in this time.
  static constexpr duration log_interval = std::chrono::seconds{10};

  /// `counter` may be empty.
  refusals(std::string_view component, refusal_counter counter)
      : log_(log::get(component)), counter_(std::move(counter)) {}

  /// `codes` is one `errc` per item; those that are not ok are refused. `what` is for the log: "confirmations of rank
  /// 3".
  void note(std::string_view what, std::span<const std::uint8_t> codes);
  /// The same, for items that were not even asked for.
  void note(std::string_view what, std::uint64_t count, errc why);

private:
  void write(std::string_view what, std::uint64_t count, errc first);

  const log::logger log_;
  const refusal_counter counter_;
  std::mutex mutex_;
  timestamp quiet_until_{};
  /// Refused since the last line.
  std::uint64_t unlogged_ = 0;
};

} // namespace troupe::http::slots
