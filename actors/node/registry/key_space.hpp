#pragma once

#include "actors/node/registry/eviction_policy.hpp"
#include "actors/node/registry/key_table.hpp"
#include "actors/node/registry/lru_policy.hpp"
#include "actors/node/registry/registry_outbox.hpp"
#include "base/memory_budget.hpp"
#include "base/namespace_spec.hpp"

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

/// One key as tests see it.
struct key_info {
  key_digest key;
  key_digest parent;
  std::int32_t children = 0;
  std::uint32_t leases = 0;
  std::uint32_t live = 0;
  std::uint32_t reserved = 0;
  bool complete = false;
  bool ghost = false;
  bool spare = false;
  /// 0 also if it is known to be over.
  coarse_time protected_until = 0;
};

/// The keys of one namespace in one shard, and the rules that hold for them whoever asks: what makes a key complete,
/// what pins it, who is whose parent, what may be evicted, and which slots go back. Callers, leases and reservations as
/// such are the registry's business.
///
/// An entry exists while it has a page, a reservation, a lease or children. With children only it is a ghost: it keeps
/// their number exact, and is otherwise not there. Protection alone keeps no entry: when the last page goes, what it
/// still holds is the page's slot.
class key_space {
public:
  /// Memory of a slot that is found by its number: `namespace_options::slot_index`.
  static constexpr std::uint64_t bytes_per_indexed_slot = sizeof(std::uint32_t);

  struct settings {
    namespace_spec spec;
    namespace_options options;
    std::uint32_t shard = 0;
    std::uint32_t shard_count = 1;
    std::uint64_t hash_seed = 0;
    /// Report what has to survive a restart.
    bool change_feed = false;
    /// How long children keep a key that would be evicted else.
    duration children_hold = std::chrono::minutes(10);
    /// Null for no limit.
    shared_budget memory{};
    eviction_factory eviction = make_lru_policy;
  };

  explicit key_space(const settings& how);

  key_space(const key_space&) = delete;
  key_space& operator=(const key_space&) = delete;

  const namespace_spec& spec() const noexcept { return *spec_; }
  const namespace_options& options() const noexcept { return options_; }
  const namespace_id& id() const noexcept { return id_; }

  /// Registers a rank, or learns how many slots it has; the rank must be below `rank_limit`. All keys become incomplete
  /// until they have a page of a new one. `incarnation` is kept beside pages that are published from now on; 0 leaves
  /// it as it is.
  void add_rank(rank_number rank, std::uint32_t slots, incarnation_number incarnation = 0);
  /// Forgets how many slots a rank has that has no pages: it can be registered with another number.
  void retire_rank(rank_number rank) noexcept {
    ranks_[rank].slots = 0;
    ranks_[rank].retired = true;
  }
  /// Not registered since.
  bool is_retired(rank_number rank) const noexcept { return ranks_[rank].retired; }
  /// The rank was cleared, or all were; holds until it has a page again, or other slots.
  void note_cleared(rank_number rank) noexcept;
  bool was_cleared(rank_number rank) const noexcept { return ranks_[rank].cleared_slots != 0; }
  incarnation_number incarnation_of(rank_number rank) const noexcept { return ranks_[rank].incarnation; }

  /// The namespace is also somebody else's, which may tell more strictly what becomes of it after a restart.
  void share_with(namespace_origin other);
  bool has_rank(rank_number rank) const noexcept { return rank < rank_limit() && ranks_[rank].registered; }
  std::uint32_t rank_limit() const noexcept { return static_cast<std::uint32_t>(keys_by_live_.size() - 1); }
  std::span<const rank_number> ranks() const noexcept { return table_.ranks(); }
  rank_info info_of(rank_number rank) const;
  /// Whether the rank has such a slot, as far as is known.
  bool has_slot(rank_number rank, slot_number slot) const noexcept {
    return ranks_[rank].slots == 0 || slot < ranks_[rank].slots;
  }

  /// For what it learns, and tells of that.
  eviction_policy& policy() noexcept { return *policy_; }

  /// Lookups, also of single entries and pages.
  const key_table& table() const noexcept { return table_; }

  bool complete(entry_index i) const noexcept { return table_.entry(i).live == complete_at_; }

  /// Appends the entries of the leading complete keys.
  void append_leading_complete(std::span<const key_digest> keys, std::vector<entry_index>& found) const;

