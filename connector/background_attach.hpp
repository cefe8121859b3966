#pragma once

#include "base/error.hpp"
#include "base/threads.hpp"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
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
    stopping_ = false;
    state_ = tl::unexpected(std::move(why_absent));
    auto started = start_thread(
        thread_name("troupe-attach"), "the thread that attaches in the background",
        [this, attempt = std::move(attempt), on_refused = std::move(on_refused)] { run(attempt, on_refused); });
    if (!started)
      return tl::unexpected<error>(started.error());
    thread_ = std::move(*started);
    return {};
  }

  /// Returns when no attempt is in progress any more.
  void stop() {
    {
      std::lock_guard guard(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable())
      thread_.join();
  }

  /// The result of the last attempt; success where none was necessary.
  result<void> state() const {
    std::lock_guard guard(mutex_);
    return state_;
  }

private:
  void run(const std::function<result<void>()>& attempt, const std::function<void(const error&)>& on_refused) {
    for (;;) {
      auto outcome = attempt();
      const bool again = !outcome && may_pass(outcome.error());
      if (!outcome && !again)
        on_refused(outcome.error());
      std::unique_lock guard(mutex_);
      state_ = std::move(outcome);
      if (!again || changed_.wait_for(guard, std::chrono::milliseconds(200), [this] { return stopping_; }))
        return;
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  result<void> state_{};
  std::thread thread_;
};

} // namespace troupe::connector
