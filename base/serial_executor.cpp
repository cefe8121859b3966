#include "base/serial_executor.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace troupe {

result<std::unique_ptr<serial_executor>> serial_executor::start(thread_name name, std::string_view what,
                                                                std::size_t limit) {
  std::unique_ptr<serial_executor> made(new serial_executor(limit));
  auto started = start_thread(name, what, [self = made.get()] { self->run(); });
  if (!started)
    return tl::unexpected<error>(std::move(started.error()));
  made->thread_ = std::move(*started);
  return made;
}

serial_executor::~serial_executor() {
  end();
}

void serial_executor::end() {
  const std::lock_guard only_one(end_mutex_);
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  news_.notify_one();
  if (thread_.joinable())
    thread_.join();
}

result<void> serial_executor::post(task what, at_end then) {
  {
    const std::lock_guard guard(mutex_);
    if (ending_)
      return fail(errc::shutting_down, "the thread that runs these tasks is ending");
    if (posted_.size() >= limit_)
      return fail(errc::limit_exceeded, std::to_string(limit_) + " tasks wait already; post again when some have run");
    posted_.push_back({std::move(what), then});
  }
  news_.notify_one();
  return {};
}

result<void> serial_executor::repeat(duration first, duration pause, std::function<bool()> what) {
  {
    const std::lock_guard guard(mutex_);
    if (ending_)
      return fail(errc::shutting_down, "the thread that runs these tasks is ending");
    repeated_.push_back({later(std::chrono::steady_clock::now(), first), pause, std::move(what)});
  }
  news_.notify_one();
  return {};
}

void serial_executor::run() {
  for (;;) {
    std::unique_lock held(mutex_);
    auto what = next(held);
    held.unlock();
    if (!what)
      break;
    what();
  }
  // Destroyed here, as tasks that ran are, and without the lock, since that may call anything.
  std::vector<repeated> dropped;
  const std::lock_guard guard(mutex_);
  dropped.swap(repeated_);
}

serial_executor::task serial_executor::next(std::unique_lock<std::mutex>& held) {
  for (;;) {
    const auto soonest = std::ranges::min_element(repeated_, {}, &repeated::at);
    if (!ending_ && soonest != repeated_.end() && soonest->at <= std::chrono::steady_clock::now())
      return take_repeated(static_cast<std::size_t>(soonest - repeated_.begin()));
    if (!posted_.empty()) {
      auto first = std::move(posted_.front());
      posted_.pop_front();
      if (!ending_ || first.then == at_end::run)
        return std::move(first.what);
      held.unlock();
      first = {}; // the dropped task is destroyed without the lock
      held.lock();
      continue;
    }
    if (ending_)
      return {};
    if (soonest == repeated_.end())
      news_.wait(held);
    else
      news_.wait_until(held, soonest->at);
  }
}

serial_executor::task serial_executor::take_repeated(std::size_t which) {
  auto taken = std::move(repeated_[which]);
  repeated_.erase(repeated_.begin() + static_cast<std::ptrdiff_t>(which));
  return [this, taken = std::move(taken)]() mutable {
    if (!taken.what())
      return;
    taken.at = later(std::chrono::steady_clock::now(), taken.pause);
    const std::lock_guard guard(mutex_);
    repeated_.push_back(std::move(taken));
  };
}

} // namespace troupe
