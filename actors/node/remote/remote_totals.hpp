#pragma once

#include "io/memory/remote_memory.hpp"
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
  /// With the connections of the transport, which may be null.
  remote_stats sum(const io::remote_mover* mover) const {
    const auto connections = mover == nullptr ? io::remote_mover::connections{} : mover->connection_counts();
    const std::lock_guard guard(mutex_);
    auto out = sum_;
    out.streams_lost = connections.lost;
    out.streams_reopened = connections.reopened;
    return out;
  }

private:
  mutable std::mutex mutex_;
  remote_stats sum_;
};

} // namespace troupe
