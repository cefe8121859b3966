#include "http/server/json_text.hpp"

#include "base/json_string.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace troupe::http {

namespace {

template <class T>
void append_number(std::string& out, T number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  out.append(text.data(), end);
}

} // namespace

void append_json(std::string& out, std::string_view text) {
  append_json_string(out, text);
}

void append_json(std::string& out, std::uint64_t number) {
  append_number(out, number);
}

void append_json(std::string& out, std::int64_t number) {
  append_number(out, number);
}

void append_json(std::string& out, bool value) {
  out += value ? "true" : "false";
}

void append_json(std::string& out, double number) {
  if (std::isfinite(number))
    append_number(out, number);
  else
    out += "null";
}

void append_json(std::string& out, const char* text) {
  append_json(out, std::string_view{text});
}

} // namespace troupe::http
