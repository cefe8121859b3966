#pragma once

#include "actors/node/allocator/allocator_state.hpp"
#include "actors/node/registry/registry_state.hpp"
#include "base/identifiers.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace troupe::simulation {

/// What a registry shard tells an allocator of a slot.
enum class slot_word : std::uint8_t { publish, abort, release };

/// Where each slot is while it is neither with its allocator nor with a registry shard: in a message. With that,
/// conservation can be checked at any moment and not only at quiet ones.
class ledger {
public:
  explicit ledger(std::uint32_t ranks) : ranks_(ranks) {}

  /// The node's process ended: nothing is under way any more.
  void clear();

  /// From an allocator to a shard.
  void granted(rank_number rank, const std::vector<slot_ref>& slots);
  void grant_arrived(rank_number rank, const std::vector<slot_ref>& slots);

  /// From a shard to an allocator.
  void said(rank_number rank, slot_word word, const std::vector<slot_ref>& slots);
  /// The first slot for which this was not the next word, in words; or an empty text.
  std::string heard(rank_number rank, slot_word word, const std::vector<slot_ref>& slots);

  /// From an allocator to the io worker and back.
  void fencing(rank_number rank, const std::vector<slot_ref>& slots);
  void fenced(rank_number rank, const std::vector<slot_ref>& slots);

  /// Nothing is under way.
  bool at_rest() const;

  /// Every slot of the rank is in exactly one place, and allocator, shards and messages agree where. The first
  /// contradiction in words, or an empty text.
  std::string check(const namespace_id& space, rank_number rank, std::uint32_t slots, const allocator_state& allocator,
                    std::span<const registry_state* const> shards) const;

private:
  struct rank_record {
    std::map<slot_ref, int> grants;
    std::map<slot_ref, std::deque<slot_word>> words;
    std::map<slot_ref, int> fences;
  };

  /// Of one slot, as the shards have it.
  struct holding {
    generation_number generation = 0;
    registry_state::page_use use = registry_state::page_use::reserved;
  };

  std::string check_slot(const rank_record& r, slot_ref where, allocator_state::slot_state state,
                         const holding& held) const;

  std::vector<rank_record> ranks_;
};

} // namespace troupe::simulation
