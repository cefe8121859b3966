#include "tests/simulation/schedule.hpp"

#include <algorithm>
#include <utility>

namespace troupe::simulation {

void schedule::push(event what) {
  heap_.push_back(std::move(what));
  std::push_heap(heap_.begin(), heap_.end(), later);
}

void schedule::at(timestamp when, std::function<void()> run) {
  push({std::max(when, now_), ++planned_, std::move(run)});
}

bool schedule::run_next() {
  std::pop_heap(heap_.begin(), heap_.end(), later);
  auto next = std::move(heap_.back());
  heap_.pop_back();
  now_ = next.at;
  idle_ = false;
  postponed_.reset();
  next.run();
  if (!postponed_)
    return !idle_;
  next.at = std::max(*postponed_, now_);
  push(std::move(next));
  return false;
}

} // namespace troupe::simulation
