#include "tests/unit/source_tree.hpp"

#include "tests/catch.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <utility>

namespace troupe::test {

namespace {

namespace fs = std::filesystem;

bool is_source(const fs::path& file, const std::string& text) {
  return file.extension() == ".hpp" || file.extension() == ".cpp" || file.extension() == ".cmake" ||
         file.extension() == ".sh" || file.filename() == "CMakeLists.txt" || text.starts_with("#!");
}

std::string text_of(const fs::path& file) {
  std::ifstream stream{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{stream}, {}};
}

/// Build and hidden directories are not part of the source tree.
bool is_foreign(const fs::path& directory) {
  const auto name = directory.filename().string();
  return name.starts_with('.') || name == "build" || fs::exists(directory / "CMakeCache.txt");
}

} // namespace

const source_tree& sources() {
  static const source_tree tree = [] {
    const fs::path root{TROUPE_SOURCE_DIR};
    source_tree result;
    std::error_code failure;
    for (fs::recursive_directory_iterator at{root, failure}, end; !failure && at != end; at.increment(failure)) {
      if (at->is_directory(failure) && is_foreign(at->path())) {
        at.disable_recursion_pending();
      } else if (at->is_regular_file(failure) && at->file_size(failure) < 1'000'000) {
        auto text = text_of(at->path());
        if (is_source(at->path(), text))
          result.emplace(at->path().lexically_relative(root).generic_string(), std::move(text));
      }
    }
    return result;
  }();
  return tree;
}

std::string page_of_sources(std::string_view path) {
  return text_of(fs::path{TROUPE_SOURCE_DIR} / path);
}

bool have_sources() {
  if (!fs::exists(fs::path{TROUPE_SOURCE_DIR} / "CMakeLists.txt")) {
    WARN("skipped: the sources are not at " << TROUPE_SOURCE_DIR);
    return false;
  }
  REQUIRE(sources().contains("tests/unit/style_test.cpp"));
  return true;
}

void expect_none(const std::vector<std::string>& complaints) {
  for (const auto& x : complaints)
    FAIL_CHECK(x);
}

bool is_cpp(std::string_view path) {
  return path.ends_with(".hpp") || path.ends_with(".cpp");
}

bool is_product(std::string_view path) {
  return is_cpp(path) && !path.starts_with("tests/") && !path.starts_with("bench/");
}

std::string concat(std::initializer_list<std::string_view> parts) {
  std::string result;
  for (const auto part : parts)
    result += part;
  return result;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream{text};
  for (std::string line; std::getline(stream, line);)
    lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> includes_of(const std::string& text) {
  constexpr std::string_view directive = "#include ";
  std::vector<std::string> result;
  for (const auto& line : lines_of(text))
    if (line.starts_with(directive) && line.size() > directive.size() + 2)
      result.push_back(line.substr(directive.size()));
  return result;
}

} // namespace troupe::test
