#pragma once

#include "base/clock.hpp"

#include <chrono>
#include <functional>
#include <memory>

namespace troupe::http {

/// What the handlers of one io thread leave until the thread has handled the requests that had arrived. Made, called
/// and destroyed by that thread.
class request_round {
public:
  /// What waits for the end of a round waits no longer, but for what the thread is doing then.
  static constexpr duration longest = std::chrono::microseconds{100};

  virtual ~request_round() = default;

  /// Called before the thread waits, before a request with a large body, and when something has waited for `longest`.
  /// Answers that come meanwhile are sent before the thread waits. May be called without a request before it.
  virtual void end() noexcept = 0;
  /// When the first thing that waits for the end began to; `timestamp::max()` if nothing does.
  virtual timestamp waiting_since() const noexcept = 0;
};

using request_round_maker = std::function<std::unique_ptr<request_round>()>;

} // namespace troupe::http
