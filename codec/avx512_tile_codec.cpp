#include "codec/tile_codec.hpp"

#ifdef __x86_64__

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <immintrin.h>

#define TROUPE_AVX512 __attribute__((target("avx512f,avx512bw,avx512vbmi,avx512vbmi2,popcnt")))

namespace troupe::codec {

namespace {

/// Bytes of a tile's elements in one vector; and vectors of a tile's exponents, mantissas.
constexpr std::size_t lanes = 64;
constexpr std::size_t vectors = tile_elements / lanes;
constexpr std::size_t half = vectors / 2;

struct alignas(64) tile_exponents {
  std::array<std::uint8_t, tile_elements> bytes;

  TROUPE_AVX512 __m512i vector(std::size_t i) const noexcept { return _mm512_load_si512(bytes.data() + i * lanes); }
  TROUPE_AVX512 void set(std::size_t i, __m512i x) noexcept { _mm512_store_si512(bytes.data() + i * lanes, x); }
};

TROUPE_AVX512 __m512i all_of(std::uint32_t x) noexcept {
  return _mm512_set1_epi8(static_cast<char>(x));
}

TROUPE_AVX512 std::uint32_t count(__mmask64 x) noexcept {
  return static_cast<std::uint32_t>(std::popcount(std::uint64_t{x}));
}

/// Through memory: GCC 12 warns of what its own header does to take a vector apart in registers.
TROUPE_AVX512 std::uint32_t largest_byte(__m512i x) noexcept {
  alignas(64) std::array<std::uint8_t, lanes> parts{};
  _mm512_store_si512(parts.data(), x);
  auto bytes = _mm_setzero_si128();
  for (std::size_t i = 0; i < lanes; i += 16)
    bytes = _mm_max_epu8(bytes, _mm_load_si128(reinterpret_cast<const __m128i*>(parts.data() + i)));
  bytes = _mm_xor_si128(bytes, _mm_set1_epi8(-1));
  bytes = _mm_min_epu8(bytes, _mm_srli_epi16(bytes, 8));
  return 255U - static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_minpos_epu16(bytes)) & 0xff);
}

/// The bytes `first`, `first` + 2, … of two vectors.
TROUPE_AVX512 __m512i every_other(std::uint32_t first) noexcept {
  alignas(64) std::array<std::uint8_t, lanes> at{};
  for (std::size_t i = 0; i < lanes; ++i)
    at[i] = static_cast<std::uint8_t>(2 * i + first);
  return _mm512_load_si512(at.data());
}

/// The bytes `first`, `first` + 1, … of one vector, each before the same of another one.
TROUPE_AVX512 __m512i in_turn(std::uint32_t first) noexcept {
  alignas(64) std::array<std::uint8_t, lanes> at{};
  for (std::size_t i = 0; i < lanes; ++i)
    at[i] = static_cast<std::uint8_t>(first + i / 2 + i % 2 * lanes);
  return _mm512_load_si512(at.data());
}

TROUPE_AVX512 void split(const std::byte* payload, std::byte* mantissas, tile_exponents& all) noexcept {
  const auto even = every_other(0);
  const auto odd = every_other(1);
  for (std::size_t i = 0; i < vectors; ++i) {
    auto x = _mm512_loadu_si512(payload + i * 2 * lanes);
    auto y = _mm512_loadu_si512(payload + i * 2 * lanes + lanes);
    x = _mm512_or_si512(_mm512_slli_epi16(x, 1), _mm512_srli_epi16(x, 15));
    y = _mm512_or_si512(_mm512_slli_epi16(y, 1), _mm512_srli_epi16(y, 15));
    _mm512_storeu_si512(mantissas + i * lanes, _mm512_permutex2var_epi8(x, even, y));
    all.set(i, _mm512_permutex2var_epi8(x, odd, y));
  }
}

TROUPE_AVX512 window_choice window_over(const tile_exponents& all) noexcept {
  auto largest = all.vector(0);
  auto smallest = largest;
  for (std::size_t i = 1; i < vectors; ++i) {
    largest = _mm512_max_epu8(largest, all.vector(i));
    smallest = _mm512_min_epu8(smallest, all.vector(i));
  }
  std::uint32_t zeroes = 0;
  if (_mm512_test_epi8_mask(smallest, smallest) != ~__mmask64{0})
    for (std::size_t i = 0; i < vectors; ++i)
      zeroes += count(_mm512_testn_epi8_mask(all.vector(i), all.vector(i)));
  const auto above = [&](std::uint32_t x) TROUPE_AVX512 {
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < vectors; ++i)
      out += count(_mm512_cmpgt_epu8_mask(all.vector(i), all_of(x)));
    return out;
  };
  const auto below = [&](std::uint32_t x) TROUPE_AVX512 {
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < vectors; ++i)
      out += count(_mm512_cmplt_epu8_mask(all.vector(i), all_of(x)));
    return out;
  };
  const auto next_below = [&](std::uint32_t x) TROUPE_AVX512 {
    auto out = _mm512_setzero_si512();
    for (std::size_t i = 0; i < vectors; ++i) {
      const auto e = all.vector(i);
      out = _mm512_mask_max_epu8(out, _mm512_cmplt_epu8_mask(e, all_of(x)), out, e);
    }
    return largest_byte(out);
  };
  return choose_window(largest_byte(largest), zeroes, above, below, next_below);
}

