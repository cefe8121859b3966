#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Writing JSON, for answers whose shape is known: the shape is literals, the values go through these.

namespace troupe::http {

/// Appends `text` with its quotes, escaped. Bytes that are not UTF-8 become U+FFFD.
void append_json(std::string& out, std::string_view text);
void append_json(std::string& out, std::uint64_t number);
void append_json(std::string& out, std::int64_t number);
void append_json(std::string& out, bool value);
/// Shortest form that reads back equal; null for what is not finite.
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

} // namespace troupe::http
