#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// The checksum of a page's payload, designed to be computed while the bytes are copied: by a thousand GPU threads in
/// any order, or by one core at memory bandwidth. docs/page-format.md gives the definition and its reasons.

#ifdef __CUDACC__
#define TROUPE_HOST_DEVICE __host__ __device__
#else
#define TROUPE_HOST_DEVICE
#endif

namespace troupe::io {

/// Two sums of products. The sums of parts of a page, each word taken with its index in the whole page, add up to the
/// sum of the page, in any order.
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

/// A payload is read as little-endian words of this size; the last one is padded with zeroes.
inline constexpr std::uint64_t checksum_word_bytes = 16;

namespace checksum_keys {

// Digits of pi to start with, and odd steps, so that no two words of a page have a key in common.
inline constexpr std::uint64_t first_start = 0x243f6a8885a308d3ULL;
inline constexpr std::uint64_t first_step = 0x9e3779b97f4a7c15ULL;
inline constexpr std::uint64_t last_start = 0x13198a2e03707345ULL;
inline constexpr std::uint64_t last_step = 0xd1b54a32d192ed03ULL;

} // namespace checksum_keys

/// The contribution to the checksum of the word at `index` of the payload, given as its first and last eight bytes. Its
/// four quarters are mixed with keys that depend on the index, multiplied in pairs, and in other pairs for the other
/// sum. (This is the NH function of UMAC, RFC 4418, as in the inner loop of XXH3: one 32-bit multiplication for every
/// four bytes, which vector units and GPU threads both have.) A change of one quarter changes both sums, unless two
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

/// Copies a payload, or such a part of one, to `to`, and returns its checksum: that of the bytes that were stored, even
/// if another process writes to `payload` meanwhile, as each byte is read once. Large parts are stored past the
/// processor's caches, which saves reading the memory at `to` first. The two must not overlap.
page_checksum copy_with_checksum(std::byte* to, std::span<const std::byte> payload,
                                 std::uint64_t first_word = 0) noexcept;

} // namespace troupe::io
