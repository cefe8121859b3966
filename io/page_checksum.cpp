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

/// Where the words go that are summed.
enum class word_target : std::uint8_t {
  nowhere,
  memory,
  /// Memory, past the caches: an address that is a multiple of 32, at least 4 words at a time.
  memory_uncached,
};

template <word_target Target>
page_checksum sum_words(const std::byte* at, [[maybe_unused]] std::byte* to, std::uint64_t words,
                        std::uint64_t first_word) noexcept {
  page_checksum sum;
  for (std::uint64_t i = 0; i < words; ++i, at += checksum_word_bytes) {
    auto first = eight_bytes(at);
    auto last = eight_bytes(at + 8);
    if constexpr (Target != word_target::nowhere) {
      // What is summed is what is stored, though another process may write here: the compiler may not read it again.
      asm volatile("" : "+r"(first), "+r"(last)); // NOLINT(hicpp-no-assembler)
      std::memcpy(to, &first, sizeof first);
      std::memcpy(to + sizeof first, &last, sizeof last);
      to += checksum_word_bytes;
    }
    sum += checksum_of_word(first_word + i, first, last);
  }
  return sum;
}

#ifdef __x86_64__

/// Processes two words at a time in four sums, so that no addition waits for another.
template <word_target Target>
__attribute__((target("avx2"))) page_checksum sum_words_avx2(const std::byte* at, [[maybe_unused]] std::byte* to,
                                                             std::uint64_t words, std::uint64_t first_word) noexcept {
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
    if constexpr (Target != word_target::nowhere)
      asm volatile("" : "+x"(x), "+x"(y)); // NOLINT(hicpp-no-assembler): as in sum_words
    if constexpr (Target == word_target::memory) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), y);
    } else if constexpr (Target == word_target::memory_uncached) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to), x);
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 32), y);
    }
    if constexpr (Target != word_target::nowhere)
      to += words_a_round * checksum_word_bytes;
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
  if constexpr (Target == word_target::memory_uncached)
    _mm_sfence();
  const auto done = rounds * words_a_round;
  constexpr auto rest = Target == word_target::nowhere ? word_target::nowhere : word_target::memory;
  return sum += sum_words<rest>(at, to, words - done, first_word + done);
}

/// From this size on a part is stored past the caches.
constexpr std::uint64_t uncached_from_bytes = 65536;

/// Both addresses are multiples of a word, as in pages; others are copied through the caches.
page_checksum copy_words_avx2(std::byte* to, const std::byte* at, std::uint64_t words,
                              std::uint64_t first_word) noexcept {
  constexpr std::uintptr_t wide_bytes = 32;
  const auto over = reinterpret_cast<std::uintptr_t>(to) % wide_bytes;
  if (words * checksum_word_bytes < uncached_from_bytes || over % checksum_word_bytes != 0)
    return sum_words_avx2<word_target::memory>(at, to, words, first_word);
  const std::uint64_t before = over / checksum_word_bytes;
  const auto skipped = before * checksum_word_bytes;
  auto sum = sum_words<word_target::memory>(at, to, before, first_word);
  return sum +=
         sum_words_avx2<word_target::memory_uncached>(at + skipped, to + skipped, words - before, first_word + before);
}

#endif

bool has_wide_vectors() noexcept {
#ifdef __x86_64__
  static const bool wide = __builtin_cpu_supports("avx2") != 0;
  return wide;
#else
  return false;
#endif
}

/// The checksum of the bytes behind the last whole word.
page_checksum checksum_of_rest(std::span<const std::byte> rest, std::uint64_t word) noexcept {
  std::array<std::byte, checksum_word_bytes> last{};
  std::memcpy(last.data(), rest.data(), rest.size());
  return sum_words<word_target::nowhere>(last.data(), nullptr, 1, word);
}

page_checksum sum_all_words(const std::byte* at, std::uint64_t words, std::uint64_t first_word) noexcept {
#ifdef __x86_64__
  if (has_wide_vectors())
    return sum_words_avx2<word_target::nowhere>(at, nullptr, words, first_word);
#endif
  return sum_words<word_target::nowhere>(at, nullptr, words, first_word);
}

page_checksum copy_all_words(std::byte* to, const std::byte* at, std::uint64_t words,
                             std::uint64_t first_word) noexcept {
#ifdef __x86_64__
  if (has_wide_vectors())
    return copy_words_avx2(to, at, words, first_word);
#endif
  return sum_words<word_target::memory>(at, to, words, first_word);
}

} // namespace

page_checksum checksum_of(std::span<const std::byte> payload, std::uint64_t first_word) noexcept {
  const auto words = payload.size() / checksum_word_bytes;
  auto sum = sum_all_words(payload.data(), words, first_word);
  if (const auto rest = payload.subspan(words * checksum_word_bytes); !rest.empty())
    sum += checksum_of_rest(rest, first_word + words);
  return sum;
}

page_checksum copy_with_checksum(std::byte* to, std::span<const std::byte> payload, std::uint64_t first_word) noexcept {
  const auto words = payload.size() / checksum_word_bytes;
  auto sum = copy_all_words(to, payload.data(), words, first_word);
  if (const auto rest = payload.subspan(words * checksum_word_bytes); !rest.empty()) {
    auto* const end = to + words * checksum_word_bytes;
    std::memcpy(end, rest.data(), rest.size());
    sum += checksum_of_rest({end, rest.size()}, first_word + words);
  }
  return sum;
}

} // namespace troupe::io
