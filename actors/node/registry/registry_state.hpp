#pragma once

#include "actors/node/registry/anonymous_table.hpp"
#include "actors/node/registry/coarse_clock.hpp"
#include "actors/node/registry/hold_counts.hpp"
#include "actors/node/registry/key_space.hpp"
#include "actors/node/registry/lease_table.hpp"
#include "actors/node/registry/registry_outbox.hpp"
#include "actors/node/registry/reservation_table.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/memory_budget.hpp"
#include "base/namespace_spec.hpp"
#include "base/node_condition.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe {

/// Limits of one registry shard, and its place among the shards.
struct registry_options {
  std::uint32_t shard = 0;
  std::uint32_t shard_count = 1;
  std::uint32_t max_namespaces = 64;
  /// Keys or pages of one request.
  std::uint32_t max_batch = 8192;
  duration max_lease = std::chrono::minutes(10);
  duration max_reservation = std::chrono::minutes(10);
  /// Of keys that are located without a lease.
  duration max_protection = std::chrono::minutes(10);
  /// The longest time that clients without tokens may have been promised before a restart, which forgets them. Keys
  /// that are restored are protected for as long, where slots are known by number.
  duration promised{};
  std::uint32_t max_leases = 1U << 16;
  std::uint32_t max_leases_per_owner = 1U << 14;
  /// Keys held by one lease.
  std::uint32_t max_lease_keys = 1U << 16;
  /// Pages reserved at one time, by all and by one owner (the latter counts requests). Those of writers without tokens
  /// count among all.
  std::uint32_t max_reserved_pages = 1U << 20;
  std::uint32_t max_reservations_per_owner = 1U << 12;
  /// A key whose turn it is to be evicted is kept by its children for so long; then it goes before them. What clients
  /// say of parents may be untrue, and they might name each other in a ring.
  duration children_hold = std::chrono::minutes(10);
  /// Keys looked at by one call of `evict`, whatever is wanted.
  std::uint32_t max_eviction_looks = 1U << 14;
  /// Keys and pages given back by one `tick`.
  std::uint32_t tick_work = 1U << 13;
  /// Ranks that a namespace may allow itself when they are registered at run time.
  std::uint32_t max_ranks = 1024;
  /// Keys looked at by one call of `clear` or `remove_namespace`.
  std::uint32_t max_clear_looks = 1U << 13;
  /// Report in the outbox what has to survive a restart.
  bool change_feed = false;
  /// Makes the hash of the key index unpredictable. Any value will do in tests.
  std::uint64_t hash_seed = 0;
  /// Of keys, leases and reservations, shared with others; null for no limit. When it is used up, a new key takes the
  /// place of one that can be evicted, or its reservation answers full, and there are no new leases.
  shared_budget memory{};
  /// Says in which namespaces nothing can be saved; null if nobody does.
  std::shared_ptr<node_condition> condition{};
};

/// Names a reservation that waits for slots, from `begin_reserve` to `finish_reserve`.
using plan_id = std::uint64_t;

/// What `begin_reserve` or `begin_allocate` found.
struct reserve_plan {
  enum class kind : std::uint8_t {
    /// `reply` is the answer.
    answered,
    /// Take `slots_needed` slots from the rank's allocator, then call `finish_reserve` exactly once, also when the
    /// allocator gave nothing or could not be asked.
    needs_slots,
    /// The same request is under way: its answer, when `finish_reserve` gives it for `plan`, is this one's too.
    pending,
    /// Slots for some of the keys are being asked for under `plan`, by another request. Nothing has changed: ask again
    /// after `finish_reserve` for `plan`.
    wait,
  };

  kind what = kind::answered;
  plan_id plan = 0;
  std::uint32_t slots_needed = 0;
  reserve_reply reply;
};

/// The rules of one registry shard: which keys exist, where their pages lie, who holds them, what is evicted. Plain
/// C++; owned and called by one actor, not thread-safe. Time is an argument and must not run backwards.
///
/// A call that returns an error has changed nothing (but what had expired by `now` may have been given back), and is
/// counted in `registry_stats::refused` unless it is a plain not_found. After each call, `take_outbox` has what is to
/// be sent to allocators and other shards.
///
/// Slots belong to the allocators. The registry holds those it was granted: reserved ones until commit or abort, live
/// ones until eviction or invalidation, and gives back each exactly once.
class registry_state {
public:
  explicit registry_state(const registry_options& options);
  ~registry_state();

