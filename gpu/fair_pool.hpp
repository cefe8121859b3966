#pragma once

#include "base/error.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// Things that callers use one at a time, such as staging memory. Those that wait for one are served in the order in
/// which they came: a caller that always has work cannot keep another one waiting. A caller holds at most one, so none
/// waits for another that waits.
///
/// Safe for calls of several threads at once.
template <class T>
class fair_pool {
public:
  /// A thing that its holder has for itself; it returns to the pool with this object.
  class holder {
  public:
    holder(fair_pool& pool, std::unique_ptr<T> held) noexcept : pool_(&pool), held_(std::move(held)) {}
    holder(holder&&) noexcept = default;
    holder& operator=(holder&&) = delete;
    ~holder() {
      if (held_)
        pool_->give_back(std::move(held_));
    }
    T* operator->() const noexcept { return held_.get(); }
    T& operator*() const noexcept { return *held_; }

  private:
    fair_pool* pool_;
    std::unique_ptr<T> held_;
  };

  /// Waits while all are in use. The pool must not be empty.
  holder take() { return {*this, next()}; }

  /// The number of callers that wait, at this moment.
  std::size_t waiting() const {
    const std::lock_guard guard(mutex_);
    return waiting_.size();
  }

  /// Makes more things with `make` until there are `count`, and calls `with` for all, while none is in use. Waits for
  /// their holders; callers that come later wait for this call. Ends with the first error: the pool then has what it
  /// had, and nothing new.
  template <class Make, class With>
  result<void> with_all(std::size_t count, const Make& make, const With& with) {
    const std::lock_guard alone(changing_); // two such calls, each with some, would wait for each other
    std::vector<std::unique_ptr<T>> all;
    all.reserve(std::max(count, size_));
    result<void> done;
    while (all.size() < size_)
      all.push_back(next());
    while (done && all.size() < count) {
      auto made = make();
      if (made)
        all.push_back(std::move(*made));
      else
        done = tl::unexpected(std::move(made.error()));
    }
    for (std::size_t i = 0; done && i < all.size(); ++i)
      done = with(*all[i]);
    if (!done)
      all.resize(size_);
    size_ = all.size();
    for (auto& each : all)
      give_back(std::move(each));
    return done;
  }

private:
  /// A caller that waits, on its stack.
  struct waiter {
    std::unique_ptr<T> got;
    std::condition_variable served;
  };

  std::unique_ptr<T> next() {
    std::unique_lock guard(mutex_);
    if (waiting_.empty() && !free_.empty()) {
      auto out = std::move(free_.back());
      free_.pop_back();
      return out;
    }
    waiter me;
    waiting_.push_back(&me);
    me.served.wait(guard, [&] { return me.got != nullptr; });
    return std::move(me.got);
  }

  void give_back(std::unique_ptr<T> thing) {
    const std::lock_guard guard(mutex_);
    if (waiting_.empty()) {
      free_.push_back(std::move(thing));
      return;
    }
    auto* const first = waiting_.front();
    waiting_.pop_front();
    first->got = std::move(thing);
    first->served.notify_one(); // under the lock: the waiter ends as soon as it can look
  }

  std::mutex changing_;
  /// Changed by `with_all` alone.
  std::size_t size_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;
  /// Only while nothing is free.
  std::deque<waiter*> waiting_;
};

} // namespace troupe
