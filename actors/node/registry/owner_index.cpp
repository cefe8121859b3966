#include "actors/node/registry/owner_index.hpp"

#include <cassert>

namespace troupe {

void owner_index::add(owner_id owner, std::uint32_t id) {
  if (id >= neighbours_.size())
    neighbours_.resize(std::size_t{id} + 1);
  auto& owned = owners_[owner];
  neighbours_[id] = {none, owned.first};
  if (owned.first != none)
    neighbours_[owned.first].previous = id;
  owned.first = id;
  ++owned.count;
}

void owner_index::remove(owner_id owner, std::uint32_t id) {
  const auto found = owners_.find(owner);
  assert(found != owners_.end());
  const auto [previous, next] = neighbours_[id];
  if (previous != none)
    neighbours_[previous].next = next;
  else
    found->second.first = next;
  if (next != none)
    neighbours_[next].previous = previous;
  neighbours_[id] = {};
  if (--found->second.count == 0)
    owners_.erase(found);
}

std::uint32_t owner_index::first(owner_id owner) const {
  const auto found = owners_.find(owner);
  return found == owners_.end() ? none : found->second.first;
}

std::uint64_t owner_index::count(owner_id owner) const {
  const auto found = owners_.find(owner);
  return found == owners_.end() ? 0 : found->second.count;
}

std::uint64_t owner_index::resident_bytes() const noexcept {
  return neighbours_.capacity() * sizeof(neighbours) +
         owners_.size() * (sizeof(std::pair<owner_id, list>) + 2 * sizeof(void*)) +
         owners_.bucket_count() * sizeof(void*);
}

} // namespace troupe
