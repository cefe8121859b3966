#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

/// The encoding of BF16 payloads, version 1: sizes, places and rules that the host and the GPU share, so that both
/// write the same bytes. docs/decisions/0030-a-code-of-four-bits.md gives the reasons and the measurements.
///
/// A payload is cut into tiles of 1024 elements of two bytes; the last tile is padded with zeroes. An element has a
/// sign, 8 bits of exponent and 7 of mantissa. Mantissa and sign are kept as they are, in one byte. The exponent
/// becomes a code of four bits: its distance below the tile's base, 0 … 14; or 15, the escape, for an exponent outside
/// of this window, which is stored as a byte in the page's list of escapes. In a tile that has zeroes and a base above
/// 14, code 14 is exponent 0 instead.
///
///     offset                 bytes
///     0                      64               header
///     64                     1024 per tile    mantissas: mantissa × 2 + sign, in the order of the elements
///     behind it              512 per tile     codes: byte j has that of element j low, and of element j + 512 high
///     behind it              4 per tile       records: base, zero flag, end of the tile's escapes in the list
///     behind it              31 per tile      escapes, in the order of the elements; then zeroes
///     behind it              0 … 63           zeroes, so that the whole has a multiple of 64
///
/// Numbers are little-endian. The header is the magic number, the version, 4 bytes of zero, the payload's length in
/// bytes, the number of escapes, and zeroes. The length of an encoded payload depends on that of the payload alone:
/// about 0.767 of it. A payload with more escapes than the list has room for has no encoding, and is kept as it is.

#ifdef __CUDACC__
#define TROUPE_CODEC_BOTH __host__ __device__
#else
#define TROUPE_CODEC_BOTH
#endif

namespace troupe::codec {

static_assert(std::endian::native == std::endian::little, "elements and records are read as they are");

inline constexpr std::uint32_t tile_elements = 1024;
inline constexpr std::uint32_t tile_bytes = tile_elements * 2;
/// The codes of a tile: one byte for each pair of elements that are half a tile apart.
inline constexpr std::uint32_t tile_code_bytes = tile_elements / 2;
inline constexpr std::uint32_t record_bytes = 4;
/// Room in the list of escapes for each tile. Tiles share it. With 31, a payload of 2 MiB has 393 blocks of 4 KiB; with
/// 32, the header would take one more.
inline constexpr std::uint32_t escapes_per_tile = 31;
/// A tile with more escapes has no encoding.
inline constexpr std::uint32_t max_tile_escapes = 128;
/// The first base with so few escapes is taken, though another one may have fewer.
inline constexpr std::uint32_t few_escapes = 8;
/// The most bases that are tried for a tile.
inline constexpr std::uint32_t max_bases = 16;

inline constexpr std::uint32_t zero_code = 14;
inline constexpr std::uint32_t escape_code = 15;

inline constexpr std::uint32_t format_version = 1;
/// The characters `TRPBF16E`.
inline constexpr std::uint64_t format_magic = 0x4536314642505254ULL;
/// The largest payload: its escapes can be counted in a record.
inline constexpr std::uint64_t max_payload_bytes = std::uint64_t{256} << 20U;

/// The first bytes of an encoded payload.
struct page_header {
  std::uint64_t magic = format_magic;
  std::uint32_t version = format_version;
  std::uint32_t reserved = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t escapes = 0;
  std::uint64_t zeroes[4] = {};

