#pragma once

#include "base/byte_budget.hpp"

#include <algorithm>
#include <cstdint>

namespace troupe::io {

/// A bound on the disk space of several slab files together. Thread-safe.
class disk_budget : public byte_budget {
public:
  using byte_budget::byte_budget;
};

/// The least growth of a slab file in bytes and in slots, so that the file has few fragments and grows seldom.
inline constexpr std::uint64_t growth_bytes = std::uint64_t{64} << 20U;
inline constexpr std::uint64_t growth_slots = 8;

/// The space that a slab needs besides its slots: records and trailer.
inline constexpr std::uint64_t slab_tail_bytes = std::uint64_t{3} * 4096;

/// The next number of slots of a file that has `there` and may have `most`, when `wanted` more are requested and
/// `bytes_left` of disk space are available; `there` if not even one more fits.
constexpr std::uint64_t next_slots(std::uint64_t there, std::uint64_t most, std::uint64_t wanted,
                                   std::uint64_t slot_bytes, std::uint64_t bytes_left) noexcept {
  const auto step = std::max({wanted, growth_slots, growth_bytes / slot_bytes});
  return there + std::min({step, most - std::min(there, most), bytes_left / slot_bytes});
}

} // namespace troupe::io
