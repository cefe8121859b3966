#include "tests/catch.hpp"
#include "tests/unit/code_sizes.hpp"
#include "tests/unit/source_tree.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace style_test {

/// The rules of CONTRIBUTING.md on the text of files that a program can check, on the sources themselves.

using namespace troupe::test;

namespace {

constexpr std::size_t max_columns = 120;
constexpr std::size_t max_lines = 600;
constexpr std::size_t max_function_lines = 70;
constexpr std::size_t max_members = 25;

/// Functions and classes that are larger, with their size. Numbers only become smaller, and entries fewer: the lists of
/// messages are as long as there are messages, and the classes are to be divided.
const std::map<std::string, std::size_t> larger_ones{
    {"actors/client/link/link_state.hpp: link_state", 26},
    {"actors/lmcache/lmcache_server.hpp: lmcache_server", 26},
    {"actors/node/io_worker/io_worker.cpp: io_worker::make_behavior", 109},
    {"actors/node/io_worker/io_worker_state.hpp: io_worker_state", 28},
    {"actors/node/registry/key_space.hpp: key_space", 26},
    {"actors/node/registry/registry.cpp: registry::make_behavior", 135},
};

/// Put together here, so that this file does not contain them.
const std::array unfinished{std::string{"TO"}.append("DO"), std::string{"FIX"}.append("ME")};

/// A cast to void silences no warning of an unused result. base/event_signal.hpp is the way for eventfds.
const std::regex dropped_transfer("static_cast<void>\\(::(read|write|pread|pwrite|ftruncate)\\(");

/// Code points, which is what an editor shows as columns here.
std::size_t columns(std::string_view line) {
  return static_cast<std::size_t>(
      std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

/// Functions and classes above their limits, by file and name, with their sizes.
std::map<std::string, std::size_t> too_large(const source_tree& tree) {
  std::map<std::string, std::size_t> out;
  for (const auto& [path, text] : tree) {
    if (!is_product(path))
      continue;
    const auto sizes = sizes_of(text);
    for (const auto& x : sizes.functions)
      if (x.size > max_function_lines)
        out[concat({path, ": ", x.name})] = x.size;
    for (const auto& x : sizes.classes)
      if (x.size > max_members)
        out[concat({path, ": ", x.name})] = x.size;
  }
  return out;
}

std::vector<std::string> check_sizes(const std::map<std::string, std::size_t>& found,
                                     const std::map<std::string, std::size_t>& allowed) {
  std::vector<std::string> out;
  for (const auto& [name, size] : found)
    if (const auto known = allowed.find(name); known == allowed.end() || size > known->second)
      out.push_back(
          concat({name, ": ", std::to_string(size), ", while ", std::to_string(max_function_lines),
                  " lines of a function and ", std::to_string(max_members), " members of a class are the limit"}));
  for (const auto& [name, size] : allowed)
    if (const auto known = found.find(name); known == found.end() || known->second < size)
      out.push_back(concat({name, ": is smaller now: lower its number in larger_ones, or remove it"}));
  return out;
}

std::vector<std::string> check_layout(const std::string& path, const std::string& text) {
  std::vector<std::string> complaints;
  const auto lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto complain = [&](const std::string& what) {
      complaints.push_back(concat({path, ":", std::to_string(i + 1), ": ", what}));
    };
    const auto& line = lines[i];
    if (columns(line) > max_columns)
      complain("more than " + std::to_string(max_columns) + " columns");
    if (line.find('\t') != std::string::npos)
      complain("a tab");
    if (line.ends_with(' ') || line.ends_with('\r'))
      complain("blanks at the end");
    for (const auto& mark : unfinished)
      if (line.find(mark) != std::string::npos)
        complain("unfinished: " + mark);
    if (is_cpp(path) && std::regex_search(line, dropped_transfer))
      complain("drops how much was moved, of which compilers warn where _FORTIFY_SOURCE is on: Ubuntu's by default");
  }
  if (lines.size() > max_lines && is_cpp(path))
    complaints.push_back(path + ": more than " + std::to_string(max_lines) + " lines");
  if (!text.empty() && !text.ends_with('\n'))
    complaints.push_back(path + ": no line feed at the end");
  return complaints;
}

std::vector<std::string> check_header(const std::string& path, const std::string& text) {
  std::vector<std::string> complaints;
  if (!text.starts_with("#pragma once\n"))
    complaints.push_back(path + ": does not start with #pragma once");
  for (const auto& line : lines_of(text))
    if (const auto first = line.find_first_not_of(' ');
        first != std::string::npos && std::string_view{line}.substr(first).starts_with("using namespace "))
      complaints.push_back(concat({path, ": a header that opens a namespace for all who include it: ", line}));
  return complaints;
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Places of `word` in `text`, as a whole word.
std::size_t count_word(std::string_view text, std::string_view word) {
  std::size_t result = 0;
  for (auto at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size())) {
    const auto end = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end])))
      ++result;
  }
  return result;
}

