#pragma once

#include "actors/node/eviction/eviction_policy.hpp"
#include "actors/node/eviction/lru_policy.hpp"
#include "actors/node/registry/key_table.hpp"
#include "actors/node/registry/lookup_history.hpp"
#include "actors/node/registry/registry_outbox.hpp"
#include "base/memory_budget.hpp"
#include "base/namespace_spec.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

/// The state of one key, for tests.
struct key_info {
  key_digest key;
  key_digest parent;
  std::int32_t children = 0;
  std::uint32_t leases = 0;
  std::uint32_t live = 0;
  std::uint32_t reserved = 0;
  bool complete = false;
  bool ghost = false;
  bool evict_first = false;
  /// 0 if there is no protection, or if it is known to have expired.
  coarse_time protected_until = 0;
};

/// The keys of one namespace in one shard, with the rules that hold for every caller: what makes a key complete, what
/// pins it, which key is its parent, what may be evicted, and which slots return to the allocator. The registry manages
/// callers, leases and reservations themselves.
///
/// An entry exists while it has a page, a reservation, a lease or children. An entry that has only children is a ghost:
/// it keeps the child count exact and counts as absent otherwise. Protection alone does not keep an entry: when the
/// last page is unpublished, protection still withholds the page's slot.
class key_space {
public:
  /// Bytes per slot of the index from slot numbers to entries: `namespace_options::slot_index`.
  static constexpr std::uint64_t bytes_per_indexed_slot = sizeof(std::uint32_t);

  struct settings {
    namespace_spec spec;
    namespace_options options;
    std::uint32_t shard = 0;
    std::uint32_t shard_count = 1;
    std::uint64_t hash_seed = 0;
    /// Whether changes that must survive a restart are reported in the outbox.
    bool change_feed = false;
    /// Whether events are published about keys.
    bool describes = false;
    /// How long children keep a key that would otherwise be evicted.
    duration children_hold = std::chrono::minutes(10);
    /// Null means no limit.
    shared_budget memory{};
    eviction_factory eviction = make_lru_policy;
    /// Where key events are noted; null if they are not.
    std::shared_ptr<lookup_history> history{};
  };

  explicit key_space(const settings& how);

  key_space(const key_space&) = delete;
  key_space& operator=(const key_space&) = delete;

  const namespace_spec& spec() const noexcept { return *spec_; }
  const namespace_options& options() const noexcept { return options_; }
  const namespace_id& id() const noexcept { return id_; }

  /// Notes what happened to the key, where such events are noted.
  void note(const key_digest& key, key_event what, rank_number rank) const {
    if (history_)
      history_->note(id_, key, what, rank);
  }

  /// Registers a rank, or records how many slots it has. The rank must be below `rank_limit`. All keys become
  /// incomplete until a new rank has a page of them. `incarnation` is stored with pages that are published from now on;
  /// 0 leaves it unchanged.
  void add_rank(rank_number rank, std::uint32_t slots, incarnation_number incarnation = 0);
  /// Forgets the slot count of a rank that has no pages, so that it can be registered with another number.
  void retire_rank(rank_number rank) noexcept {
    ranks_[rank].slots = 0;
    ranks_[rank].retired = true;
  }
  /// Whether the rank was retired and has not been registered since.
  bool is_retired(rank_number rank) const noexcept { return ranks_[rank].retired; }
  /// Notes that the rank, or all ranks, was cleared; holds until the rank has a page again or other slots.
  void note_cleared(rank_number rank) noexcept;
  bool was_cleared(rank_number rank) const noexcept { return ranks_[rank].cleared_slots != 0; }
  incarnation_number incarnation_of(rank_number rank) const noexcept { return ranks_[rank].incarnation; }

  /// Adds another origin of the namespace, which may restrict what a restart restores of it.
  void share_with(namespace_origin other);
  bool has_rank(rank_number rank) const noexcept { return rank < rank_limit() && ranks_[rank].registered; }
  std::uint32_t rank_limit() const noexcept { return static_cast<std::uint32_t>(keys_by_live_.size() - 1); }
  std::span<const rank_number> ranks() const noexcept { return table_.ranks(); }
  rank_info info_of(rank_number rank) const;
  /// Whether the rank's file has such a slot, as far as is known; true if its slot count is unknown. A slot beyond it
  /// is for a page that is in memory only.
  bool has_slot(rank_number rank, slot_number slot) const noexcept {
    return ranks_[rank].slots == 0 || slot < ranks_[rank].slots;
  }

