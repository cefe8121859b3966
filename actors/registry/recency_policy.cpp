#include "actors/registry/recency_policy.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr std::size_t group_entries = 64;

} // namespace

recency_policy::recency_policy() {
  nodes_.grow_to(1);
}

void recency_policy::unlink(std::uint32_t at) noexcept {
  const auto [younger, older] = nodes_[at];
  nodes_[younger].older = older;
  nodes_[older].younger = younger;
}

void recency_policy::link_youngest(std::uint32_t at) noexcept {
  const auto second = nodes_[0].older;
  nodes_[at] = {0, second};
  nodes_[second].younger = at;
  nodes_[0].older = at;
}

void recency_policy::inserted(std::span<const entry_index> entries) {
  for (auto i = entries.size(); i-- > 0;) {
    nodes_.grow_to(std::uint64_t{entries[i]} + 2);
    link_youngest(entries[i] + 1);
  }
  size_ += entries.size();
}

void recency_policy::touched(std::span<const entry_index> entries) {
  // Backwards, so that the first key of the batch ends youngest. Three passes over each group: fetch the nodes, fetch
  // their neighbours, move.
  for (auto end = entries.size(); end > 0;) {
    const auto begin = end > group_entries ? end - group_entries : 0;
    const auto group = entries.subspan(begin, end - begin);
    for (const auto entry : group)
      nodes_.prefetch(std::uint64_t{entry} + 1);
    for (const auto entry : group) {
      const auto [younger, older] = nodes_[std::uint64_t{entry} + 1];
      nodes_.prefetch(younger);
      nodes_.prefetch(older);
    }
    for (auto i = group.size(); i-- > 0;) {
      unlink(group[i] + 1);
      link_youngest(group[i] + 1);
    }
    end = begin;
  }
}

void recency_policy::removed(entry_index entry) {
  unlink(entry + 1);
  --size_;
}

void recency_policy::postponed(entry_index entry) {
  unlink(entry + 1);
  link_youngest(entry + 1);
}

std::size_t recency_policy::candidates(std::span<entry_index> out) const {
  std::size_t n = 0;
  for (auto at = nodes_[0].younger; at != 0 && n < out.size(); at = nodes_[at].younger)
    out[n++] = at - 1;
  return n;
}

} // namespace troupe
