#pragma once

#include <algorithm>
#include <string_view>

/// Parts of a text, as views into it.

namespace troupe {

/// Removes a line from the start of a text and returns it without its end.
constexpr std::string_view next_line(std::string_view& text) noexcept {
  const auto line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

/// The text without the blanks and tabs at both ends.
constexpr std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view blanks = " \t";
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

} // namespace troupe
