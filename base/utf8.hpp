#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace troupe {

/// Whether the byte continues a character of UTF-8, and so begins none.
constexpr bool continues_character(char c) noexcept {
  return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U;
}

/// The number of characters in valid UTF-8.
constexpr std::size_t characters_in(std::string_view text) noexcept {
  return text.size() - static_cast<std::size_t>(std::ranges::count_if(text, continues_character));
}

/// The number of bytes of the UTF-8 character at the start of `text`, whose first byte is not ASCII; 0 where the bytes
/// are not valid UTF-8 (truncated, overlong, a surrogate, beyond U+10FFFF). Thread-safe.
std::size_t utf8_length(std::string_view text) noexcept;

} // namespace troupe