  registry_state(const registry_state&) = delete;
  registry_state& operator=(const registry_state&) = delete;

  // -- namespaces and ranks

  /// Makes the namespace known. The same identity again is fine. identity_mismatch if the name stands for another
  /// identity, or has other options, naming each difference; busy while the namespace is being removed.
  result<void> add_namespace(const namespace_spec& spec, const namespace_options& options = {});

  /// As `add_rank_request` says, but for the allocator, of which the actor knows.
  result<void> add_rank(const namespace_id& space, rank_number rank, std::uint32_t slots,
                        incarnation_number incarnation = 0);

  /// As `retire_rank_request` says, but for the allocator.
  result<void> retire_rank(const namespace_id& space, rank_number rank);

  /// As `remove_namespace_request` says. Slots go back through the outbox, withheld ones too. `tick` ends leases and
  /// reservations; there is `more` as long as any are left, slots on their way to a reservation included.
  result<remove_namespace_reply> remove_namespace(const remove_namespace_request& request, timestamp now);

  result<describe_reply> describe(const describe_request& request) const;
  result<key_reply> look_up(const key_request& request, timestamp now);

  // -- for clients that hold leases and tickets

  /// Leases the leading complete keys. No lease comes into being where nothing matches. A lease that exists is extended
  /// to the later deadline. limit_exceeded if that went beyond the bounds of the request; then all is as it was.
  result<match_reply> match(const match_request& request, timestamp now);

  /// Leases the keys of which the rank has a live page, complete or not.
  result<locate_reply> locate(const locate_request& request, timestamp now);

  /// A lease that is gone (released before, expired, or nothing matched) is given back with success: a repeated
  /// request gets the answer of the first. With `must_exist`, only one that was here not long ago.
  result<void> release(const release_request& request, timestamp now);

  /// not_found if the lease is gone: what was read under it may have been replaced.
  result<void> renew(const renew_request& request, timestamp now);

  /// Marks the keys without a page as being written by this ticket and says how many slots they need. A key that occurs
  /// twice is busy the second time. Parents, where given, are linked.
  ///
  /// The same ticket and rank again gets the first answer as long as any page of it is reserved: the same slots, exists
  /// for what was committed meanwhile, expired for what was aborted. With other keys: invalid_argument.
  result<reserve_plan> begin_reserve(const reserve_request& request, timestamp now);

  /// Hands out the granted slots in prefix order; keys for which there are too few answer full and are free for the
  /// next writer. The reservation's time starts again. If the reservation has ended meanwhile, all slots go back
  /// through the outbox and the error is expired.
  result<reserve_reply> finish_reserve(plan_id plan, std::span<const slot_ref> granted, timestamp now);

  /// Publishes pages. Per page: ok (also when it was committed before); expired when the reservation has ended;
  /// not_owner when another writer has the page; stale when the slot is not the one that was reserved, or another page
  /// is live; not_found for what was never reserved under this ticket.
  result<finish_reply> commit(const finish_request& request, timestamp now);

  /// Gives up reserved pages; their slots go back by way of the quarantine. A generation of 0 stands for whatever slot
  /// was reserved, and no pages at all for all of the ticket's: a writer need not know the lost answer. Per page: ok
  /// (also when it had ended before); not_owner when it was committed or is another's; stale; not_found.
  result<finish_reply> abort(const finish_request& request, timestamp now);

  /// Unpublishes live pages that are named exactly. Per page: ok, stale, not_found.
  result<finish_reply> invalidate(const invalidate_request& request, timestamp now);

  // -- for clients without; messages/registry_messages.hpp says what each code means

  result<result_codes> exists(const exists_request& request);
  result<locate_reply> protect(const protect_request& request, timestamp now);

  /// Finds or reserves a slot for each key. With `may_wait`, a request that touches keys for which slots are being
  /// asked for is told to `wait`; otherwise these keys are busy. A plan is finished by `finish_reserve`, as all are.
  result<reserve_plan> begin_allocate(const allocate_request& request, timestamp now, bool may_wait);
  result<result_codes> confirm(const confirm_request& request, timestamp now);
  result<result_codes> reclaim(const reclaim_request& request, timestamp now);

  // -- for administrators

  result<result_codes> erase(const erase_request& request, timestamp now);
  result<clear_reply> clear(const clear_request& request, timestamp now);

  // -- restoring; before anything else but namespaces and ranks are added

