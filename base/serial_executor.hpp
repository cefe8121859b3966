#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/threads.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace troupe {

/// A thread that runs tasks one after the other, in the order of their posting, for calls that may block; and tasks
/// that are repeated after a pause.
///
/// Tasks run without a lock, must not throw, and are destroyed by the thread, also those that were dropped. What a task
/// refers to has to live until the executor has ended. Any thread may call any function, except for `end`, which a task
/// must not call, and the destructor.
class serial_executor {
public:
  using task = std::function<void()>;

  /// What happens to a posted task whose turn has not come when the executor ends.
  enum class at_end { run, drop };

  /// The most posted tasks that may wait, unless the caller chooses another limit.
  static constexpr std::size_t usual_limit = 4096;

  /// Starts the thread. `what`: its description for the error, such as "the thread that opens slab files".
  /// Error: `io_error` where no thread can be started.
  static result<std::unique_ptr<serial_executor>> start(thread_name name, std::string_view what,
                                                        std::size_t limit = usual_limit);
  serial_executor(const serial_executor&) = delete;
  serial_executor& operator=(const serial_executor&) = delete;
  /// Ends.
  ~serial_executor();

  /// Runs `what` once, after all tasks that were posted before. Errors: `limit_exceeded` while as many tasks wait as
  /// may, `shutting_down` once the executor is ending. A refused task is destroyed at once, by the caller.
  result<void> post(task what, at_end then = at_end::run);

  /// Runs `what` after the pause `first`, and again each time that `pause` has passed since it returned, for as long as
  /// it returns true. A repeated task whose time has come runs before the posted ones, so `pause` must not be zero. It
  /// is dropped at the end. Error: `shutting_down`.
  result<void> repeat(duration first, duration pause, std::function<bool()> what);

  /// Accepts no more tasks, runs or drops the posted ones, and returns when the thread has ended. A second call waits
  /// for the first.
  void end();

  /// Whether `end` has been called. Long tasks check it.
  bool is_ending() const noexcept { return ending_; }

private:
  struct posted {
    task what;
    at_end then = at_end::run;
  };
  struct repeated {
    timestamp at{};
    duration pause{};
    std::function<bool()> what;
  };

  explicit serial_executor(std::size_t limit) : limit_(limit) {}

  void run();
  /// Waits for the next task and returns it; empty at the end. Repeated tasks are returned with what schedules them
  /// again. The caller holds `held`.
  task next(std::unique_lock<std::mutex>& held);
  task take_repeated(std::size_t which);

  const std::size_t limit_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<posted> posted_;
  std::vector<repeated> repeated_;
  /// Changed under the mutex.
  std::atomic<bool> ending_{false};
  std::mutex end_mutex_;
  std::thread thread_;
};

} // namespace troupe
