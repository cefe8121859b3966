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

/// In which slots of one rank the page can be read from memory. The io worker of the rank says so, registry shards
/// look: an answer is true when it is given and may not be a moment later, so nothing but an expectation may follow
/// from it. Thread-safe.
class resident_slots {
public:
  explicit resident_slots(std::uint64_t slots) : words_((slots + 63) / 64) {}

  void set(slot_number slot) noexcept {
    if (slot / 64 < words_.size())
      words_[slot / 64].fetch_or(bit(slot), std::memory_order_relaxed);
  }
  void clear(slot_number slot) noexcept {
    if (slot / 64 < words_.size())
      words_[slot / 64].fetch_and(~bit(slot), std::memory_order_relaxed);
  }
  bool contains(slot_number slot) const noexcept {
    return slot / 64 < words_.size() && (words_[slot / 64].load(std::memory_order_relaxed) & bit(slot)) != 0;
  }

private:
  static std::uint64_t bit(slot_number slot) noexcept { return std::uint64_t{1} << (slot % 64); }

  std::vector<std::atomic<std::uint64_t>> words_;
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
