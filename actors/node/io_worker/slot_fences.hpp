#pragma once

#include "base/identifiers.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe {

/// The fences of a rank's slots: which generations are rejected, and which fences wait for transfers. A fence is
/// complete when no transfer that was in progress when it was made uses any of its slots.
///
/// Invariant: a fence that is not complete has as many entries with slots in use as its count says, and no slot that is
/// not in use has an entry. The generation of a slot is raised before its transfers are counted, so no new transfer can
/// delay a fence, provided that none begins for a page that `rejects` rejects.
class slot_fences {
public:
  using fence_id = std::uint64_t;

  explicit slot_fences(std::uint64_t slots) : generations_(slots, 0) {}

  /// Whether there is such a slot.
  bool has(slot_number slot) const noexcept { return slot < generations_.size(); }
  /// Whether the generation was fenced, or is older than one that was. The slot must exist.
  bool rejects(const slot_ref& where) const noexcept { return where.generation <= generations_[where.slot]; }

  /// Rejects these generations and older ones from now on. Slots that do not exist are ignored. The fence is reported
  /// by `take_complete`, possibly at once.
  fence_id fence(std::span<const slot_ref> slots);
  /// The fences that have become complete since the last call, in that order.
  std::vector<fence_id> take_complete();

  /// A transfer of the slot begins.
  void begin_transfer(slot_number slot) { ++busy_[slot]; }
  /// A transfer of the slot, which had begun, has ended.
  void end_transfer(slot_number slot);

private:
  /// Per slot: this generation and older ones are rejected.
  std::vector<generation_number> generations_;
  /// The number of transfers of each slot that has any.
  std::unordered_map<slot_number, std::uint32_t> busy_;
  std::unordered_map<slot_number, std::vector<fence_id>> waiters_;
  /// The fences that are not complete, with the number of their entries in `waiters_`.
  std::unordered_map<fence_id, std::size_t> incomplete_;
  std::vector<fence_id> complete_;
  fence_id last_ = 0;
};

} // namespace troupe
