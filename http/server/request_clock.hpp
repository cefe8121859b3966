#pragma once

#include "base/clock.hpp"

#include <chrono>
#include <optional>
#include <utility>

namespace troupe::http {

/// The times of the requests of one connection: when bytes arrived, and when each request was handled and answered.
/// Requests that arrive together have one arrival, and each but the first has waited for the one before it. For one
/// thread.
class request_clock {
public:
  /// The clock as it was last read, a few microseconds ago: each reading takes about as long as finding a route.
  timestamp latest() const noexcept { return latest_; }
  timestamp arrival() const noexcept { return arrival_; }
  timestamp handled() const noexcept { return handled_; }

  /// Reads the clock.
  timestamp read() noexcept { return latest_ = std::chrono::steady_clock::now(); }

  /// More bytes have arrived.
  void bytes_arrived() noexcept {
    arrival_ = read();
    has_just_arrived_ = true;
  }

  /// A request that is complete is handled now.
  void begin_handling() noexcept {
    handled_ = std::exchange(has_just_arrived_, false) ? arrival_ : std::chrono::steady_clock::now();
  }
  /// A request is answered before it is complete.
  void refuse() noexcept { handled_ = arrival_; }

  /// The connection waits for a first byte, or for more of a request that has begun. Returns the time from which the
  /// wait counts: the one for more counts from the first byte, so that occasional bytes do not extend it.
  timestamp begin_wait(bool has_begun) noexcept {
    if (!has_begun) {
      first_byte_.reset();
      return latest_;
    }
    if (!first_byte_)
      first_byte_ = latest_;
    return *first_byte_;
  }
  /// The request has been answered, so the next one begins.
  void next_request() noexcept { first_byte_.reset(); }

private:
  std::optional<timestamp> first_byte_;
  timestamp arrival_{};
  timestamp handled_{};
  timestamp latest_{};
  /// No request from the last read has been handled yet.
  bool has_just_arrived_ = false;
};

} // namespace troupe::http
