#include "io/page.hpp"

#include "codec/page_codec.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <type_traits>

namespace troupe::io {

namespace {

static_assert(std::endian::native == std::endian::little, "pages are little-endian and written as they are in memory");

constexpr std::uint64_t page_magic = 0x3145474150505254ULL; // "TRPPAGE1"

struct page_header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t namespace_hi;
  std::uint64_t namespace_lo;
  std::uint64_t key_hi;
  std::uint64_t key_lo;
  std::uint32_t rank;
  std::uint32_t slot;
  std::uint32_t generation;
  std::uint32_t encoding;
  std::uint64_t payload_bytes;
  std::uint64_t checksum_low;
  std::uint64_t checksum_high;
  /// 0 where the payload is stored as it is.
  std::uint64_t stored_bytes;
  std::array<std::byte, 3992> unused;
  std::uint64_t header_hash;
};

static_assert(std::is_trivially_copyable_v<page_header> && std::is_standard_layout_v<page_header>);
static_assert(sizeof(page_header) == page_header_bytes);
static_assert(offsetof(page_header, version) == 8);
static_assert(offsetof(page_header, header_bytes) == 12);
static_assert(offsetof(page_header, namespace_hi) == 16);
static_assert(offsetof(page_header, key_hi) == 32);
static_assert(offsetof(page_header, rank) == 48);
static_assert(offsetof(page_header, slot) == 52);
static_assert(offsetof(page_header, generation) == 56);
static_assert(offsetof(page_header, encoding) == 60);
static_assert(offsetof(page_header, payload_bytes) == 64);
static_assert(offsetof(page_header, checksum_low) == 72);
static_assert(offsetof(page_header, checksum_high) == 80);
static_assert(offsetof(page_header, stored_bytes) == 88);
static_assert(offsetof(page_header, unused) == 96);
static_assert(offsetof(page_header, header_hash) == 4088);

std::uint64_t hash_of_header(std::span<const std::byte> slot_buffer) {
  return XXH3_64bits(slot_buffer.data(), offsetof(page_header, header_hash));
}

// Only the fixed part is copied: the hash covers the unused bytes.
std::optional<page_header> sound_header(std::span<const std::byte> slot_buffer) {
  if (slot_buffer.size() < page_header_bytes)
    return std::nullopt;
  page_header header;
  std::memcpy(&header, slot_buffer.data(), offsetof(page_header, unused));
  std::memcpy(&header.header_hash, slot_buffer.data() + offsetof(page_header, header_hash), sizeof(std::uint64_t));
  if (header.magic != page_magic || header.header_hash != hash_of_header(slot_buffer))
    return std::nullopt;
  return header;
}

page_identity identity_in(const page_header& header) {
  return {.ns = {header.namespace_hi, header.namespace_lo},
          .key = {header.key_hi, header.key_lo},
          .rank = header.rank,
          .where = {header.slot, header.generation},
          .payload_bytes = header.payload_bytes};
}

/// Whether this build knows the layout of the page.
bool is_readable(const page_header& header) {
  if (header.header_bytes != page_header_bytes)
    return false;
  if (header.version == page_version)
    return header.encoding == 0;
  return header.version == encoded_page_version && header.encoding != 0 &&
         is_known(static_cast<page_encoding>(header.encoding));
}

/// The payload of a readable page, as it is stored.
stored_payload stored_in(const page_header& header) {
  const auto encoding = static_cast<page_encoding>(header.encoding);
  return {encoding,
          encoding == page_encoding::raw ? header.payload_bytes : header.stored_bytes,
          {header.checksum_low, header.checksum_high}};
}

bool lies_within(const stored_payload& what, std::span<const std::byte> slot_buffer) {
  return what.bytes <= slot_buffer.size() - page_header_bytes;
}

} // namespace

std::uint64_t encoded_slot_bytes(std::uint64_t page_bytes) noexcept {
  const auto stored = codec::stored_bytes(page_encoding::bf16, page_bytes);
  return stored == 0 || slot_bytes(stored) >= slot_bytes(page_bytes) ? 0 : slot_bytes(stored);
}

void seal_page(std::span<std::byte> slot_buffer, const page_identity& identity) {
  assert(slot_buffer.size() >= page_header_bytes + identity.payload_bytes && "the payload must fit into the slot");
  seal_page(slot_buffer, identity,
            stored_payload{page_encoding::raw, identity.payload_bytes,
                           checksum_of(slot_buffer.subspan(page_header_bytes, identity.payload_bytes))});
}