  /// Adds a lease to those entries that `held` does not list yet, and lists them. False, with nothing changed, if
  /// `held` would grow beyond `most`.
  [[nodiscard]] bool lease(std::span<const entry_index> entries, std::vector<entry_index>& held, std::size_t most);

  /// Takes one lease from each. Where it was the last one, withheld slots are released and an entry without pages goes.
  void give_back(std::span<const entry_index> entries);

  /// These keys, in prefix order, were used by a request that did not find `missing` others; all have a live page. What
  /// more than `own` leases hold, or what is protected, is in use already: lookups, loads, and all ranks of a request
  /// are one use together. `by_peer`: the use is at another node.
  void touch(std::span<const entry_index> entries, std::uint64_t missing, std::uint32_t own, coarse_time now,
             bool by_peer = false);

  /// Another node has asked for these keys and did not find them here: whatever becomes of them, it is there.
  void missed_by_peer(std::span<const key_digest> keys) {
    for (const auto& key : keys)
      policy_->used_elsewhere(table_.hash_of(key));
  }

  /// These keys, in prefix order, were written by another rank: they belong to what is used now, and that is all.
  void touch_again(std::span<const entry_index> entries);

  /// Another node has made new pages of these keys, which have a live page here, and keeps them: they go before others,
  /// and do not wait for their children, until somebody uses them here. That is advice: what is leased, protected or
  /// reserved stays as it would else.
  void spare(std::span<const entry_index> entries);

  /// These keys got a reservation, in a request that brings as many, and are to be given to `inserted`.
  void announce(std::span<const entry_index> entries) {
    policy_->announced(entries, {.missing = in_all_shards(entries.size())});
  }

  /// The entry of a key, made if need be; `no_entry` if the index is full.
  entry_index find_or_create(const key_digest& key, entry_index hint);

  /// Before keys come that are new, about so many: where the memory has no room for them, those that can be evicted
  /// make place. `find_or_admit` says which keys may come, until the next call.
  void make_room(std::uint64_t fresh, rank_number rank, coarse_time now);

  /// As `find_or_create`; `no_entry` also if there is neither room nor an entry that was given back. Parents are not
  /// asked for, since each is named by a key that came in.
  entry_index find_or_admit(const key_digest& key, entry_index hint);

  /// Brings what is counted against the memory up to date.
  void account() noexcept {
    if (budget_)
      memory_.set(table_.resident_bytes() + policy_->resident_bytes());
  }

  /// Marks the entry. False if it was marked before, since the last `end_request`, to which all entries go.
  bool first_in_request(entry_index i) noexcept {
    const bool first = !table_.entry(i).marked;
    table_.entry(i).marked = true;
    return first;
  }
  void end_request(std::span<const entry_index> entries) noexcept;

  /// Sets the parent where there is none, and tells the parent's shard. `previous` may be the parent's entry.
  void adopt_parent(entry_index i, const key_digest& parent, entry_index previous);

  /// Until then the key is not evicted, nor are slots of its pages given back.
  void protect(entry_index i, coarse_time until) noexcept { table_.entry(i).protect(until); }

  /// `by` says which reservation it is.
  void reserve(entry_index i, rank_number rank, page_cell by);

  /// The slot is about to hold a page of this key: so it is found by its number.
  void assign_slot(entry_index i, rank_number rank, slot_number slot);

  /// The last entry that the slot was assigned to, if any. The entry's page says whether it still has it.
  entry_index assigned_to(rank_number rank, slot_number slot) const noexcept;

  /// Ends a reservation without a page. A slot, if there was one, is aborted, but not before `until`.
  void unreserve(entry_index i, rank_number rank, slot_ref where, coarse_time until = 0);

  /// Ends a reservation with a page. True if it is the first of the key, which then is to be given to `inserted`
  /// or `fetched`.
  bool publish(entry_index i, rank_number rank, slot_ref where);

  /// Keys that have got their first page, in prefix order.
  void inserted(std::span<const entry_index> entries);

  /// As `inserted`, of pages that another node had: somebody here waits for them, and has no lease yet. Until they are
  /// leased, or until then, they are evicted only if nothing else can go. Guests are as others until somebody has
  /// leased them, and whenever nobody does any more, spare.
  void fetched(std::span<const entry_index> entries, bool as_guests, coarse_time now, coarse_time until);

