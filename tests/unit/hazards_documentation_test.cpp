#include "tests/catch.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <string_view>

/// The pages about hazards name tests, which must exist.

namespace hazards_documentation_test {

namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// All that the expression's group matches.
void collect(const std::string& text, const std::regex& what, std::set<std::string>& to) {
  for (std::sregex_iterator i(text.begin(), text.end(), what), end; i != end; ++i)
    to.insert((*i)[1].str());
}

struct known_tests {
  known_tests() {
    const fs::path root = TROUPE_SOURCE_DIR;
    const std::regex parts("\"\\s*\\n\\s*\"");
    const std::regex cases("TEST_CASE(?:_METHOD)?\\(\\s*(?:\\w+,\\s*)?\"([^\"]*)\"");
    const std::regex functions("def (test_\\w+)\\(");
    for (const auto& x : fs::recursive_directory_iterator(root / "tests"))
      if (x.path().extension() == ".cpp")
        collect(std::regex_replace(text_of(x.path()), parts, ""), cases, names);
      else if (x.path().extension() == ".py")
        collect(text_of(x.path()), functions, names);
  }

  /// "name: what, …" stands for a name that begins so.
  bool have(std::string_view cited) const {
    constexpr std::string_view dots = " …";
    if (!cited.ends_with(dots))
      return names.contains(std::string(cited));
    cited.remove_suffix(dots.size());
    if (cited.ends_with(','))
      cited.remove_suffix(1);
    return std::ranges::any_of(names, [&](const auto& x) { return x.starts_with(cited); });
  }

  std::set<std::string> names;
};

} // namespace

TEST_CASE("hazards: every named test exists", "[documentation]") {
  const known_tests tests;
  CHECK(tests.names.size() > 100);
  CHECK_FALSE(tests.have("hazards: no test has this name"));
  CHECK_FALSE(tests.have("test_no_such"));
  // Names are quoted as in C++ and as in Python.
  const std::regex cited("`([A-Za-z][A-Za-z0-9_, -]*: [^`\\n]+|test_\\w+)`");
  std::size_t pages = 0;
  for (const auto& x : fs::directory_iterator(fs::path(TROUPE_SOURCE_DIR) / "docs")) {
    if (!x.path().filename().string().starts_with("hazards-"))
      continue;
    ++pages;
    std::set<std::string> names;
    collect(text_of(x.path()), cited, names);
    for (const auto& name : names) {
      INFO(x.path().filename() << " names " << name);
      CHECK(tests.have(name));
    }
  }
  CHECK(pages >= 3);
}

} // namespace hazards_documentation_test