  /// The policy, for `learn_from` and `knowledge`.
  eviction_policy& policy() noexcept { return *policy_; }

  /// The table, for lookups of keys, entries and pages.
  const key_table& table() const noexcept { return table_; }

  bool complete(entry_index i) const noexcept { return table_.entry(i).live == complete_at_; }

  /// Appends the entries of the leading complete keys. Returns the entry of the key behind them; `no_entry` if it has
  /// none, or if all are complete.
  entry_index append_leading_complete(std::span<const key_digest> keys, std::vector<entry_index>& found) const;

  /// Appends the entries of all complete keys, and one mark for each key: 1 if it is complete. Returns the entry of the
  /// first other key; `no_entry` if it has none, or if all are complete.
  entry_index append_complete(std::span<const key_digest> keys, std::vector<entry_index>& found,
                              std::vector<std::uint8_t>& marks) const;

  /// Adds a lease to those entries that `held` does not list yet, and lists them. Returns false, with nothing changed,
  /// if `held` would grow beyond `most`.
  [[nodiscard]] bool lease(std::span<const entry_index> entries, std::vector<entry_index>& held, std::size_t most);

  /// Takes one lease from each entry. The last lease to end releases withheld slots and removes an entry without pages.
  void give_back(std::span<const entry_index> entries);

  /// Records that these keys, in prefix order, were used by a request that did not find `missing` others; all have a
  /// live page. An entry is in use already if more than `own` leases hold it or if it is protected: lookups, loads, and
  /// all ranks of a request count as one use together. `by_peer`: the use happened at another node.
  void touch(std::span<const entry_index> entries, std::uint64_t missing, std::uint32_t own, coarse_time now,
             bool by_peer = false);

  /// Records that another node asked for these keys and did not find them here: their next use happens there.
  void missed_by_peer(std::span<const key_digest> keys) {
    for (const auto& key : keys)
      policy_->used_elsewhere(table_.hash_of(key));
  }

  /// Moves these keys, in prefix order, to the young end because another rank wrote them. This does not count as a use.
  void touch_again(std::span<const entry_index> entries);

  /// Marks keys with a live page here as evicted first, because another node has made new pages of them and keeps
  /// those. They do not wait for their children. Local use ends the mark. It is only advice: leased, protected or
  /// reserved keys stay as before.
  void evict_first(std::span<const entry_index> entries);

  /// Announces to the policy that these keys have a reservation of one request and will be passed to `inserted`.
  void announce(std::span<const entry_index> entries) {
    policy_->announced(entries, {.missing = in_all_shards(entries.size())});
  }

  /// Returns the entry of a key, created if necessary; `no_entry` if the index is full.
  entry_index find_or_create(const key_digest& key, entry_index hint);

  /// Prepares for about `fresh` new keys: evicts keys where the memory budget has no room for them. Decides which keys
  /// `find_or_admit` may create until the next call.
  void make_room(std::uint64_t fresh, rank_number rank, coarse_time now);

  /// As `find_or_create`, but also returns `no_entry` if there is neither room nor a free entry. Parents need no check,
  /// because each is named by a key that was admitted.
  entry_index find_or_admit(const key_digest& key, entry_index hint);

  /// Updates the usage that is counted against the memory budget.
  void account() noexcept {
    if (budget_)
      memory_.set(table_.resident_bytes() + policy_->resident_bytes());
  }

  /// Marks the entry. False if it was already marked since the last `end_request`, to which all marked entries are
  /// passed.
  bool first_in_request(entry_index i) noexcept {
    const bool first = !table_.entry(i).marked;
    table_.entry(i).marked = true;
    return first;
  }
  void end_request(std::span<const entry_index> entries) noexcept;

  /// Sets the parent if there is none, and notifies the parent's shard. `previous` may be the parent's entry.
  void adopt_parent(entry_index i, const key_digest& parent, entry_index previous);

  /// Protects the key until that time: it is not evicted, and slots of its pages do not return to the allocator.
  void protect(entry_index i, coarse_time until) noexcept { table_.entry(i).protect(until); }

  /// Marks the page as reserved; `by` identifies the reservation.
  void reserve(entry_index i, rank_number rank, page_cell by);

  /// Records that the slot is about to hold a page of this key, so that the key is found by slot number.
  void assign_slot(entry_index i, rank_number rank, slot_number slot);

