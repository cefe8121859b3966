#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "io/page_checksum.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

/// The bytes of one slot of a slab file: a header that identifies the page and verifies its integrity, the payload, and
/// zeroes up to the next 4 KiB boundary. docs/page-format.md has the layout.

namespace troupe::io {

/// The version of the page layout in the header.
inline constexpr std::uint32_t page_version = 2;

/// Slots, buffers and file offsets are multiples of this, as direct I/O requires on common disks.
inline constexpr std::uint64_t page_alignment = 4096;

/// The size of the trailer behind the last slot of a slab file; see io/slab/slab_trailer.hpp.
inline constexpr std::uint64_t slab_trailer_bytes = page_alignment;

/// Bytes of a slot before the payload. A whole block, so that the payload stays aligned.
inline constexpr std::uint64_t page_header_bytes = 4096;

/// Everything that must match for a page to be the requested one.
struct page_identity {
  namespace_id ns;
  key_digest key;
  rank_number rank = 0;
  slot_ref where;
  std::uint64_t payload_bytes = 0;

  friend bool operator==(const page_identity&, const page_identity&) = default;
};

/// The size of a slot for pages of `page_bytes`: header and payload, rounded up to `page_alignment`.
constexpr std::uint64_t slot_bytes(std::uint64_t page_bytes) noexcept {
  return page_header_bytes + (page_bytes + page_alignment - 1) / page_alignment * page_alignment;
}

/// Prepares a slot for writing. The payload is already at `page_header_bytes`; the header is written before it and
/// everything behind it is zeroed, so that no earlier content of the buffer reaches the disk. The buffer must hold at
/// least `slot_bytes(identity.payload_bytes)`.
void seal_page(std::span<std::byte> slot_buffer, const page_identity& identity);

/// The same with a checksum that was computed while the payload was copied there. A wrong checksum makes a page that
/// every load rejects.
void seal_page(std::span<std::byte> slot_buffer, const page_identity& identity, const page_checksum& payload);

/// Verifies that the slot holds exactly the page `expected`:
/// - `ok`: it does, and every byte of header and payload is as sealed;
/// - `identity_mismatch`: a valid page of another identity (another key, stale, in the wrong slot, another version);
/// - `corrupt`: no valid page (torn, truncated, zero, with changed bits).
/// The padding behind the payload is not checked: it is never read.
errc verify_page(std::span<const std::byte> slot_buffer, const page_identity& expected);

/// The checksum that the payload must have, if the header is valid and that of the page `expected`: for a caller that
/// copies the payload and verifies it in the same pass. Else the result of `verify_page`.
tl::expected<page_checksum, errc> expected_checksum(std::span<const std::byte> slot_buffer,
                                                    const page_identity& expected);

/// The identity in the header, if the header is valid; for messages about a page that is not the expected one.
std::optional<page_identity> identity_of(std::span<const std::byte> slot_buffer);

} // namespace troupe::io
