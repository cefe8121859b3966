#pragma once

#include "io/engine/engine.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe::io {

/// The queue of commands from the callers of an engine to its thread.
///
/// No command is missed while the thread sleeps. `take` empties the queue and announces the sleep under one lock. A
/// caller that queues a command later finds the announcement, clears it and has to wake the thread. A caller that
/// queues one after the sleep finds no announcement, since the queue is emptied before the next sleep anyway. So of
/// many commands only the first one costs a wake-up.
class command_queue {
public:
  struct commands {
    std::vector<request> requests;
    std::vector<std::uint64_t> cancelled_tags;
    std::vector<std::function<void()>> calls;
    bool stop = false;
  };

  enum class outcome : std::uint8_t { closed, queued, queued_while_asleep };

  /// Calls `append` with the commands, unless the queue is closed. May be called from any thread.
  template <class Append>
  outcome put(Append append) {
    std::lock_guard guard(mutex_);
    if (closed_)
      return outcome::closed;
    append(commands_);
    return sleeping_.exchange(false, std::memory_order_relaxed) ? outcome::queued_while_asleep : outcome::queued;
  }

  /// Replaces `taken` with the queued commands. Returns false when the queue is closed from now on: `stop` was queued,
  /// nothing else is, and the engine is `idle`. Only the engine's thread calls it.
  bool take(commands& taken, bool idle) {
    taken.requests.clear();
    taken.cancelled_tags.clear();
    taken.calls.clear();
    // Swapped, not moved: both sides keep the capacity of their vectors, and neither allocates once it has grown.
    std::lock_guard guard(mutex_);
    std::swap(taken, commands_);
    commands_.stop = taken.stop;
    sleeping_.store(true, std::memory_order_relaxed);
    // Decided under the lock under which commands are queued: none comes after the last round.
    closed_ = taken.stop && idle && taken.requests.empty() && taken.calls.empty();
    return !closed_;
  }

  /// The thread no longer sleeps. Needs no lock: a caller that sees the old value wakes a thread that is awake, and
  /// its next sleep ends at once.
  void awake() noexcept { sleeping_.store(false, std::memory_order_relaxed); }

private:
  std::mutex mutex_;
  commands commands_;
  bool closed_ = false;
  /// The thread sleeps or is about to, and has seen no command. Set under the mutex when the commands are taken; reset
  /// by the caller that wakes it, or by the thread itself.
  std::atomic<bool> sleeping_{false};
};

} // namespace troupe::io
