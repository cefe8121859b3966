#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace troupe::cluster {

/// A thread for what waits: attaching to nodes, and leaving them. One after the other, in the order in which it was
/// asked for.
class tie_opener {
public:
  tie_opener();
  tie_opener(const tie_opener&) = delete;
  tie_opener& operator=(const tie_opener&) = delete;
  /// Ends when all has been done.
  ~tie_opener();

  void post(std::function<void()> what);
  /// Left out if the end has come when its turn has.
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
