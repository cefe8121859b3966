#include "actors/cluster/tie_opener.hpp"

#include <utility>

namespace troupe::cluster {

tie_opener::tie_opener() : thread_([this] { run(); }) {}

tie_opener::~tie_opener() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  more_.notify_one();
  thread_.join();
}

void tie_opener::post(std::function<void()> what) {
  {
    const std::lock_guard guard(mutex_);
    all_.push_back(std::move(what));
  }
  more_.notify_one();
}

void tie_opener::post_unless_ending(std::function<void()> what) {
  post([this, what = std::move(what)] {
    if (!ending_)
      what();
  });
}

void tie_opener::run() {
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
