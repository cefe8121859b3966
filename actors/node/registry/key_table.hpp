#pragma once

#include "actors/node/registry/coarse_clock.hpp"
#include "actors/node/tables/chunked_array.hpp"
#include "actors/node/tables/key_index.hpp"
#include "base/digest.hpp"
#include "base/identifiers.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// The data of one key that a lookup reads and writes, without parent and pages, in half a cache line.
///
/// The index of an entry is not given to another key while any of `children`, `leases`, `live` and `reserved` is not
/// zero, so a lease or a reservation may refer to an entry by its index.
struct key_entry {
  /// Null while the index is unused.
  key_digest key;
  /// Entries of all shards that name this key as parent. Negative for a moment if the message about a removal in
  /// another shard arrives before the one about the creation.
  std::int32_t children = 0;
  std::uint32_t leases = 0;
  /// Ranks whose page is committed. The key is complete when all ranks are among them.
  std::uint16_t live : 15 = 0;
  /// A page was published while a lease was held: its holder may have read an earlier page under that lease.
  bool made_under_lease : 1 = false;
  /// Ranks whose page is being written.
  std::uint16_t reserved : 13 = 0;
  /// Evicted first, with or without children, because another node has the key too and will keep it longer.
  bool evict_first : 1 = false;
  /// Transient: `evict_first` is set again whenever the last lease has ended, because the key serves only current
  /// readers.
  bool transient : 1 = false;
  /// The key's turn to be evicted came while it had children, and it has not been used since.
  bool awaits_children : 1 = false;
  /// Until then the key is not evicted, and slots of unpublished pages are not released. With `held_back` the time is
  /// no promise to a client: until then the key is awaited, and from then on only its children have kept it.
  coarse_time protected_until : 29 = 0;
  bool held_back : 1 = false;
  /// Used inside one call, to find entries that a lease lists already.
  bool marked : 1 = false;
  /// Slots of unpublished pages wait for the last lease to end.
  bool withheld : 1 = false;

  bool in_use() const noexcept { return !key.is_null(); }
  /// Whether only the child count is left: the key itself is not here, or not any more.
  bool ghost() const noexcept { return live == 0 && reserved == 0 && leases == 0; }

  bool is_protected(coarse_time now) const noexcept { return protected_until > now && !held_back; }
  void protect(coarse_time until) noexcept {
    // An awaiting request was promised nothing, so its time does not extend the promise.
    protected_until = (held_back ? until : std::max<coarse_time>(protected_until, until)) & coarse_clock::last;
    held_back = false;
  }

  /// Whether the key was fetched for a request that has not leased it yet.
  bool is_awaited(coarse_time now) const noexcept { return protected_until > now && held_back; }
  void await(coarse_time until) noexcept {
    protected_until = until & coarse_clock::last;
    held_back = true;
  }
  /// Ends `held_back` after a use or a removal: the key is neither awaited nor kept by its children alone.
  void hold_back_no_more() noexcept {
    if (held_back)
      protected_until = 0;
    held_back = false;
  }
};

static_assert(sizeof(key_entry) == 32);

/// The page of one rank: nothing, a reservation, or a live slot, in 8 bytes. The generation tells a live page from a
/// reserved one, because a granted slot never has generation 0.
struct page_cell {
  /// Live: the slot. Reserved: the number of the reserved page in the reservation table, plus one. Otherwise 0.
  std::uint32_t value = 0;
  /// Not 0 exactly if the page is live.
  generation_number generation = 0;

  static page_cell live_at(slot_ref where) noexcept { return {where.slot, where.generation}; }
  static page_cell reserved_by(std::uint32_t reserved_page) noexcept { return {reserved_page + 1, 0}; }

  bool live() const noexcept { return generation != 0; }
  bool reserved() const noexcept { return generation == 0 && value != 0; }
  slot_ref where() const noexcept { return {value, generation}; }
  std::uint32_t reserved_page() const noexcept { return value - 1; }
};

