#include "actors/registry/key_table.hpp"

#include <algorithm>
#include <array>
#include <cassert>

namespace troupe {

namespace {

__extension__ using uint128 = unsigned __int128;

/// Keys whose memory accesses are under way at the same time: enough to hide the latency of memory behind the work on
/// the group, few enough that its lines stay in the first-level cache.
constexpr std::size_t group_keys = 64;

} // namespace

key_table::key_table(std::uint32_t max_ranks, std::uint64_t seed)
    : seed_hi_(mix(seed, 1) | 1), seed_lo_(mix(seed, 2)),
      pages_(std::make_unique<chunked_array<page_cell>[]>(max_ranks)) {}

void key_table::add_rank(rank_number rank) {
  assert(!std::binary_search(ranks_.begin(), ranks_.end(), rank));
  pages_[rank].grow_to(end_);
  ranks_.insert(std::lower_bound(ranks_.begin(), ranks_.end(), rank), rank);
}

std::uint32_t key_table::tag_of(const key_digest& key) const noexcept {
  const auto product = uint128{key.hi ^ seed_hi_} * (key.lo ^ seed_lo_);
  const auto folded = static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
  return static_cast<std::uint32_t>(folded ^ (folded >> 32));
}

void key_table::find(std::span<const key_digest> keys, std::span<entry_index> found) const {
  assert(found.size() >= keys.size());
  std::array<std::uint32_t, group_keys> tags;
  for (std::size_t begin = 0; begin < keys.size(); begin += group_keys) {
    const auto group = keys.subspan(begin, std::min(group_keys, keys.size() - begin));
    auto* const out = found.data() + begin;
    for (std::size_t i = 0; i < group.size(); ++i) {
      tags[i] = tag_of(group[i]);
      index_.prefetch(tags[i]);
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      out[i] = index_.candidate(tags[i]);
      if (out[i] != no_entry)
        entries_.prefetch(out[i]);
    }
    for (std::size_t i = 0; i < group.size(); ++i)
      if (out[i] != no_entry && entries_[out[i]].key != group[i])
        out[i] = index_.find(tags[i], [&](entry_index e) { return entries_[e].key == group[i]; });
  }
}

entry_index key_table::find(const key_digest& key) const {
  return index_.find(tag_of(key), [&](entry_index e) { return entries_[e].key == key; });
}

entry_index key_table::refresh(entry_index entry, const key_digest& key) const {
  return entry != no_entry && entries_[entry].key == key ? entry : find(key);
}

entry_index key_table::create(const key_digest& key) {
  assert(!key.is_null());
  const auto fresh = free_ == no_entry;
  const auto at = fresh ? end_ : free_;
  if (at == no_entry)
    return no_entry;
  if (fresh) {
    entries_.grow_to(std::uint64_t{at} + 1);
    parents_.grow_to(std::uint64_t{at} + 1);
    for (const auto rank : ranks_)
      pages_[rank].grow_to(std::uint64_t{at} + 1);
  }
  if (!index_.insert(tag_of(key), at))
    return no_entry;
  if (fresh)
    ++end_;
  else
    free_ = entries_[at].leases;
  entries_[at] = {};
  entries_[at].key = key;
  return at;
}

void key_table::erase(entry_index entry) {
  auto& e = entries_[entry];
  assert(e.in_use() && e.children == 0 && e.ghost() && parents_[entry].is_null());
  index_.erase(tag_of(e.key), entry);
  e = {};
  e.leases = free_;
  free_ = entry;
}

void key_table::prefetch_details(entry_index i) const noexcept {
  parents_.prefetch(i);
  for (const auto rank : ranks_)
    pages_[rank].prefetch(i);
}

void key_table::prefetch_entry_of(const key_digest& key) const noexcept {
  if (const auto entry = index_.candidate(tag_of(key)); entry != no_entry)
    entries_.prefetch(entry);
}

std::uint64_t key_table::resident_bytes() const noexcept {
  auto bytes = index_.resident_bytes() + entries_.resident_bytes() + parents_.resident_bytes();
  for (const auto rank : ranks_)
    bytes += pages_[rank].resident_bytes();
  return bytes;
}

} // namespace troupe
