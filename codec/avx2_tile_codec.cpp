#include "codec/tile_codec.hpp"

#ifdef __x86_64__

#include <algorithm>
#include <array>
#include <bit>
#include <immintrin.h>

#define TROUPE_AVX2 __attribute__((target("avx2,popcnt")))

namespace troupe::codec {

namespace {

constexpr std::size_t wide = 32;
constexpr std::size_t rows = tile_elements / wide;
constexpr std::size_t half_rows = rows / 2;

TROUPE_AVX2 __m256i load(const void* at) noexcept {
  return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}

TROUPE_AVX2 void store(void* at, __m256i x) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(at), x);
}

TROUPE_AVX2 __m256i each(std::uint32_t x) noexcept {
  return _mm256_set1_epi8(static_cast<char>(x));
}

struct alignas(32) row_exponents {
  std::array<std::uint8_t, tile_elements> bytes;

  TROUPE_AVX2 __m256i row(std::size_t i) const noexcept { return load(bytes.data() + i * wide); }
  TROUPE_AVX2 void set(std::size_t i, __m256i x) noexcept { store(bytes.data() + i * wide, x); }
};

TROUPE_AVX2 std::uint32_t top_byte(__m256i x) noexcept {
  auto bytes = _mm_max_epu8(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  bytes = _mm_xor_si128(bytes, _mm_set1_epi8(-1));
  bytes = _mm_min_epu8(bytes, _mm_srli_epi16(bytes, 8));
  return 255U - static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_minpos_epu16(bytes)) & 0xff);
}

/// The sum of 32 counters of a byte.
TROUPE_AVX2 std::uint32_t sum_of(__m256i counters) noexcept {
  const auto four = _mm256_sad_epu8(counters, _mm256_setzero_si256());
  const auto two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 2));
}

TROUPE_AVX2 void part(const std::byte* payload, std::byte* mantissas, row_exponents& all) noexcept {
  const auto low_bytes = _mm256_set1_epi16(0xff);
  for (std::size_t i = 0; i < rows; ++i) {
    auto x = load(payload + i * 2 * wide);
    auto y = load(payload + i * 2 * wide + wide);
    x = _mm256_or_si256(_mm256_slli_epi16(x, 1), _mm256_srli_epi16(x, 15));
    y = _mm256_or_si256(_mm256_slli_epi16(y, 1), _mm256_srli_epi16(y, 15));
    const auto low = _mm256_packus_epi16(_mm256_and_si256(x, low_bytes), _mm256_and_si256(y, low_bytes));
    const auto high = _mm256_packus_epi16(_mm256_srli_epi16(x, 8), _mm256_srli_epi16(y, 8));
    store(mantissas + i * wide, _mm256_permute4x64_epi64(low, 0xd8));
    all.set(i, _mm256_permute4x64_epi64(high, 0xd8));
  }
}

TROUPE_AVX2 window_choice window_in(const row_exponents& all) noexcept {
  auto largest = all.row(0);
  auto zero_counters = _mm256_setzero_si256();
  for (std::size_t i = 0; i < rows; ++i) {
    largest = _mm256_max_epu8(largest, all.row(i));
    zero_counters = _mm256_sub_epi8(zero_counters, _mm256_cmpeq_epi8(all.row(i), _mm256_setzero_si256()));
  }
  // Only called for less than the largest exponent.
  const auto above = [&](std::uint32_t x) TROUPE_AVX2 {
    auto counters = _mm256_setzero_si256();
    for (std::size_t i = 0; i < rows; ++i)
      counters = _mm256_sub_epi8(counters, _mm256_cmpeq_epi8(_mm256_max_epu8(all.row(i), each(x + 1)), all.row(i)));
    return sum_of(counters);
  };
  // These two are only called for more than 0.
  const auto below = [&](std::uint32_t x) TROUPE_AVX2 {
    auto counters = _mm256_setzero_si256();
    for (std::size_t i = 0; i < rows; ++i)
      counters = _mm256_sub_epi8(counters, _mm256_cmpeq_epi8(_mm256_min_epu8(all.row(i), each(x - 1)), all.row(i)));
    return sum_of(counters);
  };
  const auto next_below = [&](std::uint32_t x) TROUPE_AVX2 {
    auto out = _mm256_setzero_si256();
    for (std::size_t i = 0; i < rows; ++i) {
      const auto is_below = _mm256_cmpeq_epi8(_mm256_min_epu8(all.row(i), each(x - 1)), all.row(i));
      out = _mm256_max_epu8(out, _mm256_and_si256(all.row(i), is_below));
    }
    return top_byte(out);
  };
  return choose_window(top_byte(largest), sum_of(zero_counters), above, below, next_below);
}

