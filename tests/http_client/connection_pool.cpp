#include "tests/http_client/connection_pool.hpp"

#include <chrono>

namespace troupe::client_detail {

std::optional<connection_pool::place> connection_pool::take(timestamp deadline) {
  std::vector<idle_connection> old; // closed after the lock is released
  std::unique_ptr<connection> found;
  std::unique_lock lock(mutex_);
  if (!freed_.wait_until(lock, deadline, [&] { return taken_ < limit_; }))
    return std::nullopt;
  const auto oldest = std::chrono::steady_clock::now() - max_idle_time_;
  while (!idle_.empty() && idle_.front().since < oldest) {
    old.push_back(std::move(idle_.front()));
    idle_.erase(idle_.begin());
  }
  if (!idle_.empty()) {
    found = std::move(idle_.back().open);
    idle_.pop_back();
  }
  ++taken_;
  lock.unlock();
  return std::optional<place>(std::in_place, *this, std::move(found));
}

void connection_pool::give_back(std::unique_ptr<connection> x) noexcept {
  {
    const std::lock_guard guard(mutex_);
    --taken_;
    if (x && x->is_reusable()) {
      try {
        idle_.push_back({std::move(x), std::chrono::steady_clock::now()});
      } catch (const std::bad_alloc&) { // then it is closed
      }
    }
  }
  freed_.notify_one();
}

void connection_pool::forget_idle() {
  std::vector<idle_connection> gone;
  const std::lock_guard guard(mutex_);
  gone.swap(idle_);
}

std::size_t connection_pool::idle() const {
  const std::lock_guard guard(mutex_);
  return idle_.size();
}

} // namespace troupe::client_detail
