#include "store/journal.hpp"

#include <algorithm>
#include <utility>

namespace troupe::store {

std::optional<write_batch> journal::begin_write() {
  if (under_way_ || pending_.empty())
    return std::nullopt;
  under_way_ = true;
  ++next_;
  return std::exchange(pending_, {});
}

void journal::written() {
  under_way_ = false;
  // Stays the same if a continuation begins the next write.
  const auto durable_before = next_;
  while (!waiting_.empty() && waiting_.front().batch < durable_before) {
    auto next = std::move(waiting_.front());
    waiting_.pop_front();
    next.then(nullptr);
  }
}

void journal::refused(write_batch batch) {
  under_way_ = false;
  --next_;
  // Continuations of the pending batch now wait for both batches.
  for (auto& x : waiting_)
    x.batch = std::min(x.batch, next_);
  batch.append(pending_);
  pending_ = std::move(batch);
}

void journal::when_durable(continuation then) {
  if (durable() && waiting_.empty())
    then(nullptr);
  else
    waiting_.push_back({pending_.empty() ? next_ - 1 : next_, std::move(then)});
}

void journal::fail(const error& why) {
  for (auto& x : std::exchange(waiting_, {}))
    x.then(&why);
}

} // namespace troupe::store