  /// Takes pages that an earlier run stored, in any order, in any number of calls; one code each, see
  /// `restore_request`. Child counts follow, those of other shards through the outbox. What is not taken is reported as
  /// unpublished, so that it is not stored any more. invalid_argument after `restored`.
  result<result_codes> restore(std::span<const stored_page> pages);

  /// Drops pages that were restored: the allocator has heard of another claim on their slots. Codes are ok and
  /// not_found.
  result<result_codes> drop_restored(const namespace_id& space, rank_number rank, std::span<const slot_ref> slots);

  /// Ends restoring.
  result<restore_report> restored();

  // -- what other parts of a node tell

  /// Children in other shards came or went.
  result<void> count_children(const children_request& request, timestamp now);

  result<evict_reply> evict(const evict_request& request, timestamp now);

  /// Ends all leases and reservations of the owner. Like `tick` it does a bounded part, and returns true if `tick` is
  /// to be called for the rest.
  bool owner_died(owner_id owner, timestamp now);

  /// Ends what has expired; a bounded part of it. True if more is left.
  bool tick(timestamp now);

  /// When `tick` has something to do.
  std::optional<timestamp> next_deadline() const;

  registry_stats stats() const;

  registry_outbox take_outbox();

  const registry_options& options() const noexcept { return options_; }

  /// Keys with at least one page, in all namespaces.
  std::uint64_t keys() const;
  bool is_complete(const namespace_id& space, const key_digest& key) const;
  /// Empty for one that is not known.
  std::string space_name(const namespace_id& space) const;

  /// What a slot that is not with its allocator is doing here; reserved is with or without a token.
  enum class page_use : std::uint8_t { reserved, live, withheld };

  /// For tests and simulations: full scans.
  void for_each_key(const namespace_id& space, const std::function<void(const key_info&)>& f) const;
  void for_each_slot(const namespace_id& space, const std::function<void(rank_number, slot_ref, page_use)>& f) const;
  /// The first violated invariant in words, or an empty text.
  std::string check_invariants() const;

private:
  struct checked_space {
    std::uint32_t number = 0;
    key_space& keys;
  };

  /// A namespace that answers nobody any more, and how far it is cleared.
  struct removal {
    std::uint32_t space = 0;
    entry_index from = 0;
  };

  struct restoring;

  tl::unexpected<error> refuse(error why);

  const key_space* find_space(const namespace_id& id) const;
  result<std::uint32_t> space_number(const namespace_id& id) const;
  std::uint32_t free_space_number() const;
  /// The namespace, if it and the rank exist.
  result<checked_space> find_rank(const namespace_id& id, rank_number rank) const;
  /// The same, and where the keys of the pages are: one entry each in `found_`. Refuses what makes no sense.
  result<checked_space> find_written(const namespace_id& id, rank_number rank, std::span<const page_ref> pages);
  std::optional<error> check_rank(const key_space& space, rank_number rank) const;
  static std::optional<error> check_duration(duration x, duration most, std::string_view what);
  std::optional<error> check_batch(std::size_t n) const;
  std::optional<error> check_keys(std::span<const key_digest> keys) const;
  std::optional<error> check_pages(std::span<const page_ref> pages) const;
  std::optional<error> check_new_keys(std::span<const key_digest> keys, std::span<const key_digest> parents) const;
  std::optional<error> check_reserve(const key_space& space, const reserve_request& request) const;
  std::optional<error> check_lookup(std::uint32_t space, const ticket& lease, duration lease_for,
                                    std::span<const key_digest> keys, timestamp now);
  std::optional<error> check_same_lease(std::uint32_t space, const ticket& name, timestamp now);
  std::optional<error> check_reservation_limits(std::uint64_t pages, owner_id owner) const;
  /// Brings what is counted against the budget up to date.
  void account();

  /// Where the rank's pages lie, one answer per key; `used_` are the entries that were found.
  packed<location> find_pages(const key_space& space, rank_number rank, std::span<const key_digest> keys,
                              bool complete_only);

