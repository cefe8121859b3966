#include "events/page_log.hpp"

#include <algorithm>
#include <utility>

namespace troupe::events {

void page_log::wake_with(std::function<void()> wake) {
  const std::lock_guard guard(mutex_);
  wake_ = std::move(wake);
}

void page_log::append(logged_change x) {
  const std::lock_guard guard(mutex_);
  x.number = ++last_;
  bytes_ += bytes_of(x);
  changes_.push_back(std::move(x));
  while (changes_.size() > options_.changes_max || bytes_ > options_.bytes_max) {
    bytes_ -= bytes_of(changes_.front());
    changes_.pop_front();
  }
  is_new_ = true;
}

void page_log::lose() {
  const std::lock_guard guard(mutex_);
  changes_.clear();
  bytes_ = 0;
  // A number of its own, so that readers that knew all changes before notice it.
  ++last_;
  is_new_ = true;
}

void page_log::notify() {
  const std::lock_guard guard(mutex_);
  if (std::exchange(is_new_, false) && wake_)
    wake_();
}

page_log::part page_log::read(std::string_view model, std::uint64_t after, std::size_t most, std::size_t bytes) const {
  const std::lock_guard guard(mutex_);
  part out;
  const auto first = last_ - changes_.size() + 1;
  // A cursor beyond the end is of an earlier run.
  out.lost = after > last_ || after + 1 < first;
  out.next = out.lost ? first - 1 : after;
  std::size_t taken = 0;
  for (auto i = out.next + 1 - first; i < changes_.size() && out.changes.size() < most && taken < bytes; ++i) {
    const auto& x = changes_[i];
    out.next = x.number;
    if (*x.model != model)
      continue;
    taken += bytes_of(x);
    out.changes.push_back(x);
  }
  return out;
}

} // namespace troupe::events
