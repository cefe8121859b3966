#pragma once

#include "base/identifiers.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// In which slots of one rank the page can be read from memory, and of which of these it is nowhere else: not in the
/// slab, or not yet. The io worker of the rank says so, registry shards look: an answer is true when it is given and
/// may not be a moment later, so nothing but an expectation may follow from it. Thread-safe.
class resident_slots {
public:
  explicit resident_slots(std::uint64_t slots) : readable_((slots + 63) / 64), unwritten_((slots + 63) / 64) {}

  void set(slot_number slot) noexcept { set_bit(readable_, slot); }
  void clear(slot_number slot) noexcept { clear_bit(readable_, slot); }
  bool contains(slot_number slot) const noexcept { return has_bit(readable_, slot); }

  void set_unwritten(slot_number slot) noexcept { set_bit(unwritten_, slot); }
  void clear_unwritten(slot_number slot) noexcept { clear_bit(unwritten_, slot); }
  /// Of a slot with a page: whether that is in the slab.
  bool is_written(slot_number slot) const noexcept { return !has_bit(unwritten_, slot); }

private:
  using words = std::vector<std::atomic<std::uint64_t>>;

  static std::uint64_t bit(slot_number slot) noexcept { return std::uint64_t{1} << (slot % 64); }
  static void set_bit(words& x, slot_number slot) noexcept {
    if (slot / 64 < x.size())
      x[slot / 64].fetch_or(bit(slot), std::memory_order_release);
  }
  static void clear_bit(words& x, slot_number slot) noexcept {
    if (slot / 64 < x.size())
      x[slot / 64].fetch_and(~bit(slot), std::memory_order_release);
  }
  static bool has_bit(const words& x, slot_number slot) noexcept {
    return slot / 64 < x.size() && (x[slot / 64].load(std::memory_order_acquire) & bit(slot)) != 0;
  }

  words readable_;
  words unwritten_;
};

/// That of all ranks of a node. Thread-safe.
class page_residence {
public:
  /// Of a rank that nobody's memory has anything of yet; takes the place of one that there was.
  std::shared_ptr<resident_slots> add(const namespace_id& space, rank_number rank, std::uint64_t slots);
  void remove(const namespace_id& space, rank_number rank);
  /// Null for ranks whose memory is not this node's.
  std::shared_ptr<const resident_slots> find(const namespace_id& space, rank_number rank) const;

private:
  mutable std::mutex mutex_;
  std::map<std::pair<namespace_id, rank_number>, std::shared_ptr<resident_slots>> ranks_;
};

} // namespace troupe