  /// The lease if its deadline is not over; one whose deadline is over is ended here.
  std::optional<lease_number> live_lease(const ticket& name, timestamp now);
  void end_lease(lease_number number);
  void expire_lease(lease_number number);
  /// Gives back what the lease holds from that place on.
  void give_back_from(lease& l, std::size_t first);
  /// Gives back what the last use of a lease brought beyond its first `keep` keys.
  void trim_last_use(lease_number number, std::uint32_t keep);
  /// Leases the entries under the ticket. How often it was used now; 0 where there is no lease.
  result<std::uint32_t> take_lease(std::uint32_t space, const ticket& name, duration lease_for,
                                   const lease_bounds& bounds, std::span<const entry_index> entries, timestamp now);
  /// Counts what the lease holds from that place on, or gives it back if that is beyond the bounds.
  std::optional<error> count_holds(lease& l, std::size_t first, const lease_bounds& bounds, timestamp now);
  std::optional<error> check_readers(std::uint32_t space, std::uint32_t share, std::uint64_t held) const;
  /// So many millionths of the keys that this shard has room for; at least one.
  std::uint64_t keys_in_share(const key_space& space, std::uint32_t share) const;

  std::optional<reservation_number> live_reservation(const reservation_name& name, timestamp now);
  /// Aborts what is reserved and ends the reservation, or leaves it dropped if slots are on their way to it.
  void end_reservation(reservation_number number);
  void expire_reservation(reservation_number number);
  void abort_page(page_record record, errc answer);
  void close_if_ended(reservation_number number);
  result<reserve_plan> repeat_reserve(reservation_number number, const key_digest& fingerprint) const;
  void mark_keys(key_space& space, const reservation_name& name, const reserve_request& request, timestamp now,
                 std::vector<location>& answers, std::optional<reservation_number>& number);

  errc commit_page(key_space& space, const reservation_name& name, std::optional<reservation_number> number,
                   const page_ref& page, entry_index entry, bool must_exist);
  errc abort_one(const key_space& space, const reservation_name& name, std::optional<reservation_number> number,
                 const page_ref& page, entry_index entry);
  void find_entries(const key_space& space, std::span<const page_ref> pages);
  /// `inserted_` got their first page, and all of `used_` were written, in prefix order.
  void note_written(key_space& space);
  /// The next slot that can be one; generation 0 when there are no more.
  slot_ref next_granted(std::span<const slot_ref>& granted);

  void expire_anonymous(anonymous_number number);
  /// The slot goes back, not before `until`.
  void end_anonymous(anonymous_number number, coarse_time until = 0);
  std::optional<plan_id> prepare_allocate(const key_space& space, rank_number rank, std::span<const key_digest> keys,
                                          timestamp now, bool may_wait);
  void mark_anonymous(const checked_space& space, const allocate_request& request, timestamp now, reserve_plan& plan);
  location promise_again(key_space& space, const anonymous_plan& plan, const key_digest& key, slot_ref where,
                         timestamp now);
  result<reserve_reply> finish_allocate(plan_id plan, std::span<const slot_ref> granted, timestamp now);
  errc confirm_page(key_space& space, rank_number rank, const page_ref& page, entry_index entry, timestamp now);
  errc reclaim_slot(key_space& space, rank_number rank, slot_number slot, timestamp now);

  errc restore_page(const stored_page& page, entry_index hint);
  bool removed(std::uint32_t space) const;
  bool finish_removal(const removal& what);

  std::string check_leases() const;
  std::string check_reservations() const;
  std::string check_anonymous() const;
  std::string check_slots() const;

  registry_options options_;
  /// Of leases and reservations.
  memory_share tables_;
  coarse_clock clock_;
  /// Null where a namespace was removed.
  std::vector<std::unique_ptr<key_space>> spaces_;
  /// Without those that are being removed.
  std::unordered_map<namespace_id, std::uint32_t> space_numbers_;
  std::unordered_map<namespace_id, removal> removals_;
  lease_table leases_;
  hold_counts holds_;
  reservation_table reservations_;
  anonymous_table anonymous_;
  /// Null once service has begun.
  std::unique_ptr<restoring> restoring_;
  restore_report restored_;
  /// Of namespaces that are gone.
  registry_outbox left_over_;
  std::uint64_t changes_ = 0;
  /// Of namespaces that are gone.
  std::uint64_t evicted_keys_ = 0;
  std::uint64_t expired_leases_ = 0;
  std::uint64_t expired_reservations_ = 0;
  std::uint64_t invalidated_pages_ = 0;
  std::uint64_t reclaimed_pages_ = 0;
  std::uint64_t erased_pages_ = 0;
  std::uint64_t refused_ = 0;

  // Kept between calls for their memory.
  std::vector<key_digest> keys_;
  std::vector<entry_index> found_;
  std::vector<entry_index> used_;
  std::vector<entry_index> inserted_;
};

} // namespace troupe
