#pragma once

#include "base/unique_descriptor.hpp"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// A holder of descriptors that are passed to the process at the other end of a connection with the next bytes sent to
/// it. Thread-safe. The sender stores the descriptors here before it sends the message that refers to them.
class descriptor_handover {
public:
  /// Replaces descriptors that have not been taken yet.
  void put(std::vector<unique_descriptor> descriptors) {
    const std::lock_guard guard(mutex_);
    waiting_ = std::move(descriptors);
    any_.store(!waiting_.empty(), std::memory_order_release);
  }

  /// Removes and returns the waiting descriptors.
  std::vector<unique_descriptor> take() {
    if (!any_.load(std::memory_order_acquire))
      return {};
    const std::lock_guard guard(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(waiting_, {});
  }

  /// Puts back descriptors that could not be sent yet; drops them if newer ones are waiting.
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
