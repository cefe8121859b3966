#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

/// Writing of JSON for answers of a known shape: the shape is literals, the values go through these functions.

namespace troupe::http {

/// Appends `text` with its quotes, escaped. Bytes that are not UTF-8 become U+FFFD.
void append_json(std::string& out, std::string_view text);
void append_json(std::string& out, std::uint64_t number);
void append_json(std::string& out, std::int64_t number);
void append_json(std::string& out, bool value);
/// The shortest form that parses to an equal number; null if it is not finite.
void append_json(std::string& out, double number);
/// Not for plain pointers, which would turn into `bool`.
void append_json(std::string& out, const char* text);

/// Appends an array; `append(item)` appends each of its items.
template <class Items, class Append>
void append_list(std::string& out, const Items& items, Append append) {
  out += '[';
  bool is_first = true;
  for (const auto& x : items) {
    if (!is_first)
      out += ',';
    is_first = false;
    append(x);
  }
  out += ']';
}

/// The most bytes that `write_json` uses.
inline constexpr std::size_t short_json_bytes = std::numeric_limits<std::uint32_t>::digits10 + 1;

// Writes what `append_json` would append, into sufficient memory; returns the end.
inline char* write_json(char* to, std::uint32_t number) noexcept {
  return std::to_chars(to, to + short_json_bytes, number).ptr;
}
inline char* write_json(char* to, bool value) noexcept {
  std::memcpy(to, value ? "true" : "false", 5);
  return to + (value ? 4 : 5);
}
inline char* write_json(char* to, std::nullptr_t) noexcept {
  return std::copy_n("null", 4, to);
}

/// Like `append_list`, for many short items: memory is reserved once, instead of checked per item. `write(to, item)`
/// writes an item, of at most `short_json_bytes`, and returns its end.
template <class Items, class Write>
void append_short_items(std::string& out, const Items& items, Write write) {
  const auto before = out.size();
  out.resize(before + items.size() * (short_json_bytes + 1) + 2);
  auto* to = out.data() + before;
  *to++ = '[';
  for (const auto& x : items) {
    to = write(to, x);
    *to++ = ',';
  }
  // Overwrites the last comma, if there is one.
  to -= items.empty() ? 0 : 1;
  *to++ = ']';
  out.resize(static_cast<std::size_t>(to - out.data()));
}

} // namespace troupe::http
