#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/serial_executor.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe::connector {

/// Whether another attempt may succeed, because the node is only unreachable.
inline bool is_absence(const error& why) noexcept {
  return why.code == errc::unreachable || why.code == errc::timeout || why.code == errc::shutting_down;
}

/// Whether another attempt may succeed, because this host or the node's lacks a resource for now, such as threads.
inline bool may_pass(const error& why) noexcept {
  return is_absence(why) || why.code == errc::io_error || why.code == errc::no_space || why.code == errc::no_memory;
}

/// Repeats attempts to attach in a thread of its own, until one succeeds or fails permanently. The engine's thread
/// starts it, stops it and reads its state.
class background_attach {
public:
  background_attach() = default;
  background_attach(const background_attach&) = delete;
  background_attach& operator=(const background_attach&) = delete;
  ~background_attach() { stop(); }

  /// The thread calls `attempt`, which has to return within about a second. `on_refused` is called once with the error,
  /// if there will be no more attempts. Errors: `io_error` where no more threads can be created.
  result<void> start(error why_absent, std::function<result<void>()> attempt,
                     std::function<void(const error&)> on_refused) {
    stop();
    state_ = tl::unexpected(std::move(why_absent));
    auto started = serial_executor::start(thread_name("troupe-attach"), "the thread that attaches in the background");
    if (!started)
      return tl::unexpected<error>(std::move(started.error()));
    thread_ = std::move(*started);
    return thread_->repeat(duration::zero(), pause,
                           [this, attempt = std::move(attempt), on_refused = std::move(on_refused)] {
                             return tries_again(attempt, on_refused);
                           });
  }

  /// Returns when no attempt is in progress any more.
  void stop() { thread_.reset(); }

  /// The result of the last attempt; success where none was necessary.
  result<void> state() const {
    std::lock_guard guard(mutex_);
    return state_;
  }

private:
  /// The pause between two attempts.
  static constexpr duration pause = std::chrono::milliseconds(200);

  /// Makes an attempt, and returns whether another one may succeed.
  bool tries_again(const std::function<result<void>()>& attempt, const std::function<void(const error&)>& on_refused) {
    auto outcome = attempt();
    const bool again = !outcome && may_pass(outcome.error());
    if (!outcome && !again)
      on_refused(outcome.error());
    const std::lock_guard guard(mutex_);
    state_ = std::move(outcome);
    return again;
  }

  mutable std::mutex mutex_;
  result<void> state_{};
  std::unique_ptr<serial_executor> thread_;
};

} // namespace troupe::connector
