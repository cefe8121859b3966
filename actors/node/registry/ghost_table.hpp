#pragma once

#include "actors/node/registry/chunked_array.hpp"

#include <array>
#include <cstdint>
#include <optional>

namespace troupe {

/// Remembers keys that are gone by 14 bits of their hash, with two bits of what was known of them: 2 bytes each, and as
/// many as there is room for. A set of eight that is full forgets its oldest. One in 2,000 keys that were never here is
/// taken for one that was.
class ghost_table {
public:
  static constexpr std::uint32_t notes = 4;

  ghost_table();

  /// Makes room for so many, at least for `least`; never shrinks. Grows by one set a call, so that it is to be called
  /// for each key.
  void make_room_for(std::uint64_t keys);

  void prefetch(std::uint64_t hash) const noexcept { cells_.prefetch(set_of(hash)); }

  /// `note` is below `notes`.
  void remember(std::uint64_t hash, std::uint32_t note) noexcept;

  /// What was noted with the key, which is forgotten.
  std::optional<std::uint32_t> recall(std::uint64_t hash) noexcept;

  std::uint64_t room() const noexcept { return sets_ * set_cells; }
  std::uint64_t resident_bytes() const noexcept { return cells_.resident_bytes(); }

private:
  static constexpr std::uint64_t set_cells = 8;
  /// A small cache has to remember for as long as its keys stay away, which is long beside what it can hold.
  static constexpr std::uint64_t least = 8192;

  /// The youngest first; 0 for none, else the note below 14 bits that are not 0.
  using set = std::array<std::uint16_t, set_cells>;

  std::uint64_t set_of(std::uint64_t hash) const noexcept;
  static std::uint16_t mark_of(std::uint64_t hash) noexcept;

  // Linear hashing: of `split_` = 2^n sets that there were, the first `sets_ - split_` have been split in two. When one
  // splits nobody knows any more where its keys belong: both halves begin with all of them, and the wrong ones age out.
  chunked_array<set> cells_;
  std::uint64_t sets_ = 0;
  std::uint64_t split_ = 0;
};

} // namespace troupe