/// `using a::b;` where the file has no other `b`.
std::vector<std::string> check_using_declarations(const std::string& path, const std::string& text) {
  constexpr std::string_view directive = "using ";
  std::vector<std::string> complaints;
  for (const auto& line : lines_of(text)) {
    const auto first = line.find_first_not_of(' ');
    const auto name_at = line.rfind("::");
    if (first == std::string::npos || !std::string_view{line}.substr(first).starts_with(directive) ||
        line.find("using namespace ") != std::string::npos || name_at == std::string::npos || !line.ends_with(';') ||
        line.find('=') != std::string::npos)
      continue;
    const auto name = std::string_view{line}.substr(name_at + 2, line.size() - name_at - 3);
    if (std::ranges::all_of(name, is_word) && count_word(text, name) == count_word(line, name))
      complaints.push_back(concat({path, ": names nothing that it uses: ", line}));
  }
  return complaints;
}

/// The names of the test cases of a source.
std::vector<std::string> test_names(const std::string& text) {
  static const std::regex parts("\"\\s*\\n\\s*\"");
  static const std::regex cases("TEST_CASE(?:_METHOD)?\\(\\s*(?:[\\w:]+,\\s*)?\"([^\"]*)\"");
  const auto joined = std::regex_replace(text, parts, "");
  std::vector<std::string> out;
  for (std::sregex_iterator at{joined.begin(), joined.end(), cases}, end; at != end; ++at)
    out.push_back((*at)[1]);
  return out;
}

/// A name is a subject and a sentence, so that a list of names reads as one style. CMake takes a name with a semicolon
/// for two, neither of which is a test: both would pass.
std::vector<std::string> check_test_names(const std::string& path, const std::string& text) {
  static const std::regex subject_and_sentence("[A-Za-z0-9][A-Za-z0-9 ,-]*: [^ ;][^;]*");
  std::vector<std::string> complaints;
  for (const auto& name : test_names(text))
    if (!std::regex_match(name, subject_and_sentence))
      complaints.push_back(
          concat({path, ": the name of a test case is \"subject: sentence\", without a semicolon: ", name}));
  return complaints;
}

/// A source file includes its own header first, which proves that the header stands alone.
std::vector<std::string> check_own_header(const std::string& path, const source_tree& tree) {
  auto header = path.substr(0, path.size() - 4) + ".hpp";
  if (!tree.contains(header))
    return {};
  const auto includes = includes_of(tree.at(path));
  if (!includes.empty() && includes.front() == '"' + header + '"')
    return {};
  return {path + ": the first include is not \"" + header + "\""};
}

} // namespace

TEST_CASE("style: every file keeps to the layout", "[style]") {
  if (!have_sources())
    return;
  for (const auto& [path, text] : sources())
    expect_none(check_layout(path, text));
  SUCCEED();
}

TEST_CASE("style: no function or class is too large, but for those listed", "[style]") {
  if (!have_sources())
    return;
  expect_none(check_sizes(too_large(sources()), larger_ones));
  // The list only shrinks.
  CHECK(check_sizes({{"a", 80}}, {{"a", 80}}).empty());
  CHECK(check_sizes({{"a", 81}}, {{"a", 80}}).size() == 1);
  CHECK(check_sizes({{"a", 79}}, {{"a", 80}}).size() == 1);
  CHECK(check_sizes({}, {{"a", 80}}).size() == 1);
}

TEST_CASE("style: every test case has a name that ctest can run", "[style]") {
  if (!have_sources())
    return;
  for (const auto& [path, text] : sources())
    if (path.starts_with("tests/") && path.ends_with(".cpp"))
      expect_none(check_test_names(path, text));
  SUCCEED();
}

