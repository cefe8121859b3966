#pragma once

#include <functional>
#include <memory>

namespace troupe::http {

/// What the handlers of one io thread leave until the thread has handled the requests that had arrived. Made, called
/// and destroyed by that thread.
class request_round {
public:
  virtual ~request_round() = default;

  /// Called before the thread waits, before a request with a large body, and after `worker::round_time` at the latest,
  /// but for the step that is under way then. Answers that come meanwhile are sent before the thread waits. May be
  /// called without a request before it.
  virtual void end() noexcept = 0;
};

using request_round_maker = std::function<std::unique_ptr<request_round>()>;

} // namespace troupe::http
