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

/// Receives how many items were refused, and why. Called from any thread; short, and does not throw.
using refusal_counter = std::function<void(errc why, std::uint64_t count)>;

/// Counts refused items of requests whose answer cannot report them, and logs them at a limited rate. Thread-safe.
class refusals {
public:
  /// At most one line in this time.
  static constexpr duration log_interval = std::chrono::seconds{10};

  /// `counter` may be empty.
  refusals(std::string_view component, refusal_counter counter)
      : log_(log::get(component)), counter_(std::move(counter)) {}

  /// Notes the refused items: `codes` is one `errc` per item. `what` is for the log: "confirmations of rank 3".
  void note(std::string_view what, std::span<const std::uint8_t> codes);
  /// The same, for items that were not passed on.
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
