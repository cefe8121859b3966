#pragma once

#include "actors/node/registry/group_eviction.hpp"
#include "actors/node/registry/registry_options.hpp"
#include "actors/node/registry/registry_outbox.hpp"
#include "actors/node/registry/shard_administration.hpp"
#include "actors/node/registry/shard_descriptions.hpp"
#include "actors/node/registry/shard_leases.hpp"
#include "actors/node/registry/shard_namespaces.hpp"
#include "actors/node/registry/shard_restoring.hpp"
#include "actors/node/registry/shard_writes.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/namespace_spec.hpp"
#include "messages/registry_admin_messages.hpp"
#include "messages/registry_messages.hpp"
#include "messages/registry_slot_messages.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace troupe {

/// The rules of one registry shard: which keys exist, where their pages are, which leases and reservations hold them,
/// and what is evicted. Plain C++; owned and called by one actor, not thread-safe. Time is an argument and must not
/// decrease.
///
/// A call that returns an error has changed nothing (except that expired items may have been given back), and is
/// counted in `registry_stats::refused` unless it is a plain not_found. After each call, `take_outbox` returns the
/// messages for allocators and other shards.
///
/// Slots belong to the allocators. The registry holds those it was granted: reserved ones until commit or abort, live
/// ones until eviction or invalidation. It gives each back exactly once.
///
/// This class is a facade. Each concern has a class of its own over the shared key spaces, which documents its calls.
/// Calls that concern several of them, above all the passage of time, are implemented here.
class registry_state {
public:
  explicit registry_state(const registry_options& options);

  registry_state(const registry_state&) = delete;
  registry_state& operator=(const registry_state&) = delete;

  // -- namespaces and ranks, administrators: shard_administration

  result<void> add_namespace(const namespace_spec& spec, const namespace_options& options = {}) {
    return administration_.add_namespace(spec, options);
  }
  result<void> add_rank(const namespace_id& ns, rank_number rank, std::uint32_t slots,
                        incarnation_number incarnation = 0) {
    return administration_.add_rank(ns, rank, slots, incarnation);
  }
  result<void> retire_rank(const namespace_id& ns, rank_number rank, timestamp now) {
    return administration_.retire_rank(ns, rank, now);
  }
  /// Whether the rank was retired and not registered since, so that no slot of it may be granted.
  bool is_retired(const namespace_id& ns, rank_number rank) const {
    const auto found = namespaces_.find_rank(ns, rank);
    return found && found->keys.is_retired(rank);
  }
  /// As `remove_namespace_request` says. `tick` ends leases and reservations; `more` is set while any are left,
  /// including slots that are being requested for a reservation.
  result<remove_namespace_reply> remove_namespace(const remove_namespace_request& request, timestamp now);
  /// Whether a removal waits only for slots that are being requested for a reservation: it continues when an allocator
  /// has answered.
  bool removal_waits(const namespace_id& ns, timestamp now) const;
  result<describe_reply> describe(const describe_request& request) const { return administration_.describe(request); }
  result<list_pages_reply> list_pages(const list_pages_request& request) const {
    return administration_.list_pages(request);
  }
  result<key_reply> look_up(const key_request& request, timestamp now) { return administration_.look_up(request, now); }
  result<result_codes> erase(const erase_request& request, timestamp now) {
    return administration_.erase(request, now);
  }
  result<clear_reply> clear(const clear_request& request, timestamp now) { return administration_.clear(request, now); }

  // -- readers: shard_leases

  result<match_reply> match(const match_request& request, timestamp now) { return leases_.match(request, now); }
  result<locate_reply> locate(const locate_request& request, timestamp now) { return leases_.locate(request, now); }
  result<void> release(const release_request& request, timestamp now) { return leases_.release(request, now); }
  result<void> renew(const renew_request& request, timestamp now) { return leases_.renew(request, now); }
  result<result_codes> exists(const exists_request& request) { return leases_.exists(request); }
  result<locate_reply> protect(const protect_request& request, timestamp now) { return leases_.protect(request, now); }

