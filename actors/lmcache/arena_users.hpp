#pragma once

#include "base/clock.hpp"
#include "io/memory/extent_source.hpp"

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe {

/// Counts threads that use the arena and are not known to the node: the memory stays while one of them holds it, and
/// the end of the node waits for them. Thread-safe.
class arena_users {
public:
  explicit arena_users(std::shared_ptr<io::extent_source> extents) : extents_(std::move(extents)) {}

  /// The arena, held until the result is destroyed.
  std::shared_ptr<io::extent_source> hold() const {
    {
      const std::lock_guard guard(all_->mutex);
      ++all_->count;
    }
    return {extents_.get(), [kept = extents_, all = all_](io::extent_source*) mutable {
              kept.reset();
              const std::lock_guard guard(all->mutex);
              --all->count;
              all->changed.notify_all();
            }};
  }

  /// Waits until no thread holds it, and returns whether that happened within the limit.
  bool wait(duration limit) const {
    std::unique_lock guard(all_->mutex);
    return all_->changed.wait_for(guard, limit, [this] { return all_->count == 0; });
  }

private:
  struct counted {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t count = 0;
  };

  std::shared_ptr<io::extent_source> extents_;
  std::shared_ptr<counted> all_ = std::make_shared<counted>();
};

} // namespace troupe
