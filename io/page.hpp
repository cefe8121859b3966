#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/page_encoding.hpp"
#include "io/memory/page_alignment.hpp"
#include "io/page_checksum.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

/// The bytes of one slot of a slab file: a header that identifies the page and verifies its integrity, the payload as
/// it is stored (as it is, or encoded), and zeroes up to the next 4 KiB boundary. docs/page-format.md has the layout.

namespace troupe::io {

/// The version of the page layout in the header, of pages whose payload is stored as it is.
inline constexpr std::uint32_t page_version = 2;

/// The same of pages with an encoding, which builds before there was one do not read.
inline constexpr std::uint32_t encoded_page_version = 3;

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

/// The same for the encoded pages of `page_bytes`, which all have the same size: less than `slot_bytes`, or 0 where
/// pages of this size have no encoding, or one that saves no block.
std::uint64_t encoded_slot_bytes(std::uint64_t page_bytes) noexcept;

/// The bytes of the smallest frame that a page may have in memory.
inline std::uint64_t least_slot_bytes(std::uint64_t page_bytes) noexcept {
  const auto encoded = encoded_slot_bytes(page_bytes);
  return encoded > 0 ? encoded : slot_bytes(page_bytes);
}

/// What a slot has of a payload.
struct stored_payload {
  page_encoding encoding = page_encoding::raw;
  /// The bytes behind the header; those of the payload where it is stored as it is, else fewer.
  std::uint64_t bytes = 0;
  /// The checksum of these bytes.
  page_checksum checksum{};

  friend bool operator==(const stored_payload&, const stored_payload&) = default;
};

/// Prepares a slot for writing. The payload is already at `page_header_bytes`, as it is; the header is written before
/// it and the bytes behind it are zeroed up to the next multiple of `page_alignment`, so that no earlier content of the
/// buffer reaches the disk. The buffer must hold at least `slot_bytes(identity.payload_bytes)`.
void seal_page(std::span<std::byte> slot_buffer, const page_identity& identity);

/// The same for a payload that may be encoded, with a checksum that was computed while it was copied there: a wrong one
/// makes a page that every load rejects. `what.bytes` are those of the payload where it is stored as it is, else fewer.
void seal_page(std::span<std::byte> slot_buffer, const page_identity& identity, const stored_payload& what);

/// Verifies that the slot holds exactly the page `expected`:
/// - `ok`: it does, and every stored byte of header and payload is as sealed;
/// - `identity_mismatch`: a valid page of another identity (another key, stale, in the wrong slot, another version or
///   encoding);
/// - `corrupt`: no valid page (torn, truncated, zero, with changed bits).
/// The padding behind the payload is not checked: it is never read. An encoded payload is not decoded.
errc verify_page(std::span<const std::byte> slot_buffer, const page_identity& expected);

/// How the payload is stored and the checksum that it must have, if the header is valid and that of the page
/// `expected`: for a caller that copies the payload and verifies it in the same pass. The stored bytes are within the
/// slot. Else the result of `verify_page`.
tl::expected<stored_payload, errc> expected_payload(std::span<const std::byte> slot_buffer,
                                                    const page_identity& expected);

/// The bytes of a slot that a page uses, a multiple of `page_alignment`: what has to be written or sent of it. What is
/// behind belongs to an earlier page. Those of the header alone where it is not valid: then there is no page.
std::uint64_t used_bytes(std::span<const std::byte> slot_buffer);

/// Whether this is the beginning of a page of which the end is missing: the header is valid, and its payload does not
/// end within the buffer.
bool is_cut_off(std::span<const std::byte> slot_buffer);

/// The bytes of a payload and those in which it is stored, if the header is valid; 0 else. Without the header's own.
struct payload_sizes {
  std::uint64_t payload = 0;
  std::uint64_t stored = 0;

  friend bool operator==(const payload_sizes&, const payload_sizes&) = default;
};
payload_sizes sizes_of(std::span<const std::byte> slot_buffer);

/// The identity in the header, if the header is valid; for messages about a page that is not the expected one.
std::optional<page_identity> identity_of(std::span<const std::byte> slot_buffer);

} // namespace troupe::io
