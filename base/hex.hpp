#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

inline constexpr std::string_view hex_digits = "0123456789abcdef";

/// Two lower-case hexadecimal digits per byte, the first byte first.
inline void append_hex(std::string& out, std::span<const std::byte> bytes) {
  for (const auto x : bytes) {
    out.push_back(hex_digits[std::to_integer<std::size_t>(x >> 4)]);
    out.push_back(hex_digits[std::to_integer<std::size_t>(x & std::byte{0xf})]);
  }
}

/// 16 lower-case hexadecimal digits.
inline void append_hex(std::string& out, std::uint64_t x) {
  for (int shift = 60; shift >= 0; shift -= 4)
    out.push_back(hex_digits[(x >> shift) & 0xfU]);
}

/// The value of the digit, upper or lower case; -1 for any other character.
constexpr int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  return -1;
}

} // namespace troupe
