#pragma once

#include "base/text_parts.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

/// Readers for the small text files of the kernel in /proc and /sys.

namespace troupe {

/// The content of a file whose reported size means nothing; empty where it cannot be read.
inline std::string text_of_file(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The number at the start of a text, after blanks.
inline std::optional<std::uint64_t> leading_number(std::string_view text, int base = 10) {
  const auto from = std::min(text.find_first_not_of(" \t"), text.size());
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data() + from, text.data() + text.size(), value, base);
  return failure == std::errc{} ? std::optional(value) : std::nullopt;
}

/// The rest of the line that begins with this word.
inline std::optional<std::string_view> line_of(std::string_view text, std::string_view word) {
  while (!text.empty())
    if (const auto line = next_line(text); line.starts_with(word))
      return line.substr(word.size());
  return std::nullopt;
}

} // namespace troupe
