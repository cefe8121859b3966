#include "actors/node/tables/page_residence.hpp"

namespace troupe {

std::shared_ptr<resident_slots> page_residence::add(const namespace_id& ns, rank_number rank, std::uint64_t slots) {
  auto made = std::make_shared<resident_slots>(slots);
  std::lock_guard guard(mutex_);
  ranks_[{ns, rank}] = made;
  return made;
}

void page_residence::remove(const namespace_id& ns, rank_number rank) {
  std::lock_guard guard(mutex_);
  ranks_.erase({ns, rank});
}

std::shared_ptr<const resident_slots> page_residence::find(const namespace_id& ns, rank_number rank) const {
  std::lock_guard guard(mutex_);
  const auto found = ranks_.find({ns, rank});
  return found == ranks_.end() ? nullptr : found->second;
}

} // namespace troupe
