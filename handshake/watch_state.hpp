#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace troupe::handshake {

struct watch_options {
  /// A watch that stands is asked for again after this: a directory that has let go of it says nothing.
  duration renew = std::chrono::seconds(15);
  /// How long opening a door, and the answer to a watch, may take.
  duration patience = std::chrono::seconds(5);
  /// Pause after a failure; doubles with each.
  duration backoff_min = std::chrono::milliseconds(100);
  duration backoff_max = std::chrono::seconds(5);
};

/// The rules by which a client keeps a door to the directory, and a watch behind it. A door ends with the node, or with
/// the connection to it, and a new one is opened; a watch ends with its door, or when the directory says that it has
/// none such, or says nothing, and is asked for again. Plain C++, time is an argument.
///
/// One thing is under way at a time, and `take_order` has it once.
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

  /// The door that was ordered is open, or is not. False: it came too late, and is not used.
  bool opened(number id, bool is_open, timestamp now);
  /// The door that this order has opened is one no more. False: there is another one already, or none.
  bool door_lost(number id, timestamp now);
  /// The number of the watch. limit_exceeded: there are too many; after any other error, another door is needed. True:
  /// the door that there was is not used any more.
  bool watched(number id, const result<number>& answer, timestamp now);
  /// The directory has no such watch.
  void watch_lost(number watch, timestamp now);
  /// True: as with `watched`.
  bool advance(timestamp now);

  std::optional<timestamp> next_deadline() const { return at_; }
  std::optional<order> take_order() { return std::exchange(order_, std::nullopt); }
  /// The order that has opened the door; 0: there is none.
  number door() const noexcept { return door_; }
  bool is_watching() const noexcept { return watch_.has_value(); }

private:
  void begin(step what, timestamp now);
  void fail(timestamp now);
  void lose_door(timestamp now);

  const watch_options options_;
  number last_ = 0;
  number door_ = 0;
  std::optional<number> watch_;
  /// What is under way; 0: nothing, until `at_`.
  number under_way_ = 0;
  /// When what is under way has failed, or when the next step begins.
  timestamp at_{};
  duration pause_{};
  std::optional<order> order_;
};

} // namespace troupe::handshake
