#pragma once

#include "actors/node/registry/registry_outbox.hpp"
#include "actors/node/registry/shard_leases.hpp"
#include "actors/node/registry/shard_spaces.hpp"
#include "actors/node/registry/shard_writes.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace troupe {

/// Namespaces and ranks of one shard that come and go, and what administrators see and erase.
class shard_administration {
public:
  shard_administration(shard_spaces& spaces, shard_leases& leases, shard_writes& writes)
      : spaces_(spaces), leases_(leases), writes_(writes) {}

  /// Makes the namespace known. The same identity again is fine. identity_mismatch if the name stands for another
  /// identity, or has other options, naming each difference; busy while the namespace is being removed.
  result<void> add_namespace(const namespace_spec& spec, const namespace_options& options);

  /// As `add_rank_request` says, but for the allocator, of which the actor knows.
  result<void> add_rank(const namespace_id& space, rank_number rank, std::uint32_t slots,
                        incarnation_number incarnation);

  /// As `retire_rank_request` says, but for the allocator.
  result<void> retire_rank(const namespace_id& space, rank_number rank, timestamp now);

  /// The two halves of `remove_namespace_request`; between them leases and reservations are ended that are due. Slots
  /// go back through the outbox, withheld ones too. There is `more` as long as any are left, slots on their way to a
  /// reservation included.
  result<void> begin_removal(const remove_namespace_request& request);
  remove_namespace_reply go_on_removing(const namespace_id& space);
  /// All that is left of it are reservations for which an allocator has not answered, as far as nothing is due.
  bool waits_for_slots(const namespace_id& space) const;
  bool is_being_removed(const namespace_id& space) const { return removals_.contains(space); }

  result<describe_reply> describe(const describe_request& request) const;
  result<reuse_reply> tell_reuse(const reuse_request& request) const;
  result<void> learn_reuse(const learn_request& request);
  result<list_pages_reply> list_pages(const list_pages_request& request) const;
  result<key_reply> look_up(const key_request& request, timestamp now);
  result<result_codes> erase(const erase_request& request, timestamp now);
  result<clear_reply> clear(const clear_request& request, timestamp now);

  std::uint64_t erased() const noexcept { return erased_; }
  /// Of namespaces that are gone.
  std::uint64_t evicted() const noexcept { return evicted_; }
  registry_outbox take_left_over();

private:
  /// A namespace that answers nobody any more, and how far it is cleared.
  struct removal {
    std::uint32_t space = 0;
    entry_index from = 0;
  };

  result<void> check_bounds(const namespace_spec& spec, const namespace_options& options);
  bool finish_removal(const removal& what);

  shard_spaces& spaces_;
  shard_leases& leases_;
  shard_writes& writes_;
  std::unordered_map<namespace_id, removal> removals_;
  /// Of namespaces that are gone.
  registry_outbox left_over_;
  std::uint64_t evicted_ = 0;
  std::uint64_t erased_ = 0;
  /// Kept between calls for its memory.
  std::vector<entry_index> found_;
};

} // namespace troupe