void seal_page(std::span<std::byte> slot_buffer, const page_identity& identity, const stored_payload& what) {
  assert(slot_buffer.size() >= page_header_bytes && "a slot buffer holds at least a header");
  assert(what.bytes <= slot_buffer.size() - page_header_bytes && "the payload must fit into the slot");
  const bool raw = what.encoding == page_encoding::raw;
  assert((raw ? what.bytes == identity.payload_bytes : what.bytes < identity.payload_bytes) && "its length is known");
  page_header header{};
  header.magic = page_magic;
  header.version = raw ? page_version : encoded_page_version;
  header.header_bytes = static_cast<std::uint32_t>(page_header_bytes);
  header.namespace_hi = identity.ns.hi;
  header.namespace_lo = identity.ns.lo;
  header.key_hi = identity.key.hi;
  header.key_lo = identity.key.lo;
  header.rank = identity.rank;
  header.slot = identity.where.slot;
  header.generation = identity.where.generation;
  header.encoding = static_cast<std::uint32_t>(what.encoding);
  header.payload_bytes = identity.payload_bytes;
  header.checksum_low = what.checksum.low;
  header.checksum_high = what.checksum.high;
  header.stored_bytes = raw ? 0 : what.bytes;
  std::memcpy(slot_buffer.data(), &header, sizeof header);
  const auto header_hash = hash_of_header(slot_buffer);
  std::memcpy(slot_buffer.data() + offsetof(page_header, header_hash), &header_hash, sizeof header_hash);
  const auto padding = slot_buffer.first(std::min<std::uint64_t>(slot_buffer.size(), slot_bytes(what.bytes)))
                           .subspan(page_header_bytes + what.bytes);
  if (!padding.empty())
    std::memset(padding.data(), 0, padding.size());
}

errc verify_page(std::span<const std::byte> slot_buffer, const page_identity& expected) {
  const auto header = sound_header(slot_buffer);
  if (!header)
    return errc::corrupt;
  if (!is_readable(*header))
    return errc::identity_mismatch;
  // The payload is checked even if the identity differs, to tell a torn page from a misdirected one.
  const auto stored = stored_in(*header);
  if (!lies_within(stored, slot_buffer) ||
      checksum_of(slot_buffer.subspan(page_header_bytes, stored.bytes)) != stored.checksum)
    return errc::corrupt;
  return identity_in(*header) == expected ? errc::ok : errc::identity_mismatch;
}

tl::expected<stored_payload, errc> expected_payload(std::span<const std::byte> slot_buffer,
                                                    const page_identity& expected) {
  const auto header = sound_header(slot_buffer);
  if (!header)
    return tl::unexpected(errc::corrupt);
  if (!is_readable(*header) || identity_in(*header) != expected)
    return tl::unexpected(verify_page(slot_buffer, expected));
  const auto stored = stored_in(*header);
  if (!lies_within(stored, slot_buffer))
    return tl::unexpected(errc::corrupt);
  return stored;
}

payload_sizes sizes_of(std::span<const std::byte> slot_buffer) {
  const auto header = sound_header(slot_buffer);
  if (!header || !is_readable(*header))
    return {};
  const auto stored = stored_in(*header);
  // The header is a client's, which may write any number. An encoding saves less than a half.
  const auto payload_most = slot_buffer.size() * (stored.encoding == page_encoding::raw ? 1 : 2);
  if (!lies_within(stored, slot_buffer) || header->payload_bytes > payload_most)
    return {};
  return {header->payload_bytes, stored.bytes};
}

bool is_cut_off(std::span<const std::byte> slot_buffer) {
  const auto header = sound_header(slot_buffer);
  return header && is_readable(*header) && !lies_within(stored_in(*header), slot_buffer);
}

std::uint64_t used_bytes(std::span<const std::byte> slot_buffer) {
  const auto sizes = sizes_of(slot_buffer);
  return sizes == payload_sizes{} ? page_header_bytes
                                  : std::min<std::uint64_t>(slot_bytes(sizes.stored), slot_buffer.size());
}

std::optional<page_identity> identity_of(std::span<const std::byte> slot_buffer) {
  const auto header = sound_header(slot_buffer);
  if (!header || !is_readable(*header))
    return std::nullopt;
  return identity_in(*header);
}

} // namespace troupe::io
