#pragma once

#include "actors/node/tables/chunked_array.hpp"
#include "base/prefetch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// Position of an entry in the tables of one key space.
using entry_index = std::uint32_t;

/// Upper bound of the entry indexes of one key space: two links of an entry and the tag of an eviction policy must fit
/// in 8 bytes.
inline constexpr entry_index max_entries = (1U << 29) - 1024;

/// No entry.
inline constexpr entry_index no_entry = 0xffffffff;

/// An index that finds entries by a 32-bit tag of their key. It uses extendible hashing: a directory, indexed by the
/// tag's high bits, of segments of 4,096 slots; inside a segment, linear probing starts from the tag's low bits. A full
/// segment splits alone, so the longest pause of an insertion is that of moving one segment (tens of microseconds),
/// independent of the number of keys. Removal shifts the following slots back, so there are no tombstones and the cost
/// does not depend on the history.
///
/// Tags are not unique: the caller compares the key of the entry that is found. Tags should be spread evenly.
class key_index {
public:
  key_index();

  /// Prefetches the slot where the search for the tag begins.
  void prefetch(std::uint32_t tag) const noexcept { troupe::prefetch(&segment_of(tag)[tag & slot_mask]); }

  /// The first entry with this tag for which `is_it(entry)` holds, or `no_entry`.
  template <class Predicate>
  entry_index find(std::uint32_t tag, Predicate&& is_it) const {
    const auto* const slots = segment_of(tag);
    for (auto i = tag & slot_mask; slots[i].entry_plus_one != 0; i = (i + 1) & slot_mask)
      if (slots[i].tag == tag && is_it(slots[i].entry_plus_one - 1))
        return slots[i].entry_plus_one - 1;
    return no_entry;
  }

  /// Returns the first entry with this tag without comparing keys: most probably the entry that is searched.
  entry_index candidate(std::uint32_t tag) const {
    return find(tag, [](entry_index) { return true; });
  }

  /// Inserts an entry. False if so many entries share the tag's leading bits that no segment can take another.
  bool insert(std::uint32_t tag, entry_index entry);

  /// The pair must have been inserted.
  void erase(std::uint32_t tag, entry_index entry);

  std::uint64_t size() const noexcept { return size_; }
  std::uint64_t segments() const noexcept { return infos_.size(); }
  std::uint64_t resident_bytes() const noexcept;

private:
  static constexpr std::uint32_t segment_slots = 4096;
  static constexpr std::uint32_t slot_mask = segment_slots - 1;
  static constexpr std::uint32_t split_above = segment_slots / 4 * 3;
  // Together with the 12 bits that choose the slot, all bits of the tag are used.
  static constexpr std::uint32_t max_depth = 20;

  /// All bytes are zero when empty, as in fresh memory.
  struct slot {
    std::uint32_t tag;
    std::uint32_t entry_plus_one;
  };

  using segment = std::array<slot, segment_slots>;

  struct segment_info {
    std::uint32_t used = 0;
    std::uint32_t depth = 0;
  };

  std::uint32_t segment_number(std::uint32_t tag) const noexcept {
    return directory_[static_cast<std::size_t>(std::uint64_t{tag} >> (32 - depth_))];
  }

  const slot* segment_of(std::uint32_t tag) const noexcept { return segments_[segment_number(tag)].data(); }

  static void place(segment& target, slot what) noexcept;
  void split(std::uint32_t tag);

  chunked_array<segment> segments_;
  std::vector<segment_info> infos_;
  std::vector<std::uint32_t> directory_;
  std::uint32_t depth_ = 0;
  std::uint64_t size_ = 0;
};

} // namespace troupe
