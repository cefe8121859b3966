#pragma once

#include "base/unique_descriptor.hpp"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// Descriptors that the process at the other end of a connection gets along with what is sent to it next. Thread-safe:
/// whoever decides on them puts them here before it sends the message that speaks of them.
class descriptor_handover {
public:
  /// In the place of any that still wait.
  void put(std::vector<unique_descriptor> descriptors) {
    const std::lock_guard guard(mutex_);
    waiting_ = std::move(descriptors);
    any_.store(!waiting_.empty(), std::memory_order_release);
  }

  /// Those that wait; they do not any more.
  std::vector<unique_descriptor> take() {
    if (!any_.load(std::memory_order_acquire))
      return {};
    const std::lock_guard guard(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(waiting_, {});
  }

  /// What was taken could not be sent yet; dropped if there are others by now.
  void put_back(std::vector<unique_descriptor> descriptors) {
    const std::lock_guard guard(mutex_);
    if (waiting_.empty())
      waiting_ = std::move(descriptors);
    any_.store(!waiting_.empty(), std::memory_order_release);
  }

private:
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::vector<unique_descriptor> waiting_;
};

} // namespace troupe