TROUPE_AVX2 __m256i codes_for(__m256i exponents, const tile_window& window) noexcept {
  auto codes = _mm256_min_epu8(_mm256_sub_epi8(each(window.base), exponents), each(escape_code));
  if (window.has_zero_code) {
    // Of the codes, only 14 and 15 become 15.
    codes = _mm256_or_si256(codes, _mm256_and_si256(_mm256_cmpeq_epi8(codes, each(zero_code)), each(escape_code)));
    codes = _mm256_blendv_epi8(codes, each(zero_code), _mm256_cmpeq_epi8(exponents, _mm256_setzero_si256()));
  }
  return codes;
}

/// A bit for each byte that is an escape.
TROUPE_AVX2 std::uint32_t escapes_among(__m256i codes) noexcept {
  return static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(codes, each(escape_code))));
}

/// Calls `with` with the place of each escape in turn.
template <class With>
void for_each_escape(const std::array<std::uint32_t, rows>& escaped, const With& with) noexcept {
  for (std::size_t i = 0; i < rows; ++i)
    for (auto left = escaped[i]; left != 0; left &= left - 1)
      with(i * wide + static_cast<std::size_t>(std::countr_zero(left)));
}

TROUPE_AVX2 window_choice encode_rows(const std::byte* payload, tile_target& to) noexcept {
  row_exponents all;
  part(payload, to.mantissas, all);
  const auto choice = window_in(all);
  if (choice.escapes > max_tile_escapes)
    return choice;
  std::array<std::uint32_t, rows> escaped{};
  for (std::size_t i = 0; i < half_rows; ++i) {
    const auto low = codes_for(all.row(i), choice.window);
    const auto high = codes_for(all.row(i + half_rows), choice.window);
    store(to.codes + i * wide, _mm256_or_si256(low, _mm256_slli_epi16(high, 4)));
    escaped[i] = escapes_among(low);
    escaped[i + half_rows] = escapes_among(high);
  }
  if (choice.escapes == 0)
    return choice;
  std::size_t at = 0;
  for_each_escape(escaped, [&](std::size_t i) { to.escapes[at++] = all.bytes[i]; });
  return choice;
}

TROUPE_AVX2 __m256i exponent_row(const tile_window& window) noexcept {
  alignas(16) const auto table = exponents_by_code(window);
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table.data())));
}

TROUPE_AVX2 bool decode_rows(const tile_source& from, std::byte* payload) noexcept {
  row_exponents all;
  std::array<std::uint32_t, rows> escaped{};
  const auto table = exponent_row(from.window);
  std::uint32_t places = 0;
  for (std::size_t i = 0; i < half_rows; ++i) {
    const auto pairs = load(from.codes + i * wide);
    const auto low = _mm256_and_si256(pairs, each(0xf));
    const auto high = _mm256_and_si256(_mm256_srli_epi16(pairs, 4), each(0xf));
    all.set(i, _mm256_shuffle_epi8(table, low));
    all.set(i + half_rows, _mm256_shuffle_epi8(table, high));
    escaped[i] = escapes_among(low);
    escaped[i + half_rows] = escapes_among(high);
    places += static_cast<std::uint32_t>(std::popcount(escaped[i]) + std::popcount(escaped[i + half_rows]));
  }
  if (places != from.escape_count)
    return false;
  std::size_t at = 0;
  if (places != 0)
    for_each_escape(escaped, [&](std::size_t i) { all.bytes[i] = from.escapes[at++]; });
  for (std::size_t i = 0; i < rows; ++i) {
    const auto mantissas = load(from.mantissas + i * wide);
    const auto front = _mm256_unpacklo_epi8(mantissas, all.row(i));
    const auto back = _mm256_unpackhi_epi8(mantissas, all.row(i));
    const auto x = _mm256_permute2x128_si256(front, back, 0x20);
    const auto y = _mm256_permute2x128_si256(front, back, 0x31);
    store(payload + i * 2 * wide, _mm256_or_si256(_mm256_srli_epi16(x, 1), _mm256_slli_epi16(x, 15)));
    store(payload + i * 2 * wide + wide, _mm256_or_si256(_mm256_srli_epi16(y, 1), _mm256_slli_epi16(y, 15)));
  }
  return true;
}

} // namespace

const tile_codec avx2_tile_codec{encode_rows, decode_rows};

} // namespace troupe::codec

#endif
