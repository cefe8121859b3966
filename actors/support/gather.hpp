#pragma once

#include "base/error.hpp"

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe {

/// The threading policy for parts that all end in the thread of one actor.
struct one_thread {
  using counter = std::size_t;
  struct mutex {
    void lock() noexcept {}
    void unlock() noexcept {}
  };
};

/// The threading policy for parts that end in different threads, several at the same time.
struct many_threads {
  using counter = std::atomic<std::size_t>;
  using mutex = std::mutex;
};

/// A join of several parts: when all of them have ended, it calls a function once, with the collected value or with the
/// first error. Each part ends exactly once, with `part_done` or `part_failed`. A part changes the value where no other
/// part does, or inside `locked`. Owned by the parts that are still open.
template <class T, class Threads>
class basic_gathering {
public:
  using callback = std::function<void(result<T>)>;

  /// `parts` must not be 0; `gather` and `gather_from_threads` accept any number.
  basic_gathering(std::size_t parts, T value, callback then)
      : value_(std::move(value)), open_(parts), then_(std::move(then)) {}

  T& value() noexcept { return value_; }

  /// Ends a part successfully; it has written its share to the value.
  void part_done() { end_part(); }

  void part_failed(error why) {
    {
      std::lock_guard guard(mutex_);
      if (failure_.code == errc::ok)
        failure_ = std::move(why);
    }
    end_part();
  }

  /// Calls `f(value)` while no other part does, and returns its result.
  template <class F>
  auto locked(F&& f) {
    std::lock_guard guard(mutex_);
    return std::forward<F>(f)(value_);
  }

private:
  void end_part() {
    // The last part sees what all others have written, because each of them counted down after writing.
    if (--open_ != 0)
      return;
    if (failure_.code != errc::ok)
      then_(tl::unexpected<error>(std::move(failure_)));
    else
      then_(std::move(value_));
  }

  T value_;
  typename Threads::counter open_;
  callback then_;
  typename Threads::mutex mutex_;
  error failure_{errc::ok, {}};
};

template <class T>
using gathering = basic_gathering<T, one_thread>;
template <class T>
using shared_gathering = basic_gathering<T, many_threads>;

/// A join whose parts end in the thread of one actor. With no parts, `then` is called at once.
template <class T, class Then>
std::shared_ptr<gathering<T>> gather(std::size_t parts, T value, Then then) {
  if (parts == 0)
    then(result<T>(value));
  return std::make_shared<gathering<T>>(parts, std::move(value), std::move(then));
}

/// A join whose parts end in any thread.
template <class T, class Then>
std::shared_ptr<shared_gathering<T>> gather_from_threads(std::size_t parts, T value, Then then) {
  if (parts == 0)
    then(result<T>(value));
  return std::make_shared<shared_gathering<T>>(parts, std::move(value), std::move(then));
}

} // namespace troupe
