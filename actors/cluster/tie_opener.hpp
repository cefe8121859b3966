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
class tie_opener {
public:
  tie_opener();
  tie_opener(const tie_opener&) = delete;
  tie_opener& operator=(const tie_opener&) = delete;
  /// Returns when all that was posted has run.
  ~tie_opener();

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
