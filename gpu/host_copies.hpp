#pragma once

#include "base/error.hpp"
#include "gpu/page_mover.hpp"
#include "io/page_checksum.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

/// Functions that movers for host memory share.

namespace troupe {

/// Copies a page and computes its checksum, reading each byte once: in pieces that stay in the first-level cache until
/// they are summed. `copy(at, bytes)` copies the piece that begins there, and returns the side to sum, which no other
/// process may write to.
template <class Copy>
io::page_checksum copy_and_sum(std::uint64_t page_bytes, Copy copy) noexcept {
  constexpr std::uint64_t piece_bytes = 16384;
  static_assert(piece_bytes % io::checksum_word_bytes == 0);
  io::page_checksum out;
  for (std::uint64_t at = 0; at < page_bytes; at += piece_bytes) {
    const auto bytes = std::min(piece_bytes, page_bytes - at);
    const std::byte* const piece = copy(at, bytes);
    out += io::checksum_of({piece, bytes}, at / io::checksum_word_bytes);
  }
  return out;
}

inline result<void> without(const device_events& events) {
  if (events.ready == nullptr)
    return {};
  return fail(errc::unsupported, "host memory has no device events");
}

} // namespace troupe
