#pragma once

#include "base/error.hpp"
#include "gpu/page_mover.hpp"
#include "io/page_checksum.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

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

/// What a thread has private memory for.
enum class private_use : std::uint8_t { page, encoding };

/// Memory of this thread for this use, valid until its next call. Its content is unspecified.
template <private_use Use>
std::byte* private_memory(std::uint64_t bytes) {
  thread_local std::unique_ptr<std::byte[]> memory;
  thread_local std::uint64_t size = 0;
  if (size < bytes) {
    memory.reset(new std::byte[bytes]); // not zeroed
    size = bytes;
  }
  return memory.get();
}

/// Stores `page`, in memory that no other process can write to, as a gather has to: encoded if that is wanted and the
/// bytes have an encoding; otherwise as it is, if there is room for that.
inline void store_page(block_move& move, const std::byte* page) {
  std::span<const std::byte> stored{page, move.page_bytes};
  if (move.encoding != page_encoding::raw) {
    const std::span to{private_memory<private_use::encoding>(move.stored_bytes()), move.stored_bytes()};
    const auto encoded = codec::encode(stored, to);
    if (encoded && *encoded == codec::outcome::encoded)
      stored = to;
    else
      move.encoding = page_encoding::raw;
  }
  if (move.only_encoded && move.encoding == page_encoding::raw) {
    move.verdict = errc::unsupported;
    return;
  }
  move.checksum = io::copy_with_checksum(move.page, stored);
  move.verdict = errc::ok;
}

/// Copies a page to `page`, verifies it there, since another process may write to its memory at any time, and decodes
/// it. Returns whether it is the expected one; otherwise `page` has any content.
inline bool fetch_page(const block_move& move, std::byte* page) {
  const bool raw = move.encoding == page_encoding::raw;
  auto* const stored = raw ? page : private_memory<private_use::encoding>(move.stored_bytes());
  const auto sum = copy_and_sum(move.stored_bytes(), [&](std::uint64_t at, std::uint64_t bytes) {
    std::memcpy(stored + at, move.page + at, bytes);
    return stored + at;
  });
  if (move.checksum && sum != *move.checksum)
    return false;
  return raw || codec::decode({stored, move.stored_bytes()}, {page, move.page_bytes}).has_value();
}

inline result<void> without(const device_events& events) {
  if (events.ready == nullptr)
    return {};
  return fail(errc::unsupported, "host memory has no device events");
}

} // namespace troupe
