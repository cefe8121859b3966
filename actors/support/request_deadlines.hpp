#pragma once

#include "messages/messages.hpp"

#include <deque>

namespace troupe {

/// A list of time limits of an actor's requests, checked when the actor ticks.
///
/// A limit that is given to `request` costs an entry in the clock of the actor system, and another one to cancel it:
/// two wake-ups of the clock's thread for each request, which is more than the request itself. Here it costs a few
/// bytes. The price is that a limit is noticed at the next tick after it.
///
/// All requests of one actor have the same limit, so they expire in the order in which they were sent.
class request_deadlines {
public:
  explicit request_deadlines(duration limit) : limit_(limit) {}

  duration limit() const noexcept { return limit_; }

  /// The actor must tick while this is false.
  bool empty() const noexcept { return open_.empty(); }

  /// Adds the request `sent`, which `request(…, caf::infinite, …)` returned, and returns it for `then`.
  template <class Handle>
  Handle watch(Handle sent, timestamp now) {
    open_.push_back({later(now, limit_), sent.id()});
    return sent;
  }

  /// Fails requests whose time has expired, as CAF would: with `sec::request_timeout`, by message. The message is
  /// ignored for a request that was answered in time, and so is an answer that comes later.
  void expire(caf::local_actor& self, timestamp now) {
    for (; !open_.empty() && open_.front().at <= now; open_.pop_front())
      self.eq_impl(open_.front().id, nullptr, self.context(), caf::make_error(caf::sec::request_timeout));
  }

private:
  struct open_request {
    timestamp at;
    caf::message_id id;
  };

  duration limit_;
  std::deque<open_request> open_;
};

} // namespace troupe
