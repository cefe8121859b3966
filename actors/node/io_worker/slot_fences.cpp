#include "actors/node/io_worker/slot_fences.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

slot_fences::fence_id slot_fences::fence(std::span<const slot_ref> slots) {
  const auto id = ++last_;
  std::size_t waiting = 0;
  for (const auto& x : slots) {
    if (!has(x.slot))
      continue;
    auto& fenced = generations_[x.slot];
    fenced = std::max(fenced, x.generation);
    if (!busy_.contains(x.slot))
      continue;
    waiters_[x.slot].push_back(id);
    ++waiting;
  }
  if (waiting == 0)
    complete_.push_back(id);
  else
    incomplete_.emplace(id, waiting);
  return id;
}

std::vector<slot_fences::fence_id> slot_fences::take_complete() {
  return std::exchange(complete_, {});
}

void slot_fences::end_transfer(slot_number slot) {
  const auto busy = busy_.find(slot);
  if (--busy->second > 0)
    return;
  busy_.erase(busy);
  const auto waiting = waiters_.extract(slot);
  if (waiting.empty())
    return;
  for (const auto id : waiting.mapped()) {
    const auto found = incomplete_.find(id);
    if (--found->second > 0)
      continue;
    complete_.push_back(id);
    incomplete_.erase(found);
  }
}

} // namespace troupe
