#pragma once

#include "base/error.hpp"

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// Waits for the answers to several requests and then calls a function once, with what they have put together, or with
/// the first error. Parts may end in different threads at the same time; each changes the value where no other does,
/// or inside `locked`.
template <class T>
class joined_answer {
public:
  using callback = std::function<void(result<T>)>;

  /// `parts` must not be 0.
  joined_answer(T value, std::size_t parts, callback then)
      : value_(std::move(value)), open_(parts), then_(std::move(then)) {}

  /// A part has ended well, having written to the value.
  T& value() noexcept { return value_; }
  void part_done() { end_part(); }

  void part_failed(error why) {
    {
      std::lock_guard guard(mutex_);
      if (failure_.code == errc::ok)
        failure_ = std::move(why);
    }
    end_part();
  }

  /// What `f(value)` returns, called while no other part does.
  template <class F>
  auto locked(F&& f) {
    std::lock_guard guard(mutex_);
    return std::forward<F>(f)(value_);
  }

private:
  void end_part() {
    if (open_.fetch_sub(1, std::memory_order_acq_rel) != 1)
      return;
    if (failure_.code != errc::ok)
      then_(tl::unexpected<error>(std::move(failure_)));
    else
      then_(std::move(value_));
  }

  T value_;
  std::atomic<std::size_t> open_;
  callback then_;
  std::mutex mutex_;
  error failure_{errc::ok, {}};
};

} // namespace troupe