  /// Returns the last entry that the slot was assigned to, if any. The entry's page says whether it still has the slot.
  entry_index assigned_to(rank_number rank, slot_number slot) const noexcept;

  /// Ends a reservation without a page. Its slot, if there was one, is aborted, but not before `until`.
  void unreserve(entry_index i, rank_number rank, slot_ref where, coarse_time until = 0);

  /// Ends a reservation with a page. True if it is the first page of the key; pass the key to `inserted` or `fetched`
  /// then.
  bool publish(entry_index i, rank_number rank, slot_ref where);

  /// Announces to the policy that these keys, in prefix order, have their first page.
  void inserted(std::span<const entry_index> entries);

  /// As `inserted`, for pages that were fetched from another node. A local request waits for them and has no lease yet,
  /// so until they are leased, or until `until`, they are evicted only if nothing else can be. With `as_transient` the
  /// keys are transient: ordinary until the first lease, and evicted first whenever no lease holds them any more.
  void fetched(std::span<const entry_index> entries, bool as_transient, coarse_time now, coarse_time until);

  /// Unpublishes a live page. Its slot is released once the key has no lease and the protection it has now has expired.
  /// `suspect`: the page's bytes are the reason, so that an unknown writer may still be writing there.
  void invalidate(entry_index i, rank_number rank, coarse_time now, bool suspect);

  /// Publishes a page that an earlier run stored; the cell must be empty. True if it is the first page of the key; pass
  /// the key to `inserted` then.
  bool restore(entry_index i, rank_number rank, slot_ref where);

  /// Unpublishes a live page without returning its slot: for the allocator the slot is another page's, or unknown.
  void drop(entry_index i, rank_number rank);

  /// Unpublishes pages of the rank, or of `all_ranks`, looking at up to `most` entries from `from` on. Returns the
  /// entry to continue at, or `table().end()`.
  entry_index clear(rank_number rank, entry_index from, std::uint32_t most, coarse_time now, std::uint64_t& pages);

  /// Releases up to `most` slots that wait for time alone and whose protection has expired. Returns how many.
  std::size_t release_due(coarse_time now, std::size_t most);
  /// Forgets all slots of the rank that wait for time alone, because their allocator has ended.
  void forget_timed(rank_number rank);
  /// Number of slots of the rank that wait for the leases of their keys.
  std::uint64_t withheld_by_leases(rank_number rank) const noexcept;
  /// When the next slot that waits for time alone is due, if there is one.
  std::optional<coarse_time> next_release() const noexcept;

  /// Applies a change in the number of children in other shards. False if the count would leave its range.
  bool add_children(const child_delta& change);

  struct eviction {
    rank_number rank = 0;
    std::uint32_t wanted = 0;
    std::uint32_t most_looks = 0;
    bool force = false;
    /// The reason, for explanations.
    key_event why = key_event::evicted;
  };

  /// Evicts until `wanted` slots of the rank are released, `most_looks` keys were examined, or no key can be evicted.
  /// Without `force` it also stops when many keys whose turn has come wait for children in other shards, because
  /// younger keys would be evicted in their place.
  evict_reply evict(const eviction& what, coarse_time now);

  // -- the namespaces of a model's other groups of layers, which have the same keys: `group_eviction`

  /// What happened since the last call that decides what the pages of other groups are worth.
  struct group_changes {
    /// Keys that were evicted.
    std::vector<key_digest> evicted;
    /// Keys whose last child was evicted, and which are not evicted next anyway: the longest prefixes that are left.
    std::vector<key_digest> ends;

    bool empty() const noexcept { return evicted.empty() && ends.empty(); }
  };

  /// Whether changes are collected, for `take_group_changes`. Nothing is collected at first.
  void collect_group_changes(bool wanted);
  group_changes take_group_changes();

  /// Whether keys have parents here, as in a group that needs the whole of a prefix.
  bool has_chains() const noexcept { return has_chains_; }
  /// Whether the key has a page, or will have one that is being written.
  bool has_page_of(const key_digest& key) const noexcept;
  /// Whether the key has a page and no other key follows it.
  bool ends_at(const key_digest& key) const noexcept;

  /// Has the policy propose these keys before all others, the first one first, until they are used, because no hit can
  /// need their pages any more. Not those that are in use now. What holds a key holds it as before.
  void no_hit_needs(std::span<const key_digest> keys);

  /// The keys about which events are published; null if none are.
  described_keys* described() noexcept { return outbox_.described(); }
  const described_keys* described() const noexcept { return outbox_.described(); }

