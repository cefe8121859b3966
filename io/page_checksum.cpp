#include "io/page_checksum.hpp"

#include <array>
#include <bit>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace troupe::io {

static_assert(std::endian::native == std::endian::little, "words of a payload are little-endian and read as they are");

namespace {

std::uint64_t eight_bytes(const std::byte* at) noexcept {
  std::uint64_t out = 0;
  std::memcpy(&out, at, sizeof out);
  return out;
}

page_checksum checksum_of_words(const std::byte* at, std::uint64_t words, std::uint64_t first_word) noexcept {
  page_checksum sum;
  for (std::uint64_t i = 0; i < words; ++i, at += checksum_word_bytes)
    sum += checksum_of_word(first_word + i, eight_bytes(at), eight_bytes(at + 8));
  return sum;
}

#ifdef __x86_64__

/// Processes two words at a time in four sums, so that no addition waits for another.
__attribute__((target("avx2"))) page_checksum checksum_of_words_avx2(const std::byte* at, std::uint64_t words,
                                                                     std::uint64_t first_word) noexcept {
  namespace keys = checksum_keys;
  const auto signed_of = [](std::uint64_t x) { return static_cast<long long>(x); };
  const auto key_of = [&](std::uint64_t index) __attribute__((target("avx2"))) {
    return _mm256_set_epi64x(signed_of(keys::last_start + (index + 1) * keys::last_step),
                             signed_of(keys::first_start + (index + 1) * keys::first_step),
                             signed_of(keys::last_start + index * keys::last_step),
                             signed_of(keys::first_start + index * keys::first_step));
  };
  constexpr std::uint64_t words_a_round = 4;
  const auto step =
      _mm256_set_epi64x(signed_of(words_a_round * keys::last_step), signed_of(words_a_round * keys::first_step),
                        signed_of(words_a_round * keys::last_step), signed_of(words_a_round * keys::first_step));
  auto key0 = key_of(first_word);
  auto key1 = key_of(first_word + 2);
  auto low0 = _mm256_setzero_si256();
  auto low1 = low0;
  auto high0 = low0;
  auto high1 = low0;
  const auto rounds = words / words_a_round;
  for (std::uint64_t i = 0; i < rounds; ++i, at += words_a_round * checksum_word_bytes) {
    __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32));
    x = _mm256_xor_si256(x, key0);
    y = _mm256_xor_si256(y, key1);
    key0 = _mm256_add_epi64(key0, step);
    key1 = _mm256_add_epi64(key1, step);
    // The multiplication uses the even 32-bit lanes: quarters 0 and 2 times 1 and 3, then 0 and 1 times 2 and 3.
    low0 = _mm256_add_epi64(low0, _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)));
    low1 = _mm256_add_epi64(low1, _mm256_mul_epu32(y, _mm256_srli_epi64(y, 32)));
    high0 = _mm256_add_epi64(high0, _mm256_mul_epu32(_mm256_shuffle_epi32(x, 0x10), _mm256_shuffle_epi32(x, 0x32)));
    high1 = _mm256_add_epi64(high1, _mm256_mul_epu32(_mm256_shuffle_epi32(y, 0x10), _mm256_shuffle_epi32(y, 0x32)));
  }
  const auto total = [](__m256i sum) __attribute__((target("avx2"))) {
    std::array<std::uint64_t, 4> parts{};
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(parts.data()), sum);
    return parts[0] + parts[1] + parts[2] + parts[3];
  };
  page_checksum sum{total(_mm256_add_epi64(low0, low1)), total(_mm256_add_epi64(high0, high1))};
  const auto done = rounds * words_a_round;
  return sum += checksum_of_words(at, words - done, first_word + done);
}

#endif

} // namespace

page_checksum checksum_of(std::span<const std::byte> payload, std::uint64_t first_word) noexcept {
  const auto words = payload.size() / checksum_word_bytes;
#ifdef __x86_64__
  static const bool wide = __builtin_cpu_supports("avx2") != 0;
  auto sum = wide ? checksum_of_words_avx2(payload.data(), words, first_word)
                  : checksum_of_words(payload.data(), words, first_word);
#else
  auto sum = checksum_of_words(payload.data(), words, first_word);
#endif
  if (const auto rest = payload.size() % checksum_word_bytes; rest != 0) {
    std::array<std::byte, checksum_word_bytes> last{};
    std::memcpy(last.data(), payload.data() + words * checksum_word_bytes, rest);
    sum += checksum_of_words(last.data(), 1, first_word + words);
  }
  return sum;
}

} // namespace troupe::io