TROUPE_AVX512 __m512i codes_of(__m512i exponents, const tile_window& window) noexcept {
  auto codes = _mm512_min_epu8(_mm512_sub_epi8(all_of(window.base), exponents), all_of(escape_code));
  if (window.has_zero_code) {
    codes = _mm512_mask_mov_epi8(codes, _mm512_cmpge_epu8_mask(codes, all_of(zero_code)), all_of(escape_code));
    codes = _mm512_mask_mov_epi8(codes, _mm512_testn_epi8_mask(exponents, exponents), all_of(zero_code));
  }
  return codes;
}

TROUPE_AVX512 window_choice encode_vectors(const std::byte* payload, tile_target& to) noexcept {
  tile_exponents all;
  split(payload, to.mantissas, all);
  const auto choice = window_over(all);
  if (choice.escapes > max_tile_escapes)
    return choice;
  std::array<__mmask64, vectors> escaped{};
  for (std::size_t i = 0; i < half; ++i) {
    const auto low = codes_of(all.vector(i), choice.window);
    const auto high = codes_of(all.vector(i + half), choice.window);
    _mm512_storeu_si512(to.codes + i * lanes, _mm512_or_si512(low, _mm512_slli_epi16(high, 4)));
    escaped[i] = _mm512_cmpeq_epi8_mask(low, all_of(escape_code));
    escaped[i + half] = _mm512_cmpeq_epi8_mask(high, all_of(escape_code));
  }
  if (choice.escapes == 0)
    return choice;
  std::size_t at = 0;
  for (std::size_t i = 0; i < vectors; ++i) {
    _mm512_storeu_si512(to.escapes.data() + at, _mm512_maskz_compress_epi8(escaped[i], all.vector(i)));
    at += count(escaped[i]);
  }
  return choice;
}

TROUPE_AVX512 __m512i exponent_table(const tile_window& window) noexcept {
  alignas(16) const auto table = exponents_by_code(window);
  return _mm512_maskz_broadcast_i32x4(0xffff, _mm_load_si128(reinterpret_cast<const __m128i*>(table.data())));
}

/// Puts the escapes in their places. Returns false if there are more or fewer places.
TROUPE_AVX512 bool fill_escapes(const tile_source& from, const std::array<__mmask64, vectors>& escaped,
                                tile_exponents& all) noexcept {
  std::uint32_t places = 0;
  for (const auto mask : escaped)
    places += count(mask);
  if (places != from.escape_count)
    return false;
  // With as many bytes behind as the last vector may read.
  std::array<std::uint8_t, max_tile_escapes + lanes> list{};
  std::memcpy(list.data(), from.escapes, places);
  std::size_t at = 0;
  for (std::size_t i = 0; i < vectors; ++i) {
    all.set(i, _mm512_mask_expand_epi8(all.vector(i), escaped[i], _mm512_loadu_si512(list.data() + at)));
    at += count(escaped[i]);
  }
  return true;
}

TROUPE_AVX512 bool decode_vectors(const tile_source& from, std::byte* payload) noexcept {
  tile_exponents all;
  std::array<__mmask64, vectors> escaped{};
  const auto table = exponent_table(from.window);
  __mmask64 any = 0;
  for (std::size_t i = 0; i < half; ++i) {
    const auto pairs = _mm512_loadu_si512(from.codes + i * lanes);
    const auto low = _mm512_and_si512(pairs, all_of(0xf));
    const auto high = _mm512_and_si512(_mm512_srli_epi16(pairs, 4), all_of(0xf));
    all.set(i, _mm512_shuffle_epi8(table, low));
    all.set(i + half, _mm512_shuffle_epi8(table, high));
    escaped[i] = _mm512_cmpeq_epi8_mask(low, all_of(escape_code));
    escaped[i + half] = _mm512_cmpeq_epi8_mask(high, all_of(escape_code));
    any |= escaped[i] | escaped[i + half];
  }
  if ((any != 0 || from.escape_count != 0) && !fill_escapes(from, escaped, all))
    return false;
  const auto front = in_turn(0);
  const auto back = in_turn(lanes / 2);
  for (std::size_t i = 0; i < vectors; ++i) {
    const auto mantissas = _mm512_loadu_si512(from.mantissas + i * lanes);
    const auto x = _mm512_permutex2var_epi8(mantissas, front, all.vector(i));
    const auto y = _mm512_permutex2var_epi8(mantissas, back, all.vector(i));
    _mm512_storeu_si512(payload + i * 2 * lanes, _mm512_or_si512(_mm512_srli_epi16(x, 1), _mm512_slli_epi16(x, 15)));
    _mm512_storeu_si512(payload + i * 2 * lanes + lanes,
                        _mm512_or_si512(_mm512_srli_epi16(y, 1), _mm512_slli_epi16(y, 15)));
  }
  return true;
}

} // namespace

const tile_codec avx512_tile_codec{encode_vectors, decode_vectors};

} // namespace troupe::codec

#endif