  outbox_collector& outbox() noexcept { return outbox_; }
  /// Moves the contents of the outbox to `out`, and adds what allocators need to know about it.
  void drain_into(registry_outbox& out);
  release_progress progress_of(rank_number rank) const noexcept { return {shard_, outbox_.released(rank), keys()}; }

  /// Number of keys with a page.
  std::uint64_t keys() const noexcept { return policy_->size(); }
  std::uint64_t complete_keys() const noexcept { return ranks().empty() ? 0 : keys_by_live_[ranks().size()]; }
  std::uint64_t withheld_slots() const noexcept;
  std::uint64_t evicted_keys() const noexcept { return evicted_keys_; }
  std::uint64_t evict_first_keys() const noexcept { return evict_first_keys_; }

  /// How many of these complete keys were fetched from another node, and not leased since.
  std::uint32_t count_awaited(std::span<const entry_index> entries, coarse_time now) const noexcept;

  /// Counts a lookup of `asked` keys that found `found` of them.
  void count_lookup(std::uint64_t asked, std::uint64_t found) noexcept {
    ++lookups_.requests;
    lookups_.asked_keys += asked;
    lookups_.found_keys += found;
  }
  /// Counts where the pages of the found keys of a lookup were; those that were fetched for it are in none of the
  /// others.
  void count_tiers(std::uint64_t found, std::uint64_t on_disk, std::uint64_t fetched) noexcept {
    lookups_.disk_keys += on_disk;
    lookups_.peer_keys += std::min(fetched, found - on_disk);
    lookups_.memory_keys += found - on_disk - std::min(fetched, found - on_disk);
  }
  const lookup_counts& lookups() const noexcept { return lookups_; }
  std::uint64_t resident_bytes() const noexcept;

  /// For tests; they read every entry.
  void for_each_key(const std::function<void(const key_info&)>& f) const;
  void for_each_withheld(const std::function<void(rank_number, slot_ref)>& f) const;
  /// The first inconsistency, or an empty text. `leases` says how many leases list each entry.
  std::string check(const std::unordered_map<entry_index, std::uint32_t>& leases) const;

private:
  static constexpr std::uint32_t nothing_complete = 0xffffffff;
  /// Keys that may await children, in addition to as many as are wanted.
  static constexpr std::uint64_t most_awaiting = 4;

  struct withheld_slot {
    /// The slot is released at this time or later; 0 if only a lease holds it.
    coarse_time until = 0;
    rank_number rank = 0;
    slot_ref where;
    /// Whether the page was live; otherwise it was reserved.
    bool was_live = true;
    bool suspect = false;
  };

  struct rank_state {
    bool registered = false;
    bool retired = false;
    std::uint32_t slots = 0;
    incarnation_number incarnation = 0;
    /// How many slots the rank had when it was cleared; 0 if it was not cleared or has had a page since.
    std::uint32_t cleared_slots = 0;
    std::uint64_t pages = 0;
    std::uint64_t reserved = 0;
    std::uint64_t withheld = 0;
    /// By slot: the entry it was assigned to last, plus one. Not cleared when the slot is released.
    chunked_array<std::uint32_t> assigned;
  };

  /// What is known from looking at keys that could not be evicted, and whether one is being evicted.
  ///
  /// Nothing can be evicted after a whole round without success and without a change. Remembering this saves a scan of
  /// all keys for each request of an allocator that has no slots. A round is as many checks as the policy has entries,
  /// because it proposes each entry before any of them again. A round may take several calls.
  struct eviction_round {
    /// Keys examined without success since the last eviction.
    std::uint64_t in_vain = 0;
    /// Whether any key may have become evictable meanwhile: a lease or a reservation ended, children were removed, a
    /// page was published.
    bool chance = true;
    bool exhausted = false;
    /// Whether some of the examined keys are awaited. They must be evictable when nothing else is. Otherwise pages that
    /// arrived after a gap in their prefix, which no request can lease, would occupy all the room for seconds, and each
    /// fetch would add more of them.
    bool passed_over_awaited = false;
    /// Whether awaited keys may be evicted too, because a whole round was without success. Holds until a key is evicted
    /// that is not awaited, or a lease is released.
    bool takes_awaited = false;
    /// While a key is being removed.
    bool evicting = false;
    /// Whether a key that awaited children was passed to `policy_->freed`, to be evicted next.
    bool freed = false;
    /// Whether keys were ever fetched from another node, so that some may be awaited.
    bool may_await = false;
    /// When the first of the examined keys is neither protected nor held by its children any more.
    coarse_time first_unprotected = coarse_never;
  };

