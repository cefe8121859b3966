#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

/// Reading what the kernel tells in small files of text, in /proc and /sys.

namespace troupe {

/// All of a file whose size says nothing; empty where it cannot be read.
inline std::string text_of_file(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The number that a text begins with, behind blanks.
inline std::optional<std::uint64_t> leading_number(std::string_view text, int base = 10) {
  const auto from = std::min(text.find_first_not_of(" \t"), text.size());
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data() + from, text.data() + text.size(), value, base);
  return failure == std::errc{} ? std::optional(value) : std::nullopt;
}

/// Takes a line off the start of a text, without its end.
inline std::string_view next_line(std::string_view& text) {
  const auto line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

/// What stands behind the word that a line begins with.
inline std::optional<std::string_view> line_of(std::string_view text, std::string_view word) {
  while (!text.empty())
    if (const auto line = next_line(text); line.starts_with(word))
      return line.substr(word.size());
  return std::nullopt;
}

} // namespace troupe