  friend bool operator==(const page_header&, const page_header&) = default;
};
static_assert(sizeof(page_header) == 64);

/// The places of an encoded payload's parts, as offsets in bytes.
struct page_layout {
  std::uint64_t tiles = 0;
  std::uint64_t mantissas = 0;
  std::uint64_t codes = 0;
  std::uint64_t records = 0;
  std::uint64_t escapes = 0;
  /// The most escapes of a page.
  std::uint64_t escape_room = 0;
  /// The length of the whole.
  std::uint64_t bytes = 0;
};

TROUPE_CODEC_BOTH constexpr page_layout layout_of(std::uint64_t payload_bytes) noexcept {
  page_layout out;
  out.tiles = (payload_bytes + tile_bytes - 1) / tile_bytes;
  out.mantissas = sizeof(page_header);
  out.codes = out.mantissas + out.tiles * tile_elements;
  out.records = out.codes + out.tiles * tile_code_bytes;
  out.escapes = out.records + out.tiles * record_bytes;
  out.escape_room = out.tiles * escapes_per_tile;
  out.bytes = (out.escapes + out.escape_room + 63) / 64 * 64;
  return out;
}

/// The exponents that have a code of their own in a tile.
struct tile_window {
  std::uint32_t base = 0;
  /// Code 14 is exponent 0.
  bool has_zero_code = false;

  /// The smallest exponent of the window, apart from 0 with its own code. Not for windows out of a page's records.
  TROUPE_CODEC_BOTH constexpr std::uint32_t lowest() const noexcept {
    return base - (has_zero_code ? zero_code - 1 : zero_code);
  }

  friend bool operator==(const tile_window&, const tile_window&) = default;
};

/// The window below an exponent. With a base of 14 it reaches down to 0, so a smaller one would name nothing more, and
/// the distance of a large exponent, of which eight bits are kept, would look like that of a small one.
TROUPE_CODEC_BOTH constexpr tile_window window_at(std::uint32_t exponent, bool has_zeroes) noexcept {
  return {exponent > zero_code ? exponent : zero_code, has_zeroes && exponent > zero_code};
}

/// A tile's record: the base in bits 0 … 7, the zero flag in bit 8, and above it the end of the tile's escapes in the
/// page's list, which is the begin of the next one's.
TROUPE_CODEC_BOTH constexpr std::uint32_t record_of(const tile_window& window, std::uint32_t escapes_end) noexcept {
  return window.base | (window.has_zero_code ? 0x100U : 0U) | escapes_end << 9U;
}

/// The window of any record, also of one that no encoder wrote.
TROUPE_CODEC_BOTH constexpr tile_window window_of(std::uint32_t record) noexcept {
  return {record & 0xffU, (record & 0x100U) != 0};
}

TROUPE_CODEC_BOTH constexpr std::uint32_t escapes_end_of(std::uint32_t record) noexcept {
  return record >> 9U;
}

static_assert(layout_of(max_payload_bytes).escape_room < std::uint64_t{1} << 23U, "records count escapes in 23 bits");

/// A window and the number of exponents outside of it.
struct window_choice {
  tile_window window;
  std::uint32_t escapes = 0;
};

/// Chooses the window of a tile; the same for all implementations, which only count. Tries the largest exponent as a
/// base, then the next one that occurs, and so on, until few exponents are outside, or none of the bases that follow
/// can be better, since the exponents above it are as many already.
/// `count_above(x)` and `count_below(x)` are the numbers of exponents above and below x, `next_below(x)` is the largest
/// exponent below x, or 0.
#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
template <class Above, class Below, class Next>
TROUPE_CODEC_BOTH window_choice choose_window(std::uint32_t largest, std::uint32_t zeroes, const Above& count_above,
                                              const Below& count_below, const Next& next_below) {
  window_choice best{window_at(largest, zeroes != 0), ~0U};
  auto base = largest;
  for (std::uint32_t step = 0; step < max_bases; ++step) {
    const auto window = window_at(base, zeroes != 0);
    const std::uint32_t above = step == 0 ? 0 : count_above(window.base);
    if (above >= best.escapes)
      break;
    const auto lowest = window.lowest();
    const std::uint32_t below = lowest == 0 ? 0 : count_below(lowest) - (window.has_zero_code ? zeroes : 0);
    if (above + below < best.escapes)
      best = {window, above + below};
    if (best.escapes <= few_escapes || base <= zero_code)
      break;
    base = next_below(base);
  }
  return best;
}

} // namespace troupe::codec
