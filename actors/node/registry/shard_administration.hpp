#pragma once

#include "actors/node/registry/registry_outbox.hpp"
#include "actors/node/registry/shard_leases.hpp"
#include "actors/node/registry/shard_namespaces.hpp"
#include "actors/node/registry/shard_writes.hpp"
#include "messages/registry_admin_messages.hpp"
#include "messages/registry_messages.hpp"
#include "messages/registry_slot_messages.hpp"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace troupe {

/// Adds and removes the namespaces and ranks of one shard, and serves the requests of administrators.
class shard_administration {
public:
  shard_administration(shard_namespaces& namespaces, shard_leases& leases, shard_writes& writes)
      : namespaces_(namespaces), leases_(leases), writes_(writes) {}

  /// Registers the namespace; repeating it with the same identity succeeds. identity_mismatch if the name has another
  /// identity or other options, naming each difference; busy while the namespace is being removed.
  result<void> add_namespace(const namespace_spec& spec, const namespace_options& options);

  /// As `add_rank_request` says, except for the allocator, which the actor handles.
  result<void> add_rank(const namespace_id& ns, rank_number rank, std::uint32_t slots, incarnation_number incarnation);

  /// As `retire_rank_request` says, except for the allocator.
  result<void> retire_rank(const namespace_id& ns, rank_number rank, timestamp now);

  /// The two halves of `remove_namespace_request`; between them, leases and reservations that are due are ended. Slots
  /// go back through the outbox, withheld ones too. `more` is set while any are left, including slots that are being
  /// requested for a reservation.
  result<void> begin_removal(const remove_namespace_request& request);
  remove_namespace_reply go_on_removing(const namespace_id& ns);
  /// Whether only reservations are left for which an allocator has not answered, apart from what is due.
  bool waits_for_slots(const namespace_id& ns) const;
  bool is_being_removed(const namespace_id& ns) const { return removals_.contains(ns); }

  result<describe_reply> describe(const describe_request& request) const;
  result<reuse_reply> report_reuse(const reuse_request& request) const;
  result<void> learn_reuse(const learn_request& request);
  result<list_pages_reply> list_pages(const list_pages_request& request) const;
  result<key_reply> look_up(const key_request& request, timestamp now);
  result<result_codes> erase(const erase_request& request, timestamp now);
  result<clear_reply> clear(const clear_request& request, timestamp now);

  std::uint64_t erased() const noexcept { return erased_; }
  /// Evicted keys of removed namespaces.
  std::uint64_t evicted() const noexcept { return evicted_; }
  registry_outbox take_left_over();

private:
  /// A namespace that is being removed and answers no requests, and the position up to which it is cleared.
  struct removal {
    std::uint32_t ns = 0;
    entry_index from = 0;
  };

  result<void> check_bounds(const namespace_spec& spec, const namespace_options& options);
  bool finish_removal(const removal& what);

  shard_namespaces& namespaces_;
  shard_leases& leases_;
  shard_writes& writes_;
  std::unordered_map<namespace_id, removal> removals_;
  /// Messages of removed namespaces.
  registry_outbox left_over_;
  std::uint64_t evicted_ = 0;
  std::uint64_t erased_ = 0;
  /// Kept between calls for its memory.
  std::vector<entry_index> found_;
};

} // namespace troupe
