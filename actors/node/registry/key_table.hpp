#pragma once

#include "actors/node/registry/chunked_array.hpp"
#include "actors/node/registry/coarse_clock.hpp"
#include "actors/node/registry/key_index.hpp"
#include "base/digest.hpp"
#include "base/identifiers.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// What is known of one key, apart from its parent and its pages: all that a lookup reads and writes, in half a cache
/// line.
///
/// The index of an entry is not given to another key while any of `children`, `leases`, `live` and `reserved` is not
/// zero. So a lease or a reservation may hold an entry by its index.
struct key_entry {
  /// Null while the index is unused.
  key_digest key;
  /// Entries of all shards that name this key as parent. Negative for a moment when a removal in another shard is heard
  /// of before the creation.
  std::int32_t children = 0;
  std::uint32_t leases = 0;
  /// Ranks whose page is committed; the key is complete when all ranks are among them.
  std::uint16_t live : 15 = 0;
  /// A page of it was made while somebody held a lease on it: whoever read it under that lease may have read another.
  bool made_under_lease : 1 = false;
  /// Ranks whose page somebody is about to write.
  std::uint16_t reserved : 13 = 0;
  /// Another node has it as well, and has it for longer to come: goes before others, children or not.
  bool spare : 1 = false;
  /// Is spare again whenever the last lease on it has ended: it is here for who reads it now.
  bool guest : 1 = false;
  /// Its turn to be evicted came while it had children, and it was not used since.
  bool awaits_children : 1 = false;
  /// Until then the key is not evicted, and slots of pages that are unpublished are not given back. With `held_back`
  /// that is no promise to anybody: until then the key is awaited, and from then on nothing but children has kept it.
  coarse_time protected_until : 29 = 0;
  bool held_back : 1 = false;
  /// Used inside one call, to see which entries a lease holds already.
  bool marked : 1 = false;
  /// Slots of unpublished pages wait for the last lease.
  bool withheld : 1 = false;

  bool in_use() const noexcept { return !key.is_null(); }
  /// Nothing but a count of children: the key itself is not (or no longer) here.
  bool ghost() const noexcept { return live == 0 && reserved == 0 && leases == 0; }

  bool is_protected(coarse_time now) const noexcept { return protected_until > now && !held_back; }
  void protect(coarse_time until) noexcept {
    // Who waits was promised nothing, so that the promise lasts no longer for it.
    protected_until = (held_back ? until : std::max<coarse_time>(protected_until, until)) & coarse_clock::last;
    held_back = false;
  }

  /// Was brought here for somebody who has not leased it yet.
  bool is_awaited(coarse_time now) const noexcept { return protected_until > now && held_back; }
  void await(coarse_time until) noexcept {
    protected_until = until & coarse_clock::last;
    held_back = true;
  }
  /// Somebody uses it, or it is gone: neither is it awaited nor kept by children alone.
  void hold_back_no_more() noexcept {
    if (held_back)
      protected_until = 0;
    held_back = false;
  }
};

static_assert(sizeof(key_entry) == 32);

/// The page of one rank: nothing, a reservation, or a live slot, in 8 bytes. A live page and a reserved one are told
/// apart by the generation, which no slot that was given out has as 0.
struct page_cell {
  /// Live: the slot. Reserved: the number of the reserved page in the table of reservations, plus one. Otherwise 0.
  std::uint32_t value = 0;
  /// Not 0 if the page is live.
  generation_number generation = 0;

  static page_cell live_at(slot_ref where) noexcept { return {where.slot, where.generation}; }
  static page_cell reserved_by(std::uint32_t reserved_page) noexcept { return {reserved_page + 1, 0}; }

  bool live() const noexcept { return generation != 0; }
  bool reserved() const noexcept { return generation == 0 && value != 0; }
  slot_ref where() const noexcept { return {value, generation}; }
  std::uint32_t reserved_page() const noexcept { return value - 1; }
};

/// The keys of one namespace in one shard: entries, parents and the pages of each rank in parallel arrays that never
/// move, and the index that finds them. Knows no rules. 56 bytes a key and 8 a page, besides the index (11 to 21 bytes
/// a key).
class key_table {
public:
  /// Keys whose memory accesses are under way at the same time: enough to hide the latency of memory behind the work on
  /// the group, few enough that its lines stay in the first-level cache.
  static constexpr std::size_t group_keys = 64;
  /// Entries that are fetched ahead of the one that is worked on: processors stop fetching ahead at each 4 KiB.
  static constexpr entry_index prefetch_distance = 16;

