#pragma once

#include "base/identifiers.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace troupe::replay {

/// What pages are filled with: any bits; or elements of BF16 between 2^-7 and 2 and of any sign, which are any
/// bits but for four of each two bytes: such pages can be encoded.
enum class page_values : std::uint8_t { random, bf16 };

/// The expected bytes of the page of one (key, rank): the little-endian 64-bit words a + i·b (mod 2^64), where i is the
/// word's position in the canonical page and a and the odd b are mixed from digest and rank.
///
/// It is cheap enough not to affect the measurement of a replay, and detects the possible faults: pages of other keys
/// or ranks have another a and b; bytes at another position differ, since i·b is different for every i; constant
/// content (zeros, poison) differs from one word to the next. It is not a checksum: the first two words determine the
/// page.
class page_pattern {
public:
  page_pattern(const key_digest& key, rank_number rank, page_values values = page_values::random) noexcept;

  /// Writes the bytes [offset, offset + out.size()) of the page. Any offset, size and alignment.
  void fill(std::span<std::byte> out, std::uint64_t offset) const noexcept;

  /// Compares with the bytes [offset, offset + bytes.size()) of the page. Returns the position in the page of the first
  /// different byte, or nothing.
  std::optional<std::uint64_t> compare(std::span<const std::byte> bytes, std::uint64_t offset) const noexcept;

  /// The byte at `offset` of the page.
  std::byte at(std::uint64_t offset) const noexcept;

private:
  std::uint64_t word(std::uint64_t index) const noexcept { return ((first_ + index * step_) & kept_bits_) | set_bits_; }
  /// Some consecutive words.
  struct line;

  std::uint64_t first_;
  std::uint64_t step_;
  std::uint64_t kept_bits_ = ~std::uint64_t{0};
  std::uint64_t set_bits_ = 0;
};

} // namespace troupe::replay