  // -- writers: shard_writes

  result<reserve_plan> begin_reserve(const reserve_request& request, timestamp now) {
    return writes_.begin_reserve(request, now);
  }
  result<reserve_plan> begin_allocate(const allocate_request& request, timestamp now, bool may_wait) {
    return writes_.begin_allocate(request, now, may_wait);
  }
  result<reserve_reply> finish_reserve(plan_id plan, std::span<const slot_ref> granted, timestamp now) {
    return writes_.finish_reserve(plan, granted, now);
  }
  result<finish_reply> commit(const finish_request& request, timestamp now) { return writes_.commit(request, now); }
  result<finish_reply> abort(const finish_request& request, timestamp now) { return writes_.abort(request, now); }
  result<result_codes> confirm(const confirm_request& request, timestamp now) { return writes_.confirm(request, now); }
  result<result_codes> reclaim(const reclaim_request& request, timestamp now) { return writes_.reclaim(request, now); }
  result<finish_reply> invalidate(const invalidate_request& request, timestamp now) {
    return writes_.invalidate(request, now);
  }
  result<result_codes> drop_pages(const dropped_pages_request& request, timestamp now) {
    return writes_.drop_pages(request, now);
  }

  // -- events: shard_descriptions

  result<result_codes> describe_pages(describe_pages_request request) {
    return descriptions_.describe(std::move(request), restoring_.ended());
  }

  // -- restoring, before anything but namespaces and ranks is added: shard_restoring

  result<result_codes> restore(std::span<const stored_page> pages) { return restoring_.restore(pages); }
  result<result_codes> drop_restored(const namespace_id& ns, rank_number rank, std::span<const slot_ref> slots) {
    return restoring_.drop_restored(ns, rank, slots);
  }
  result<restore_report> restored() { return restoring_.restored(keys()); }

  // -- messages between shards, of this node and of others: shard_administration

  result<reuse_reply> report_reuse(const reuse_request& request) const { return administration_.report_reuse(request); }
  result<void> learn_reuse(const learn_request& request) { return administration_.learn_reuse(request); }

  // -- messages from other parts of the node

  /// Applies changes of children in other shards.
  result<void> count_children(const children_request& request, timestamp now);

  result<evict_reply> evict(const evict_request& request, timestamp now);

  /// Ends all leases and reservations of the owner. Like `tick` it does a bounded part, and returns true if `tick` must
  /// be called for the rest.
  bool owner_died(owner_id owner, timestamp now);

  /// Ends a bounded number of expired items. True if more are left.
  bool tick(timestamp now);

  /// When `tick` has work next. For tests: the actor calls `tick` at short intervals.
  std::optional<timestamp> next_deadline() const;

  registry_stats stats() const;

  registry_outbox take_outbox();

  const registry_options& options() const noexcept { return namespaces_.options(); }

  /// Keys with at least one page, in all namespaces.
  std::uint64_t keys() const;
  /// For tests.
  bool is_complete(const namespace_id& ns, const key_digest& key) const;
  /// Empty for an unknown namespace.
  std::string namespace_name(const namespace_id& ns) const;

  /// The state in the registry of a slot that is not with its allocator.
  enum class page_use : std::uint8_t { reserved, live, withheld };

  /// For tests and simulations: full scans.
  void for_each_key(const namespace_id& ns, const std::function<void(const key_info&)>& f) const;
  void for_each_slot(const namespace_id& ns, const std::function<void(rank_number, slot_ref, page_use)>& f) const;
  /// The first violated invariant in words, or an empty text.
  std::string check_invariants() const;

private:
  /// Updates the usage that is counted against the memory budget.
  void account();

  std::string check_slots() const;

  // The order matters: each member refers to those above it.
  shard_namespaces namespaces_;
  group_eviction groups_;
  shard_leases leases_;
  shard_writes writes_;
  shard_administration administration_;
  shard_restoring restoring_;
  shard_descriptions descriptions_;
  /// Share of leases and reservations.
  memory_share tables_;
};

} // namespace troupe
