#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "io/page_checksum.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

/// The bytes of one slot of a slab file: a header that says what the page is and proves that it is whole, the payload,
/// and zeroes up to the next 4 KiB boundary. docs/page-format.md has the layout.

namespace troupe::io {

/// Of the layout of a page, as its header has it.
inline constexpr std::uint32_t page_version = 2;

/// Slots, buffers and file offsets are multiples of this, as direct I/O asks for on any disk in use.
inline constexpr std::uint64_t page_alignment = 4096;

/// What stands in a slab file behind its last slot; see io/slab_trailer.hpp.
inline constexpr std::uint64_t slab_trailer_bytes = page_alignment;

/// Bytes of a slot in front of the payload. A whole block, so that the payload stays aligned.
inline constexpr std::uint64_t page_header_bytes = 4096;

/// Everything that must agree for a page to be the one asked for.
struct page_identity {
  namespace_id space;
  key_digest key;
  rank_number rank = 0;
  slot_ref where;
  std::uint64_t payload_bytes = 0;

  friend bool operator==(const page_identity&, const page_identity&) = default;
};

/// Bytes of a slot that holds pages of `page_bytes`: header and payload, rounded up to `page_alignment`.
constexpr std::uint64_t slot_bytes(std::uint64_t page_bytes) noexcept {
  return page_header_bytes + (page_bytes + page_alignment - 1) / page_alignment * page_alignment;
}

/// Makes a slot ready to be written: the payload stands already at `page_header_bytes`; the header goes in front of it
/// and everything behind it is zeroed, so that nothing a buffer held before reaches the disk.
/// The buffer must hold at least `slot_bytes(identity.payload_bytes)`.
void seal_page(std::span<std::byte> slot_buffer, const page_identity& identity);

/// The same for whoever moved the payload there and computed its checksum on the way. A wrong checksum makes a page
/// that no load will accept.
void seal_page(std::span<std::byte> slot_buffer, const page_identity& identity, const page_checksum& payload);

/// Whether the slot holds exactly the page `expected`, whole:
/// - `ok`: it does, and every byte of header and payload is as sealed;
/// - `identity_mismatch`: a sound page of something else (another's, stale, written to the wrong slot, other version);
/// - `corrupt`: no sound page at all (torn, cut short, zero, flipped).
/// The padding behind the payload is not looked at: it is never handed out.
errc verify_page(std::span<const std::byte> slot_buffer, const page_identity& expected);

/// The checksum that the payload must have, if the header is sound and that of the page `expected`: for whoever moves
/// the payload on and checks it on the way. Else what `verify_page` says of the slot.
tl::expected<page_checksum, errc> expected_checksum(std::span<const std::byte> slot_buffer,
                                                    const page_identity& expected);

/// What the header says the page is, if the header is sound; for messages about a page that is not the expected one.
std::optional<page_identity> identity_of(std::span<const std::byte> slot_buffer);

} // namespace troupe::io
