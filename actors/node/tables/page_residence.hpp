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

/// The slots of one rank whose pages can be read from memory, and those of them that exist only there: not in the slab,
/// or not yet. The I/O worker of the rank writes it, registry shards read it: an answer may be outdated a moment later,
/// so it is only a hint. Thread-safe.
class resident_slots {
public:
  explicit resident_slots(std::uint64_t slots) : readable_((slots + 63) / 64), unwritten_((slots + 63) / 64) {}

  void set(slot_number slot) noexcept { set_bit(readable_, slot); }
  void clear(slot_number slot) noexcept { clear_bit(readable_, slot); }
  bool contains(slot_number slot) const noexcept { return has_bit(readable_, slot); }

  void set_unwritten(slot_number slot) noexcept { set_bit(unwritten_, slot); }
  void clear_unwritten(slot_number slot) noexcept { clear_bit(unwritten_, slot); }
  /// For a slot with a page: whether the page is in the slab.
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

/// The resident slots of all ranks of a node. Thread-safe.
class page_residence {
public:
  /// Adds a rank without any page in memory; replaces an existing one.
  std::shared_ptr<resident_slots> add(const namespace_id& ns, rank_number rank, std::uint64_t slots);
  void remove(const namespace_id& ns, rank_number rank);
  /// Null for ranks without memory of this node.
  std::shared_ptr<const resident_slots> find(const namespace_id& ns, rank_number rank) const;

private:
  mutable std::mutex mutex_;
  std::map<std::pair<namespace_id, rank_number>, std::shared_ptr<resident_slots>> ranks_;
};

} // namespace troupe
