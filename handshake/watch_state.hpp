#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace troupe::handshake {

struct watch_options {
  /// Interval at which a watch is renewed: a directory that has dropped it does not say so.
  duration renew = std::chrono::seconds(15);
  /// Time limit for connecting, and for the answer to a watch.
  duration patience = std::chrono::seconds(5);
  /// Pause after a failure; doubles with each.
  duration backoff_min = std::chrono::milliseconds(100);
  duration backoff_max = std::chrono::seconds(5);
};

/// The rules by which a client keeps a connection to the directory, and a watch on it. A connection ends with
/// the node or the network connection, and is reopened; a watch ends with its connection, or when the directory says
/// that it does not exist, or does not answer, and is renewed. Plain C++, time is an argument.
///
/// One operation is in progress at a time, and `take_order` returns it once.
class watch_state {
public:
  using number = std::uint64_t;

  enum class step : std::uint8_t {
    /// To be followed by `opened`.
    open,
    /// To be followed by `watched`.
    watch,
  };
  struct order {
    number id = 0;
    step what = step::open;
  };

  explicit watch_state(const watch_options& options) : options_(options) {}

  /// The result of opening a connection. False: it came too late, and is not used.
  bool opened(number id, bool is_open, timestamp now);
  /// The connection of this order has ended. False: it was replaced already, or there is none.
  bool connection_lost(number id, timestamp now);
  /// The number of the watch. limit_exceeded: there are too many; after any other error, a new connection is needed.
  /// True: the previous connection is not used any more.
  bool watched(number id, const result<number>& answer, timestamp now);
  /// The directory does not have this watch.
  void watch_lost(number watch, timestamp now);
  /// True: as with `watched`.
  bool advance(timestamp now);

  std::optional<timestamp> next_deadline() const { return at_; }
  std::optional<order> take_order() { return std::exchange(order_, std::nullopt); }
  /// The order that opened the connection; 0: there is none.
  number connection() const noexcept { return connection_; }
  bool is_watching() const noexcept { return watch_.has_value(); }

private:
  void begin(step what, timestamp now);
  void fail(timestamp now);
  void lose_connection(timestamp now);

  const watch_options options_;
  number last_ = 0;
  number connection_ = 0;
  std::optional<number> watch_;
  /// The operation in progress; 0: none until `at_`.
  number under_way_ = 0;
  /// When the operation in progress has failed, or when the next step begins.
  timestamp at_{};
  duration pause_{};
  std::optional<order> order_;
};

} // namespace troupe::handshake
