#include "actors/node/registry/key_table.hpp"

#include <algorithm>
#include <array>
#include <cassert>

namespace troupe {

namespace {

__extension__ using uint128 = unsigned __int128;

/// Keys of a batch that are looked up before the table tries whether the rest follows in order.
constexpr std::size_t first_keys = 16;

} // namespace

key_table::key_table(std::uint32_t max_ranks, std::uint64_t seed)
    : seed_hi_(mix(seed, 1) | 1), seed_lo_(mix(seed, 2)),
      pages_(std::make_unique<chunked_array<page_cell>[]>(max_ranks)) {}

void key_table::add_rank(rank_number rank) {
  assert(!std::binary_search(ranks_.begin(), ranks_.end(), rank));
  pages_[rank].grow_to(end_);
  ranks_.insert(std::lower_bound(ranks_.begin(), ranks_.end(), rank), rank);
}

std::uint64_t key_table::folded(const key_digest& key) const noexcept {
  const auto product = uint128{key.hi ^ seed_hi_} * (key.lo ^ seed_lo_);
  return static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
}

std::uint32_t key_table::tag_of(const key_digest& key) const noexcept {
  const auto hash = folded(key);
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

void key_table::search(std::span<const key_digest> keys, entry_index* found) const {
  std::array<std::uint32_t, group_keys> tags;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    tags[i] = tag_of(keys[i]);
    index_.prefetch(tags[i]);
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    found[i] = index_.candidate(tags[i]);
    if (found[i] != no_entry)
      entries_.prefetch(found[i]);
  }
  // Tags are not unique. Mostly the first candidate is right, and one comparison is enough.
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (found[i] != no_entry && entries_[found[i]].key != keys[i])
      found[i] = index_.find(tags[i], [&](entry_index e) { return entries_[e].key == keys[i]; });
}

std::size_t key_table::follow(entry_index next, std::span<const key_digest> keys, entry_index* found) const {
  std::size_t n = 0;
  // An unused entry has the null key.
  for (; n < keys.size() && next < end_ && entries_[next].key == keys[n] && !keys[n].is_null(); ++n, ++next) {
    if (next + prefetch_distance < end_)
      entries_.prefetch(next + prefetch_distance);
    found[n] = next;
  }
  return n;
}

void key_table::find(std::span<const key_digest> keys, std::span<entry_index> found) const {
  assert(found.size() >= keys.size());
  for (std::size_t at = 0, size = first_keys; at < keys.size(); size = group_keys) {
    const auto n = std::min(size, keys.size() - at);
    search(keys.subspan(at, n), &found[at]);
    at += n;
    // Keys that were inserted in one batch mostly have consecutive entries.
    if (at < keys.size() && n > 1 && found[at - 1] != no_entry && found[at - 1] == found[at - 2] + 1)
      at += follow(found[at - 1] + 1, keys.subspan(at), &found[at]);
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
  if (at >= max_entries)
    return no_entry;
  if (fresh) {
    entries_.grow_to(std::uint64_t{at} + 1);
    parents_.grow_to(std::uint64_t{at} + 1);
    for (const auto rank : ranks_)
      pages_[rank].grow_to(std::uint64_t{at} + 1);
  }
  // The only step that may fail comes before anything records that the entry is taken.
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
  // Its page cells are all zero already, because ending a page or a reservation clears the cell.
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

std::uint64_t key_table::bytes_per_key() const noexcept {
  constexpr std::uint64_t of_index = 21;
  constexpr std::uint64_t of_order = 10;
  return sizeof(key_entry) + sizeof(key_digest) + of_index + of_order + ranks_.size() * sizeof(page_cell);
}

std::uint64_t key_table::resident_bytes() const noexcept {
  auto bytes = index_.resident_bytes() + entries_.resident_bytes() + parents_.resident_bytes();
  for (const auto rank : ranks_)
    bytes += pages_[rank].resident_bytes();
  return bytes;
}

} // namespace troupe
