#include "base/single_line.hpp"

#include "base/hex.hpp"
#include "base/utf8.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

namespace {

bool is_plain_ascii(char c) noexcept {
  return c >= ' ' && c <= '~';
}

/// The code point of a valid character of two or three bytes; those of four include no special ones.
std::uint32_t code_point(std::string_view character) noexcept {
  const auto bits = [&](std::size_t i, unsigned mask) { return static_cast<unsigned char>(character[i]) & mask; };
  if (character.size() == 2)
    return bits(0, 0x1fU) << 6U | bits(1, 0x3fU);
  return bits(0, 0x0fU) << 12U | bits(1, 0x3fU) << 6U | bits(2, 0x3fU);
}

bool is_obeyed(std::string_view character) noexcept {
  if (character.size() > 3)
    return false;
  const auto x = code_point(character);
  return (x >= 0x80 && x <= 0x9f) || (x >= 0x2028 && x <= 0x202e) || (x >= 0x2066 && x <= 0x2069);
}

/// The number of bytes at the start of `text` that need no change.
std::size_t printable_prefix(std::string_view text) noexcept {
  std::size_t i = 0;
  while (i < text.size()) {
    if (is_plain_ascii(text[i])) {
      ++i;
      continue;
    }
    if (static_cast<unsigned char>(text[i]) < 0x80)
      break;
    const auto length = utf8_length(text.substr(i));
    if (length == 0 || is_obeyed(text.substr(i, length)))
      break;
    i += length;
  }
  return i;
}

void append_byte(std::string& out, char c) {
  switch (c) {
  case '\n':
    out += "\\n";
    return;
  case '\r':
    out += "\\r";
    return;
  case '\t':
    out += "\\t";
    return;
  default:
    out += "\\x";
    append_hex(out, std::as_bytes(std::span(&c, 1)));
  }
}

void append_code_point(std::string& out, std::uint32_t x) {
  out += "\\u{";
  for (int shift = 12; shift >= 0; shift -= 4)
    out.push_back(hex_digits[(x >> static_cast<unsigned>(shift)) & 0xfU]);
  out += '}';
}

} // namespace

bool is_single_line(std::string_view text) noexcept {
  return printable_prefix(text) == text.size();
}

void append_single_line(std::string& out, std::string_view text) {
  for (;;) {
    const auto printable = printable_prefix(text);
    out.append(text.data(), printable);
    text.remove_prefix(printable);
    if (text.empty())
      return;
    const auto length = static_cast<unsigned char>(text.front()) < 0x80 ? 0 : utf8_length(text);
    if (length > 0) {
      append_code_point(out, code_point(text.substr(0, length)));
      text.remove_prefix(length);
    } else {
      append_byte(out, text.front());
      text.remove_prefix(1);
    }
  }
}

} // namespace troupe
