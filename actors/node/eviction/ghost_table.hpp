#pragma once

#include "actors/node/tables/chunked_array.hpp"

#include <array>
#include <cstdint>
#include <optional>

namespace troupe {

/// A table that remembers evicted keys by 14 bits of their hash, with two bits of note per key: 2 bytes each, for as
/// many keys as it has room for. A full set of eight forgets its oldest key. One in 2,000 keys that were never here is
/// mistaken for a remembered one.
class ghost_table {
public:
  static constexpr std::uint32_t notes = 4;

  ghost_table();

  /// Makes room for `keys` keys, and for at least `least`; never shrinks. Each call grows the table by one set, so call
  /// it once per key.
  void make_room_for(std::uint64_t keys);

  void prefetch(std::uint64_t hash) const noexcept { cells_.prefetch(set_of(hash)); }

  /// `note` is below `notes`.
  void remember(std::uint64_t hash, std::uint32_t note) noexcept;

  /// Returns the note of the key and forgets the key.
  std::optional<std::uint32_t> recall(std::uint64_t hash) noexcept;

  std::uint64_t room() const noexcept { return sets_ * set_cells; }
  std::uint64_t resident_bytes() const noexcept { return cells_.resident_bytes(); }

private:
  static constexpr std::uint64_t set_cells = 8;
  /// A small cache must remember a key until the key returns, which takes long compared with what the cache can hold.
  static constexpr std::uint64_t least = 8192;

  /// Youngest first. A cell is 0 if empty, otherwise the note below 14 bits that are not 0.
  using set = std::array<std::uint16_t, set_cells>;

  std::uint64_t set_of(std::uint64_t hash) const noexcept;
  static std::uint16_t mark_of(std::uint64_t hash) noexcept;

  // Linear hashing: of `split_` = 2^n sets, the first `sets_ - split_` have been split in two. The cells do not say to
  // which half their keys belong, so both halves start with all of them, and the wrong ones age out.
  chunked_array<set> cells_;
  std::uint64_t sets_ = 0;
  std::uint64_t split_ = 0;
};

} // namespace troupe
