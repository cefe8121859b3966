#include "actors/cluster/peers/blocking_executor.hpp"

#include <utility>

namespace troupe::cluster {

blocking_executor::blocking_executor() : thread_([this] { run(); }) {}

blocking_executor::~blocking_executor() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  more_.notify_one();
  thread_.join();
}

void blocking_executor::post(std::function<void()> what) {
  {
    const std::lock_guard guard(mutex_);
    all_.push_back(std::move(what));
  }
  more_.notify_one();
}

void blocking_executor::post_unless_ending(std::function<void()> what) {
  post([this, what = std::move(what)] {
    if (!ending_)
      what();
  });
}

void blocking_executor::run() {
  for (;;) {
    std::function<void()> next;
    {
      std::unique_lock guard(mutex_);
      more_.wait(guard, [this] { return ending_ || !all_.empty(); });
      if (all_.empty())
        return;
      next = std::move(all_.front());
      all_.pop_front();
    }
    next();
  }
}

} // namespace troupe::cluster
