#pragma once

#include "codec/bf16_format.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

/// The work on single tiles, once for each set of instructions. All write the same bytes. Used by page_codec.cpp only.

namespace troupe::codec {

/// The parts of a tile that the caller has room for. An implementation may write beyond the escapes that it reports,
/// within the array.
struct tile_target {
  /// Room for `tile_elements` and `tile_code_bytes` bytes.
  std::byte* mantissas = nullptr;
  std::byte* codes = nullptr;
  std::array<std::uint8_t, max_tile_escapes + 64> escapes{};
};

struct tile_source {
  const std::byte* mantissas = nullptr;
  const std::byte* codes = nullptr;
  tile_window window;
  /// Exactly these may be read: at most `max_tile_escapes`.
  const std::uint8_t* escapes = nullptr;
  std::uint32_t escape_count = 0;
};

/// The exponent of each code; anything for the escape.
inline std::array<std::uint8_t, 16> exponents_by_code(const tile_window& window) noexcept {
  std::array<std::uint8_t, 16> out{};
  for (std::uint32_t code = 0; code < out.size(); ++code)
    out[code] = static_cast<std::uint8_t>(window.base - code);
  if (window.has_zero_code)
    out[zero_code] = 0;
  return out;
}

struct tile_codec {
  /// Encodes the `tile_bytes` at `payload`. With more than `max_tile_escapes` escapes, the codes and the escapes are
  /// not written.
  window_choice (*encode)(const std::byte* payload, tile_target& to) noexcept;
  /// Writes `tile_bytes` to `payload`. Returns false if the number of escapes among the codes is another one than that
  /// of the source; the payload is then unspecified.
  bool (*decode)(const tile_source& from, std::byte* payload) noexcept;
};

extern const tile_codec plain_tile_codec;
#ifdef __x86_64__
/// Need AVX2.
extern const tile_codec avx2_tile_codec;
/// Need AVX-512 F, BW, VBMI and VBMI2.
extern const tile_codec avx512_tile_codec;
#endif

} // namespace troupe::codec
