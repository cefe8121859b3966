#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// The checksum of a page's payload, made to be computed by whoever moves the bytes: by a thousand threads of a GPU in
/// any order, or by one core as fast as it reads memory. docs/page-format.md gives the definition and its reasons.

#ifdef __CUDACC__
#define TROUPE_HOST_DEVICE __host__ __device__
#else
#define TROUPE_HOST_DEVICE
#endif

namespace troupe::io {

/// Two sums of products. Sums of parts of a page, each word taken with its index in the whole page, add up to the sum
/// of the page, in any order.
struct page_checksum {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  TROUPE_HOST_DEVICE page_checksum& operator+=(const page_checksum& other) noexcept {
    low += other.low;
    high += other.high;
    return *this;
  }

  friend bool operator==(const page_checksum&, const page_checksum&) = default;
};

/// A payload is read as little-endian words of this size; the last one is filled up with zeroes.
inline constexpr std::uint64_t checksum_word_bytes = 16;

namespace checksum_keys {

// Digits of pi to start with, and odd steps, so that no two words of a page have a key in common.
inline constexpr std::uint64_t first_start = 0x243f6a8885a308d3ULL;
inline constexpr std::uint64_t first_step = 0x9e3779b97f4a7c15ULL;
inline constexpr std::uint64_t last_start = 0x13198a2e03707345ULL;
inline constexpr std::uint64_t last_step = 0xd1b54a32d192ed03ULL;

} // namespace checksum_keys

/// What the word at `index` of the payload, given as its first and last eight bytes, adds to the checksum: its four
/// quarters, mixed with keys that depend on the index, multiplied in pairs, and in other pairs for the other sum. (The
/// NH function of UMAC, RFC 4418, as the inner loop of XXH3 has it: one multiplication of 32 bits for every four bytes,
/// which vectors of a processor and threads of a GPU have alike.) A change of one quarter changes both sums, unless two
/// other quarters happen to be zero at once after mixing.
TROUPE_HOST_DEVICE inline page_checksum checksum_of_word(std::uint64_t index, std::uint64_t first,
                                                         std::uint64_t last) noexcept {
  const auto a = first ^ (checksum_keys::first_start + index * checksum_keys::first_step);
  const auto b = last ^ (checksum_keys::last_start + index * checksum_keys::last_step);
  const auto a0 = static_cast<std::uint32_t>(a);
  const auto a1 = static_cast<std::uint32_t>(a >> 32U);
  const auto b0 = static_cast<std::uint32_t>(b);
  const auto b1 = static_cast<std::uint32_t>(b >> 32U);
  return {std::uint64_t{a0} * a1 + std::uint64_t{b0} * b1, std::uint64_t{a0} * b0 + std::uint64_t{a1} * b1};
}

/// The checksum of a payload, or of a part of one that begins at the word `first_word` of the whole; all parts but the
/// last must be whole words.
page_checksum checksum_of(std::span<const std::byte> payload, std::uint64_t first_word = 0) noexcept;

} // namespace troupe::io