  /// Ranks are below `max_ranks`, and not there before `add_rank`. `seed` makes the index's hash unpredictable, so that
  /// nobody can choose keys that all fall into one place.
  key_table(std::uint32_t max_ranks, std::uint64_t seed);

  /// Keys that are there already have no page of the new rank.
  void add_rank(rank_number rank);

  /// In ascending order.
  std::span<const rank_number> ranks() const noexcept { return ranks_; }

  /// One per key: its entry (ghosts included), or `no_entry`. All memory accesses of a group of keys are under way at
  /// the same time; entries in the order of their keys, as one batch makes them, are found without the index.
  void find(std::span<const key_digest> keys, std::span<entry_index> found) const;
  entry_index find(const key_digest& key) const;

  /// `entry` if it still is that of the key, else a fresh search. For answers of `find` that may be outdated.
  entry_index refresh(entry_index entry, const key_digest& key) const;

  /// A fresh entry for a key that has none. `no_entry` if the index cannot take it.
  entry_index create(const key_digest& key);
  void erase(entry_index entry);

  key_entry& entry(entry_index i) noexcept { return entries_[i]; }
  const key_entry& entry(entry_index i) const noexcept { return entries_[i]; }
  key_digest& parent(entry_index i) noexcept { return parents_[i]; }
  const key_digest& parent(entry_index i) const noexcept { return parents_[i]; }
  /// The rank must have been added.
  page_cell& page(entry_index i, rank_number rank) noexcept { return pages_[rank][i]; }
  const page_cell& page(entry_index i, rank_number rank) const noexcept { return pages_[rank][i]; }

  void prefetch_entry(entry_index i) const noexcept { entries_.prefetch(i); }
  /// Fetches the rest: parent and pages.
  void prefetch_details(entry_index i) const noexcept;
  /// Of the key of an entry in use: as unpredictable as the index.
  std::uint64_t hash_of(entry_index i) const noexcept { return hash_of(entries_[i].key); }
  /// Of any key.
  std::uint64_t hash_of(const key_digest& key) const noexcept { return folded(key); }

  /// Fetches where the index would be searched for the key.
  void prefetch_index(const key_digest& key) const noexcept { index_.prefetch(tag_of(key)); }

  /// Fetches the entry that the key most probably has; to be called some time after `prefetch_index`.
  void prefetch_entry_of(const key_digest& key) const noexcept;

  /// Entries in use, ghosts included.
  std::uint64_t size() const noexcept { return index_.size(); }
  /// Entries that were given back, and are taken before new memory is.
  std::uint64_t unused() const noexcept { return end_ - size(); }
  /// Memory of a key, at most, on average over many: with its place in an `eviction_policy`.
  std::uint64_t bytes_per_key() const noexcept;
  /// All entries have indexes below this one.
  entry_index end() const noexcept { return end_; }
  std::uint64_t resident_bytes() const noexcept;

private:
  // The arrays are parallel: entry i has its parent at i, and its page of a rank at i of that rank's array. All are as
  // long as `end_` at least. Entries that are not in use have the null key and are linked from `free_`; all others are
  // found by the index, each by the tag of its key.

  std::uint64_t folded(const key_digest& key) const noexcept;
  std::uint32_t tag_of(const key_digest& key) const noexcept;

  /// Finds a group of keys by the index.
  void search(std::span<const key_digest> keys, entry_index* found) const;
  /// Finds leading keys whose entries are `next` and those behind it, without the index; returns how many.
  std::size_t follow(entry_index next, std::span<const key_digest> keys, entry_index* found) const;

  std::vector<rank_number> ranks_;
  std::uint64_t seed_hi_;
  std::uint64_t seed_lo_;
  key_index index_;
  chunked_array<key_entry> entries_;
  chunked_array<key_digest> parents_;
  /// By rank; empty for ranks that are not there.
  std::unique_ptr<chunked_array<page_cell>[]> pages_;
  entry_index end_ = 0;
  /// Last in, first out, linked through `leases`: what was removed together is used again together.
  entry_index free_ = no_entry;
};

} // namespace troupe