TEST_CASE("style: every header can be included anywhere, once", "[style]") {
  if (!have_sources())
    return;
  for (const auto& [path, text] : sources())
    if (path.ends_with(".hpp"))
      expect_none(check_header(path, text));
  SUCCEED();
}

TEST_CASE("style: every source file includes its own header first", "[style]") {
  if (!have_sources())
    return;
  for (const auto& [path, text] : sources())
    if (path.ends_with(".cpp"))
      expect_none(check_own_header(path, sources()));
  SUCCEED();
}

TEST_CASE("style: every source file uses the names in its using-declarations", "[style]") {
  if (!have_sources())
    return;
  for (const auto& [path, text] : sources())
    if (path.ends_with(".cpp"))
      expect_none(check_using_declarations(path, text));
  SUCCEED();
}

TEST_CASE("style: the style checks find violations", "[style]") {
  CHECK(check_layout("a.cpp", "int x;\n").empty());
  CHECK(check_layout("a.cpp", std::string(120, 'x') + "\n").empty());
  CHECK(check_layout("a.cpp", std::string(121, 'x') + "\n") ==
        std::vector<std::string>{"a.cpp:1: more than 120 columns"});
  std::string arrows = "// ";
  for (int i = 0; i < 117; ++i)
    arrows += "→";
  CHECK(check_layout("a.cpp", arrows + "\n").empty());
  CHECK(check_layout("a.sh", "a\n\tb\n") == std::vector<std::string>{"a.sh:2: a tab"});
  CHECK(check_layout("a.sh", "a \nb\r\n").size() == 2);
  CHECK(check_layout("a.sh", "a") == std::vector<std::string>{"a.sh: no line feed at the end"});
  CHECK(check_layout("a.cpp", "// " + unfinished[0] + " later\n").size() == 1);
  CHECK(check_layout("a.cpp", concat({"static_cast<void>", "(::write(1, 2, 3));\n"})).size() == 1);
  CHECK(check_layout("a.cpp", concat({"static_cast<void>", "(::poll(1, 2, 3));\n"})).empty());
  std::string text;
  for (std::size_t i = 0; i < max_lines; ++i)
    text += "x\n";
  CHECK(check_layout("a.cpp", text).empty());
  CHECK(check_layout("a.cpp", text + "x\n").size() == 1);
  const std::string test = "TEST_CASE";
  CHECK(check_test_names("a.cpp", test + "(\"a: b, c\", \"[d]\") {\n  int d;\n}\n").empty());
  CHECK(check_test_names("a.cpp", test + "(\"C-20 a, b: c\"\n  \"d\") {}\n").empty());
  CHECK(check_test_names("a.cpp", test + "(\"A sentence alone\") {}\n").size() == 1);
  CHECK(check_test_names("a.cpp", test + "(\"a: b; c\") {}\n").size() == 1);
  CHECK(check_test_names("a.cpp", test + "_METHOD(world, \"a: b; c\") {}\n").size() == 1);
  CHECK(check_header("a.hpp", "#pragma once\n\nint x;\n").empty());
  CHECK(check_header("a.hpp", "\n#pragma once\n").size() == 1);
  CHECK(check_header("a.hpp", "#pragma once\n  using namespace caf;\n").size() == 1);
  CHECK(check_using_declarations("a.cpp", "using a::b;\nusing namespace c::d;\nb x;\nd y;\n").empty());
  CHECK(check_using_declarations("a.cpp", "  using a::b;\nint bb = a_b;\n").size() == 1);
  CHECK(check_using_declarations("a.cpp", "using b = c::d;\n").empty());
  CHECK(check_own_header("a/b.cpp", {{"a/b.cpp", "#include \"a/b.hpp\"\n"}, {"a/b.hpp", ""}}).empty());
  CHECK(check_own_header("a/b.cpp", {{"a/b.cpp", "#include <map>\n"}}).empty());
  CHECK(check_own_header("a/b.cpp", {{"a/b.cpp", "#include <map>\n#include \"a/b.hpp\"\n"}, {"a/b.hpp", ""}}).size() ==
        1);
}

} // namespace style_test