/// The keys of one namespace in one shard: parallel arrays of entries, parents and the pages of each rank, which never
/// move, and the index that finds them. Contains no rules. Uses 56 bytes per key and 8 per page, plus the index (11 to
/// 21 bytes per key).
class key_table {
public:
  /// Keys whose memory accesses are in flight at the same time: enough to hide the memory latency behind the work on
  /// the group, few enough that their cache lines stay in the first-level cache.
  static constexpr std::size_t group_keys = 64;
  /// How many entries ahead to prefetch: processors stop prefetching at each 4 KiB boundary.
  static constexpr entry_index prefetch_distance = 16;

  /// Ranks are below `max_ranks` and exist from `add_rank` on. `seed` makes the index's hash unpredictable, so that a
  /// client cannot choose keys that all collide.
  key_table(std::uint32_t max_ranks, std::uint64_t seed);

  /// Adds a rank. Existing keys have no page of it.
  void add_rank(rank_number rank);

  /// The ranks in ascending order.
  std::span<const rank_number> ranks() const noexcept { return ranks_; }

  /// Returns one entry per key (ghosts included), or `no_entry`. All memory accesses of a group of keys are in flight
  /// at the same time. Entries in the order of their keys, as one batch creates them, are found without the index.
  void find(std::span<const key_digest> keys, std::span<entry_index> found) const;
  entry_index find(const key_digest& key) const;

  /// Returns `entry` if it still belongs to the key; otherwise searches again. For results of `find` that may be
  /// outdated.
  entry_index refresh(entry_index entry, const key_digest& key) const;

  /// Creates an entry for a key that has none. `no_entry` if the index cannot take it.
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
  /// Prefetches the parent and the pages.
  void prefetch_details(entry_index i) const noexcept;
  /// Hash of the key of an entry in use; as unpredictable as the index.
  std::uint64_t hash_of(entry_index i) const noexcept { return hash_of(entries_[i].key); }
  /// Hash of any key.
  std::uint64_t hash_of(const key_digest& key) const noexcept { return folded(key); }

  /// Prefetches the place where the index would be searched for the key.
  void prefetch_index(const key_digest& key) const noexcept { index_.prefetch(tag_of(key)); }

  /// Prefetches the entry that the key most probably has; call it some time after `prefetch_index`.
  void prefetch_entry_of(const key_digest& key) const noexcept;

  /// Number of entries in use, ghosts included.
  std::uint64_t size() const noexcept { return index_.size(); }
  /// Number of freed entries, which are reused before new memory is taken.
  std::uint64_t unused() const noexcept { return end_ - size(); }
  /// Upper bound of the memory per key, averaged over many keys, with its place in an `eviction_policy`.
  std::uint64_t bytes_per_key() const noexcept;
  /// All entries have indexes below this one.
  entry_index end() const noexcept { return end_; }
  std::uint64_t resident_bytes() const noexcept;

private:
  // The arrays are parallel: entry i has its parent at i, and its page of a rank at i of that rank's array. All are at
  // least `end_` long. Entries that are not in use have the null key and are linked from `free_`; the index finds all
  // others by the tag of their key.

  std::uint64_t folded(const key_digest& key) const noexcept;
  std::uint32_t tag_of(const key_digest& key) const noexcept;

  /// Finds a group of keys with the index.
  void search(std::span<const key_digest> keys, entry_index* found) const;
  /// Finds leading keys whose entries are `next` and its successors, without the index. Returns how many.
  std::size_t follow(entry_index next, std::span<const key_digest> keys, entry_index* found) const;

  std::vector<rank_number> ranks_;
  std::uint64_t seed_hi_;
  std::uint64_t seed_lo_;
  key_index index_;
  chunked_array<key_entry> entries_;
  chunked_array<key_digest> parents_;
  /// By rank; empty for ranks that do not exist.
  std::unique_ptr<chunked_array<page_cell>[]> pages_;
  entry_index end_ = 0;
  /// Last in, first out, linked through `leases`: entries that were removed together are reused together.
  entry_index free_ = no_entry;
};

} // namespace troupe
