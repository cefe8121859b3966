#pragma once

#include "messages/io_messages.hpp"

#include <mutex>

namespace troupe {

/// The sum of what all remote workers of a node have moved, including those that have ended. Thread-safe.
class remote_totals {
public:
  void add(const remote_stats& x) {
    const std::lock_guard guard(mutex_);
    sum_ += x;
  }
  remote_stats sum() const {
    const std::lock_guard guard(mutex_);
    return sum_;
  }

private:
  mutable std::mutex mutex_;
  remote_stats sum_;
};

} // namespace troupe