  /// Unpublishes a live page. Its slot is released once the key has no lease, and the protection it has now is over.
  /// `suspect`: because of its bytes, so that somebody may be writing there of whom nothing is known.
  void invalidate(entry_index i, rank_number rank, coarse_time now, bool suspect);

  /// Publishes a page that an earlier run stored; the cell must be empty. True if it is the first of the key, which
  /// then is to be given to `inserted`.
  bool restore(entry_index i, rank_number rank, slot_ref where);

  /// Unpublishes a live page without giving its slot back: the allocator knows it as another page's, or not at all.
  void drop(entry_index i, rank_number rank);

  /// Unpublishes pages of the rank, or of `all_ranks`, looking at up to `most` entries from `from` on. Returns where to
  /// go on, or `table().end()`.
  entry_index clear(rank_number rank, entry_index from, std::uint32_t most, coarse_time now, std::uint64_t& pages);

  /// Releases up to `most` slots whose protection is over, or all that wait for time alone; returns how many.
  std::size_t release_due(coarse_time now, std::size_t most);
  /// Forgets all slots of the rank that wait for time alone: the allocator that they would go back to has ended.
  void forget_timed(rank_number rank);
  /// Slots of the rank that wait for the leases of their keys.
  std::uint64_t withheld_by_leases(rank_number rank) const noexcept;
  /// When the next is due, if any is withheld for time alone.
  std::optional<coarse_time> next_release() const noexcept;

  /// Children in other shards came or went. False if the count would leave its range.
  bool add_children(const key_digest& key, std::int64_t delta);

  struct eviction {
    rank_number rank = 0;
    std::uint32_t wanted = 0;
    std::uint32_t most_looks = 0;
    bool force = false;
  };

  /// Evicts until `wanted` slots of the rank are released, or `most_looks` keys were looked at, or nothing can go.
  /// Unless it is forced, also until so many keys whose turn has come wait for children in other shards that younger
  /// ones would go in their place.
  evict_reply evict(const eviction& what, coarse_time now);

  outbox_collector& outbox() noexcept { return outbox_; }
  /// Appends what the outbox has, with what allocators need to know of it, and forgets it.
  void drain_into(registry_outbox& out);
  release_progress progress_of(rank_number rank) const noexcept { return {shard_, outbox_.released(rank), keys()}; }

  /// Keys with a page.
  std::uint64_t keys() const noexcept { return policy_->size(); }
  std::uint64_t complete_keys() const noexcept { return ranks().empty() ? 0 : keys_by_live_[ranks().size()]; }
  std::uint64_t withheld_slots() const noexcept;
  std::uint64_t evicted_keys() const noexcept { return evicted_keys_; }
  std::uint64_t spare_keys() const noexcept { return spare_keys_; }

