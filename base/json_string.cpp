#include "base/json_string.hpp"

#include "base/hex.hpp"
#include "base/utf8.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace troupe {

namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";

constexpr std::uint64_t repeated(unsigned char byte) noexcept {
  return std::uint64_t{0x0101010101010101} * byte;
}

/// Whether one of eight bytes is a control character, a quote, a backslash or not ASCII. Bytes above the lowest such
/// one may be reported wrongly, therefore the answer is only yes or no.
bool has_special(std::uint64_t word) noexcept {
  constexpr auto high = repeated(0x80);
  constexpr auto ones = repeated(0x01);
  const auto quote = word ^ repeated('"');
  const auto backslash = word ^ repeated('\\');
  const auto is_control = (word - repeated(0x20)) & ~word;
  const auto is_quote = (quote - ones) & ~quote;
  const auto is_backslash = (backslash - ones) & ~backslash;
  return ((is_control | is_quote | is_backslash | word) & high) != 0;
}

bool is_special(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte >= 0x80 || c == '"' || c == '\\';
}

/// The number of bytes at the start of `text` that need no escape.
std::size_t plain_prefix(std::string_view text) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, sizeof(word));
    if (has_special(word))
      break;
  }
  while (i < text.size() && !is_special(text[i]))
    ++i;
  return i;
}

void append_escape(std::string& out, char c) {
  switch (c) {
  case '"':
    out += "\\\"";
    return;
  case '\\':
    out += "\\\\";
    return;
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
    out += "\\u00";
    append_hex(out, std::as_bytes(std::span(&c, 1)));
  }
}

} // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (;;) {
    const auto plain = plain_prefix(text);
    out.append(text.data(), plain);
    text.remove_prefix(plain);
    if (text.empty())
      break;
    if (static_cast<unsigned char>(text.front()) < 0x80) {
      append_escape(out, text.front());
      text.remove_prefix(1);
    } else if (const auto length = utf8_length(text); length > 0) {
      out.append(text.data(), length);
      text.remove_prefix(length);
    } else {
      out += replacement;
      text.remove_prefix(1);
    }
  }
  out += '"';
}

} // namespace troupe
