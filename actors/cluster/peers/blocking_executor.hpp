#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace troupe::cluster {

/// A thread for blocking calls: attaching to nodes and leaving them. Runs them one after the other, in the order of
/// their posting.
class blocking_executor {
public:
  blocking_executor();
  blocking_executor(const blocking_executor&) = delete;
  blocking_executor& operator=(const blocking_executor&) = delete;
  /// Returns when all that was posted has run.
  ~blocking_executor();

  void post(std::function<void()> what);
  /// Skips `what` if the opener is ending when its turn comes.
  void post_unless_ending(std::function<void()> what);

private:
  void run();

  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::function<void()>> all_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

} // namespace troupe::cluster