  /// A request has asked which of so many keys there are, and so many were found.
  void count_lookup(std::uint64_t asked, std::uint64_t found) noexcept {
    ++lookups_.requests;
    lookups_.asked_keys += asked;
    lookups_.found_keys += found;
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
  /// Beside as many as are wanted.
  static constexpr std::uint64_t most_awaiting = 4;

  struct withheld_slot {
    /// Not before; 0 if only a lease holds it.
    coarse_time until = 0;
    rank_number rank = 0;
    slot_ref where;
    /// Of a page that was live; else it was reserved.
    bool was_live = true;
    bool suspect = false;
  };

  struct rank_state {
    bool registered = false;
    bool retired = false;
    std::uint32_t slots = 0;
    incarnation_number incarnation = 0;
    /// How many slots it had when it was cleared; 0 if it was not, or has had a page since.
    std::uint32_t cleared_slots = 0;
    std::uint64_t pages = 0;
    std::uint64_t reserved = 0;
    std::uint64_t withheld = 0;
    /// By slot: the entry it was assigned to last, plus one. Not cleared when the slot goes back.
    chunked_array<std::uint32_t> assigned;
  };

  static bool later(const withheld_slot& a, const withheld_slot& b) noexcept { return a.until > b.until; }

  /// What keeps the entry from being evicted: nothing, children alone, that it is awaited, or something else.
  enum class hold : std::uint8_t { none, children, awaited, other };

  /// A request's keys fall on all shards alike.
  std::uint64_t in_all_shards(std::uint64_t keys) const noexcept { return keys * shard_count_; }
  /// Has no children any more: one that was kept for them goes next.
  void note_childless(entry_index i);
  void await_no_more(key_entry& e) noexcept;
  void make_spare(entry_index i) noexcept;
  void spare_no_more(key_entry& e) noexcept;
  hold held_by(entry_index i, coarse_time now) const noexcept;
  /// Notes when the entry was held back, and when another look at it may have another outcome.
  void hold_back(entry_index i, hold by, coarse_time now) noexcept;
  bool make_live(entry_index i, rank_number rank, slot_ref where);
  std::uint32_t remove_key(entry_index i, rank_number rank);
  void unpublish(entry_index i, rank_number rank, leave_reason why);
  void release_withheld(entry_index i);
  void withhold_until(const withheld_slot& what);
  void tell_allocator(const withheld_slot& what);
  /// Makes a ghost of an entry that nothing holds, and removes it if it has no children either.
  void settle(entry_index i);
  void change_children(const key_digest& parent, std::int64_t delta);
  void prefetch_for_removal(std::span<const entry_index> entries) const;
  std::string check_entry(entry_index i, const std::unordered_map<entry_index, std::uint32_t>& leases) const;
  std::string check_policy() const;
  std::string check_counts() const;

  // Between two calls, and `check` reads every entry to say whether:
  //
  // - An entry's `live` and `reserved` count the pages of its ranks that are so, and `leases` the leases that list it.
  //   It is in use as long as one of these or `children` is not 0, and has a parent as long as one of the three is not.
  // - The policy has the entries with a live page, and no others.
  // - A slot that was granted is in one place: in a page's cell, with a reservation, in `withheld_`, in `timed_`, or in
  //   the outbox on its way back. An entry has slots in `withheld_` exactly while `withheld` is set in it, which only a
  //   lease keeps: the last one to end moves them on.
  // - `children` counts the entries, of all shards, that have this key as parent, but for what is on its way. A key
  //   names its parent once, however many pages it has, and takes its name back when it is a ghost or gone.

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
  /// New keys may take new memory: what `make_room` found for the request that is under way.
  bool may_grow_ = true;
  outbox_collector outbox_;
  /// Slots that wait for the last lease of a key.
  std::unordered_map<entry_index, std::vector<withheld_slot>> withheld_;
  /// Slots that wait for time alone: a heap, the earliest first.
  std::vector<withheld_slot> timed_;
  std::unique_ptr<rank_state[]> ranks_;
  /// How many keys have so many live pages: when a rank is added, those that were complete are not any more, and how
  /// many there are is known without a scan. Its size is one more than the ranks that there can be.
  std::vector<std::uint64_t> keys_by_live_;
  /// Live pages of a complete key.
  std::uint32_t complete_at_ = nothing_complete;
  std::uint64_t evicted_keys_ = 0;
  /// Entries with `spare`.
  std::uint64_t spare_keys_ = 0;
  /// Those the policy is about to be told of. Kept between calls for its memory.
  std::vector<entry_index> spared_;
  lookup_counts lookups_;

  /// Entries with `awaits_children`.
  std::uint64_t awaiting_children_ = 0;
  /// One of them was told to the policy to go next.
  bool freed_ = false;

  /// Keys looked at in vain since the last success, and whether meanwhile any key may have become evictable (a lease or
  /// a reservation ended, children went, a page came). Nothing can be evicted when a whole round was in vain and
  /// nothing has changed; this is known without looking again, or an allocator that is out of slots would have every
  /// key looked at for each request. A round is as many looks as the policy has entries, since it proposes each before
  /// one again; it may take several calls.
  std::uint64_t looked_in_vain_ = 0;
  bool chance_ = true;
  bool exhausted_ = false;
  /// Some of them are awaited. If these would not go when nothing else can, pages that came behind one that did not,
  /// for which nobody can come, would have all the room for seconds, and each fetch would leave more of them.
  bool passed_over_awaited_ = false;
  /// A whole round was in vain, so awaited keys may go as well, until one goes that is not, or somebody gives one back.
  bool takes_awaited_ = false;
  /// When the first of them is not protected any more, nor held by its children.
  coarse_time first_unprotected_ = coarse_never;
};

} // namespace troupe
