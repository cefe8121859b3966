#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace troupe {

/// The whole number that the text consists of; none where it has other characters, or does not fit into a `T`.
template <class T = std::uint64_t>
std::optional<T> parse_number(std::string_view text, int base = 10) {
  T out{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return failure == std::errc{} && end == text.data() + text.size() ? std::optional(out) : std::nullopt;
}

} // namespace troupe
