#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

/// The table of threads in docs/architecture.md.

namespace troupe::test {

/// The names in its first column, for the sources in `root`. A star at the end of one stands for any text.
inline std::vector<std::string> documented_threads(const std::filesystem::path& root) {
  std::ifstream file(root / "docs/architecture.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::regex name("`([^`]+)`");
  std::vector<std::string> out;
  auto at = text.find("\n## Threads\n");
  if (at == std::string::npos)
    return out;
  const auto end = text.find("\n## ", at + 1);
  for (at = text.find("\n| `", at); at < end; at = text.find("\n| `", at + 1)) {
    const auto column = text.substr(at, text.find(" | ", at) - at);
    for (std::sregex_iterator i(column.begin(), column.end(), name), none; i != none; ++i)
      out.push_back((*i)[1].str());
  }
  return out;
}

inline bool is_documented_thread(std::string_view name, const std::vector<std::string>& table) {
  return std::ranges::any_of(table, [&](std::string_view known) {
    return known.ends_with('*') ? name.starts_with(known.substr(0, known.size() - 1)) : name == known;
  });
}

} // namespace troupe::test