  static bool later(const withheld_slot& a, const withheld_slot& b) noexcept { return a.until > b.until; }

  /// Why an entry cannot be evicted: no reason, children alone, awaited by a reader, or another reason.
  enum class hold : std::uint8_t { none, children, awaited, other };

  /// Scales a count from this shard to all: the keys of a request spread evenly over the shards.
  std::uint64_t in_all_shards(std::uint64_t keys) const noexcept { return keys * shard_count_; }
  /// Called when an entry loses its last child: if it was kept for its children, it is evicted next.
  void note_childless(entry_index i, bool was_evicted);
  void await_no_more(key_entry& e) noexcept;
  void mark_evict_first(entry_index i) noexcept;
  void unmark_evict_first(key_entry& e) noexcept;
  hold held_by(entry_index i, coarse_time now) const noexcept;
  /// Notes when the entry was held back, and when another check may have another result.
  void hold_back(entry_index i, hold by, coarse_time now) noexcept;
  bool make_live(entry_index i, rank_number rank, slot_ref where);
  std::uint32_t remove_key(entry_index i, const eviction& what, lookup_history::batch& notes);
  void unpublish(entry_index i, rank_number rank, leave_reason why);
  /// The key is not complete any more: what was said about it has ended.
  void end_description(entry_index i);
  void release_withheld(entry_index i);
  void withhold_until(const withheld_slot& what);
  void notify_allocator(const withheld_slot& what);
  /// Turns an entry that nothing holds into a ghost, and removes it if it has no children either.
  void settle(entry_index i);
  void change_children(const child_delta& change);
  void prefetch_for_removal(std::span<const entry_index> entries) const;
  std::string check_entry(entry_index i, const std::unordered_map<entry_index, std::uint32_t>& leases) const;
  std::string check_policy() const;
  std::string check_counts() const;

  // Invariants between two calls; `check` verifies them by reading every entry:
  //
  // - An entry's `live` and `reserved` count its pages in that state, and `leases` the leases that list it. The entry
  //   is in use while one of these or `children` is not 0, and has a parent while one of the first three is not 0.
  // - The policy has exactly the entries with a live page.
  // - A granted slot is in one place: in a page's cell, with a reservation, in `withheld_`, in `timed_`, or in the
  //   outbox to be returned. An entry has slots in `withheld_` exactly while its `withheld` is set, and then a lease
  //   holds it: the last lease to end moves them on.
  // - `children` counts the entries, of all shards, that have this key as parent, except for messages in flight. A key
  //   names its parent once, however many pages it has, and withdraws when it becomes a ghost or is removed.

  std::shared_ptr<const namespace_spec> spec_;
  namespace_options options_;
  namespace_id id_;
  std::uint32_t shard_;
  std::uint32_t shard_count_;
  coarse_time children_hold_;
  key_table table_;
  std::unique_ptr<eviction_policy> policy_;
  shared_budget budget_;
  memory_share memory_;
  /// Whether new keys may take new memory; `make_room` decides it for the current request.
  bool may_grow_ = true;
  outbox_collector outbox_;
  std::shared_ptr<lookup_history> history_;
  /// Slots that wait for the last lease of a key.
  std::unordered_map<entry_index, std::vector<withheld_slot>> withheld_;
  /// Slots that wait for time alone: a heap with the earliest first.
  std::vector<withheld_slot> timed_;
  std::unique_ptr<rank_state[]> ranks_;
  /// How many keys have n live pages. When a rank is added, complete keys become incomplete, and their number is known
  /// without a scan. The size is the largest number of ranks plus one.
  std::vector<std::uint64_t> keys_by_live_;
  /// Live pages of a complete key.
  std::uint32_t complete_at_ = nothing_complete;
  std::uint64_t evicted_keys_ = 0;
  /// Entries with `evict_first`.
  std::uint64_t evict_first_keys_ = 0;
  /// Entries about to be passed to `policy_->marked_evict_first`. Kept between calls for its memory.
  std::vector<entry_index> evict_first_entries_;
  /// Null where changes are not collected.
  std::unique_ptr<group_changes> group_changes_;
  bool has_chains_ = false;
  lookup_counts lookups_;

  /// Entries with `awaits_children`.
  std::uint64_t awaiting_children_ = 0;
  eviction_round round_;
};

} // namespace troupe
