#include "actors/node/registry/recency_policy.hpp"

#include <algorithm>

namespace troupe {

recency_policy::recency_policy() {
  nodes_.grow_to(1);
}

void recency_policy::unlink(std::uint32_t first, std::uint32_t last) noexcept {
  const auto younger = nodes_[first].younger;
  const auto older = nodes_[last].older;
  nodes_[younger].older = older;
  nodes_[older].younger = younger;
}

void recency_policy::link_youngest(std::uint32_t first, std::uint32_t last) noexcept {
  const auto second = nodes_[0].older;
  nodes_[second].younger = last;
  nodes_[last].older = second;
  nodes_[first].younger = 0;
  nodes_[0].older = first;
}

void recency_policy::make_youngest(std::uint32_t first, std::uint32_t last) noexcept {
  if (nodes_[first].younger == 0)
    return;
  unlink(first, last);
  link_youngest(first, last);
}

void recency_policy::inserted(std::span<const entry_index> entries) {
  for (auto i = entries.size(); i-- > 0;) {
    nodes_.grow_to(std::uint64_t{entries[i]} + 2);
    link_youngest(position(entries[i]), position(entries[i]));
  }
  size_ += entries.size();
}

void recency_policy::touched(std::span<const entry_index> entries) {
  // Backwards, so that the first key of the batch ends youngest. Keys that were used together before follow each other
  // in the list already: such a run moves as a whole, so that most keys are only looked at.
  for (auto end = entries.size(); end > 0;) {
    const auto last = position(entries[--end]);
    auto first = last;
    while (end > 0 && nodes_[position(entries[end - 1])].older == first)
      first = position(entries[--end]);
    make_youngest(first, last);
  }
}

void recency_policy::left(entry_index entry, leave_reason) {
  unlink(position(entry), position(entry));
  --size_;
}

void recency_policy::kept(entry_index entry) {
  make_youngest(position(entry), position(entry));
}

std::size_t recency_policy::propose(std::span<entry_index> out) {
  std::size_t n = 0;
  for (auto at = nodes_[0].younger; at != 0 && n < out.size(); at = nodes_[at].younger)
    out[n++] = at - 1;
  return n;
}

void recency_policy::for_each(const std::function<void(entry_index)>& f) const {
  for (auto at = nodes_[0].younger; at != 0; at = nodes_[at].younger)
    f(at - 1);
}

std::unique_ptr<eviction_policy> make_recency_policy(key_hash) {
  return std::make_unique<recency_policy>();
}

} // namespace troupe
