#include "tests/catch.hpp"
#include "tests/unit/code_sizes.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace style_test {

/// The rules of CONTRIBUTING.md that a program can check, on the sources themselves.

namespace {

namespace fs = std::filesystem;

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
    {"actors/node/io_worker/io_worker_state.hpp: io_worker_state", 29},
    {"actors/node/registry/key_space.hpp: key_space", 26},
    {"actors/node/registry/registry.cpp: registry::make_behavior", 135},
};

/// The folders that may include CAF; all others must not depend on actors. Files with rules in these folders are
/// identified by their library.
constexpr std::array caf_folders{
    "messages/",      "actors/",       "connector/",        "workload/runner/",   "cli/",
    "http/registry/", "tests/actors/", "tests/simulation/", "tests/integration/", "bench/"};

/// The libraries whose files must not include CAF through any chain of headers.
constexpr std::array plain_folders{"base/",
                                   "metrics/",
                                   "io/",
                                   "gpu/",
                                   "codec/",
                                   "config/",
                                   "http/server/",
                                   "workload/engine_model/",
                                   "workload/replay/",
                                   "workload/kv_values/",
                                   "store/",
                                   "handshake/",
                                   "http_client/",
                                   "lmcache/",
                                   "events/",
                                   "offline/",
                                   "cli/screens/"};

/// Libraries in mixed folders whose files must not include it either; and all that are named *_states.
constexpr std::array plain_libraries{"troupe_connecting",   "troupe_connector",  "troupe_etcd",    "troupe_http_bodies",
                                     "troupe_mapped_arena", "troupe_node_files", "troupe_takeover"};

/// Neither of these folders includes a file of the other: the node's wing and the client's. What a node is towards
/// other nodes, and what serves LMCache's clients, are made of the client's, which knows nothing of them, and the
/// node's wing and they do not know each other.
constexpr std::string_view node_wing = "actors/node/";
constexpr std::array wings_of_clients{"actors/cluster/", "actors/lmcache/"};
constexpr std::array client_wing{"actors/client/", "connector/"};

/// Put together here, so that this file does not contain them.
const std::array unfinished{std::string{"TO"}.append("DO"), std::string{"FIX"}.append("ME")};

/// A cast to void silences no warning of an unused result. base/event_signal.hpp is the way for eventfds.
const std::regex dropped_transfer("static_cast<void>\\(::(read|write|pread|pwrite|ftruncate)\\(");

/// Path from the root of the sources → text.
using source_tree = std::map<std::string, std::string>;

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

/// Code points, which is what an editor shows as columns here.
std::size_t columns(std::string_view line) {
  return static_cast<std::size_t>(
      std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

bool is_cpp(std::string_view path) {
  return path.ends_with(".hpp") || path.ends_with(".cpp");
}

bool in_any(std::string_view path, const auto& folders) {
  return std::ranges::any_of(folders, [&](std::string_view folder) { return path.starts_with(folder); });
}

/// The name in `#include "name"` or `#include <name>`, with its delimiters; empty for other lines.
std::string_view included(std::string_view line) {
  constexpr std::string_view directive = "#include ";
  return line.starts_with(directive) ? line.substr(directive.size()) : std::string_view{};
}

bool is_product(std::string_view path) {
  return is_cpp(path) && !path.starts_with("tests/") && !path.starts_with("bench/");
}

/// Functions and classes above their limits, by file and name, with their sizes.
std::map<std::string, std::size_t> too_large(const source_tree& tree) {
  std::map<std::string, std::size_t> out;
  for (const auto& [path, text] : tree) {
    if (!is_product(path))
      continue;
    const auto sizes = troupe::test::sizes_of(text);
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

std::vector<std::string> includes_of(const std::string& text) {
  std::vector<std::string> result;
  for (const auto& line : lines_of(text))
    if (const auto name = included(line); name.size() > 2)
      result.emplace_back(name);
  return result;
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

/// A source file includes its own header first, which proves that the header stands alone.
/// CMake takes a name with a semicolon for two, neither of which is a test: both would pass.
std::vector<std::string> check_test_names(const std::string& path, const std::string& text) {
  static const std::regex with_semicolon("TEST_CASE[A-Z_]*\\(\\s*(?:[\\w:]+,\\s*)?\"[^\"]*;");
  if (!std::regex_search(text, with_semicolon))
    return {};
  return {path + ": a semicolon in the name of a test case, which ctest would not run"};
}

std::vector<std::string> check_own_header(const std::string& path, const source_tree& tree) {
  auto header = path.substr(0, path.size() - 4) + ".hpp";
  if (!tree.contains(header))
    return {};
  const auto includes = includes_of(tree.at(path));
  if (!includes.empty() && includes.front() == '"' + header + '"')
    return {};
  return {path + ": the first include is not \"" + header + "\""};
}

/// The files that make up the libraries of rules, as CMakeLists.txt name them, and their headers.
std::set<std::string> rule_files(const source_tree& tree) {
  constexpr std::string_view command = "troupe_add_library(";
  std::set<std::string> result;
  for (const auto& [path, text] : tree) {
    if (!path.ends_with("CMakeLists.txt"))
      continue;
    const auto folder = path.substr(0, path.size() - std::string_view{"CMakeLists.txt"}.size());
    for (auto at = text.find(command); at != std::string::npos; at = text.find(command, at + 1)) {
      const auto begin = at + command.size();
      std::istringstream words{text.substr(begin, text.find(')', begin) - begin)};
      std::string library;
      words >> library;
      if (!library.ends_with("_states") && std::ranges::find(plain_libraries, library) == plain_libraries.end())
        continue;
      for (std::string name; words >> name && name != "LINK";)
        if (name.ends_with(".cpp"))
          for (const auto& file : {folder + name, folder + name.substr(0, name.size() - 4) + ".hpp"})
            if (tree.contains(file))
              result.insert(file);
    }
  }
  for (const auto& [path, text] : tree)
    if (path.ends_with("_state.hpp") || path.ends_with("_state.cpp"))
      result.insert(path);
  return result;
}

/// The chain of includes from `path` to CAF, or nothing.
std::string way_to_caf(const std::string& path, const source_tree& tree, std::set<std::string>& seen) {
  if (!seen.insert(path).second || !tree.contains(path))
    return {};
  for (const auto& name : includes_of(tree.at(path))) {
    if (name.starts_with("<caf/"))
      return concat({path, " → ", name});
    if (auto way = way_to_caf(name.substr(1, name.size() - 2), tree, seen); !way.empty())
      return concat({path, " → ", way});
  }
  return {};
}

std::vector<std::string> check_caf(const source_tree& tree) {
  std::vector<std::string> complaints;
  const auto rules = rule_files(tree);
  for (const auto& [path, text] : tree) {
    if (!is_cpp(path))
      continue;
    if (in_any(path, plain_folders) || rules.contains(path)) {
      std::set<std::string> seen;
      if (auto way = way_to_caf(path, tree, seen); !way.empty())
        complaints.push_back("must not know of actors: " + way);
    } else if (!in_any(path, caf_folders)) {
      for (const auto& name : includes_of(text))
        if (name.starts_with("<caf/"))
          complaints.push_back(concat({path, ": includes ", name}));
    }
  }
  return complaints;
}

std::vector<std::string> check_wings(const source_tree& tree) {
  std::vector<std::string> complaints;
  for (const auto& [path, text] : tree)
    for (const auto& name : includes_of(text)) {
      const auto file = std::string_view{name}.substr(1);
      if ((path.starts_with(node_wing) && in_any(file, client_wing)) ||
          (in_any(path, client_wing) && file.starts_with(node_wing)) ||
          (in_any(path, wings_of_clients) && file.starts_with(node_wing)) ||
          ((path.starts_with(node_wing) || in_any(path, client_wing)) && in_any(file, wings_of_clients)))
        complaints.push_back(concat({path, ": includes ", name, " of the other wing"}));
    }
  return complaints;
}

/// A protocol, and the code that protocols share, does not include the code that combines them, which is in http/.
std::vector<std::string> check_rooms(const source_tree& tree) {
  std::vector<std::string> complaints;
  const auto is_below_http = [](std::string_view file) {
    return file.starts_with("http/") && file.find('/', 5) != std::string_view::npos;
  };
  for (const auto& [path, text] : tree)
    for (const auto& name : includes_of(text)) {
      const auto file = std::string_view{name}.substr(1);
      if (is_below_http(path) && file.starts_with("http/") && !is_below_http(file))
        complaints.push_back(concat({path, ": includes ", name, ", which is above it"}));
    }
  return complaints;
}

bool is_checked(const fs::path& file, const std::string& text) {
  return file.extension() == ".hpp" || file.extension() == ".cpp" || file.extension() == ".cmake" ||
         file.extension() == ".sh" || file.filename() == "CMakeLists.txt" || text.starts_with("#!");
}

/// Build and hidden directories are not part of the source tree.
bool is_foreign(const fs::path& directory) {
  const auto name = directory.filename().string();
  return name.starts_with('.') || name == "build" || fs::exists(directory / "CMakeCache.txt");
}

const source_tree& sources() {
  static const source_tree tree = [] {
    const fs::path root{TROUPE_SOURCE_DIR};
    source_tree result;
    std::error_code failure;
    for (fs::recursive_directory_iterator at{root, failure}, end; !failure && at != end; at.increment(failure)) {
      if (at->is_directory(failure) && is_foreign(at->path())) {
        at.disable_recursion_pending();
      } else if (at->is_regular_file(failure) && at->file_size(failure) < 1'000'000) {
        std::ifstream stream{at->path(), std::ios::binary};
        std::string text{std::istreambuf_iterator<char>{stream}, {}};
        if (is_checked(at->path(), text))
          result.emplace(at->path().lexically_relative(root).generic_string(), std::move(text));
      }
    }
    return result;
  }();
  return tree;
}

/// False, with a warning, where the tests run without the sources.
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

} // namespace

TEST_CASE("Every file keeps to the layout", "[style]") {
  if (!have_sources())
    return;
  for (const auto& [path, text] : sources())
    expect_none(check_layout(path, text));
  SUCCEED();
}

TEST_CASE("No function or class is too large, but for those listed", "[style]") {
  if (!have_sources())
    return;
  expect_none(check_sizes(too_large(sources()), larger_ones));
  // The list only shrinks.
  CHECK(check_sizes({{"a", 80}}, {{"a", 80}}).empty());
  CHECK(check_sizes({{"a", 81}}, {{"a", 80}}).size() == 1);
  CHECK(check_sizes({{"a", 79}}, {{"a", 80}}).size() == 1);
  CHECK(check_sizes({}, {{"a", 80}}).size() == 1);
}

TEST_CASE("Every test case has a name that ctest can run", "[style]") {
  if (!have_sources())
    return;
  for (const auto& [path, text] : sources())
    if (path.starts_with("tests/") && path.ends_with(".cpp"))
      expect_none(check_test_names(path, text));
  SUCCEED();
}

TEST_CASE("Every header can be included anywhere, once", "[style]") {
  if (!have_sources())
    return;
  for (const auto& [path, text] : sources())
    if (path.ends_with(".hpp"))
      expect_none(check_header(path, text));
  SUCCEED();
}

TEST_CASE("Every source file includes its own header first", "[style]") {
  if (!have_sources())
    return;
  for (const auto& [path, text] : sources())
    if (path.ends_with(".cpp"))
      expect_none(check_own_header(path, sources()));
  SUCCEED();
}

TEST_CASE("Every source file uses the names in its using-declarations", "[style]") {
  if (!have_sources())
    return;
  for (const auto& [path, text] : sources())
    if (path.ends_with(".cpp"))
      expect_none(check_using_declarations(path, text));
  SUCCEED();
}

TEST_CASE("Rules, io and config do not depend on actors", "[style]") {
  if (!have_sources())
    return;
  CHECK(rule_files(sources()).size() > 1);
  expect_none(check_caf(sources()));
}

TEST_CASE("The node part and the client part do not depend on each other", "[style]") {
  if (!have_sources())
    return;
  CHECK(sources().contains("actors/node/CMakeLists.txt"));
  CHECK(sources().contains("actors/client/CMakeLists.txt"));
  expect_none(check_wings(sources()));
}

TEST_CASE("Protocols do not depend on the code that combines them", "[style]") {
  if (!have_sources())
    return;
  CHECK(sources().contains("http/node_http.hpp"));
  expect_none(check_rooms(sources()));
}

TEST_CASE("The style checks find violations", "[style]") {
  CHECK(check_rooms({{"http/a/b.cpp", "#include \"http/server/c.hpp\"\n"}, {"http/d.cpp", "#include \"http/e.hpp\"\n"}})
            .empty());
  CHECK(check_rooms({{"http/a/b.cpp", "#include \"http/e.hpp\"\n"}}).size() == 1);
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
  CHECK(check_test_names("a.cpp", test + "(\"a, b\", \"[c]\") {\n  int d;\n}\n").empty());
  CHECK(check_test_names("a.cpp", test + "(\"a; b\") {}\n").size() == 1);
  CHECK(check_test_names("a.cpp", test + "_METHOD(world, \"a; b\") {}\n").size() == 1);
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

TEST_CASE("Forbidden includes of CAF are found, even through other headers", "[style]") {
  const source_tree good{
      {"messages/m.hpp", "#include <caf/all.hpp>\n"},
      {"actors/a/CMakeLists.txt", "troupe_add_library(troupe_a_states\n  SOURCES rules.cpp\n  LINK b.cpp)\n"
                                  "troupe_add_library(troupe_a SOURCES a.cpp)\n"},
      {"actors/a/a.cpp", "#include <caf/all.hpp>\n"},
      {"actors/a/rules.cpp", "#include \"actors/a/rules.hpp\"\n"},
      {"actors/a/rules.hpp", "#include <vector>\n"},
      {"tests/unit/a_test.cpp", "#include \"actors/a/rules.hpp\"\n"},
  };
  CHECK(check_caf(good).empty());
  const auto with = [&](const std::string& path, const std::string& text) {
    auto tree = good;
    tree[path] = text;
    return check_caf(tree);
  };
  CHECK(with("actors/a/rules.cpp", "#include \"messages/m.hpp\"\n") ==
        std::vector<std::string>{"must not know of actors: actors/a/rules.cpp → messages/m.hpp → <caf/all.hpp>"});
  CHECK(with("actors/a/rules.hpp", "#include <caf/fwd.hpp>\n").size() == 2);
  CHECK(with("actors/a/b_state.hpp", "#include \"messages/m.hpp\"\n").size() == 1);
  CHECK(with("io/x.cpp", "#include \"messages/m.hpp\"\n").size() == 1);
  CHECK(with("http/server/x.cpp", "#include \"messages/m.hpp\"\n").size() == 1);
  CHECK(with("http/hf3fs/x.cpp", "#include \"messages/m.hpp\"\n").empty());
  CHECK(with("http/hf3fs/x.cpp", "#include <caf/all.hpp>\n").size() == 1);
  CHECK(with("tests/unit/a_test.cpp", "#include <caf/all.hpp>\n").size() == 1);
  CHECK(with("cli/x.cpp", "#include <caf/all.hpp>\n").empty());
}

TEST_CASE("An include of the other part is found", "[style]") {
  CHECK(check_wings({{"actors/node/a.hpp", "#include \"actors/support/b.hpp\"\n"},
                     {"connector/a.cpp", "#include \"actors/client/b.hpp\"\n"},
                     {"cli/a.cpp", "#include \"actors/client/b.hpp\"\n#include \"actors/node/b.hpp\"\n"}})
            .empty());
  CHECK(check_wings({{"actors/node/a.hpp", "#include \"actors/client/b.hpp\"\n"}}).size() == 1);
  CHECK(check_wings({{"actors/node/a.hpp", "#include \"connector/b.hpp\"\n"}}).size() == 1);
  CHECK(check_wings({{"connector/a.cpp", "#include \"actors/node/b.hpp\"\n"}}).size() == 1);
  CHECK(check_wings({{"actors/cluster/a.cpp", "#include \"actors/client/b.hpp\"\n"}}).empty());
  CHECK(check_wings({{"actors/cluster/a.cpp", "#include \"actors/node/b.hpp\"\n"}}).size() == 1);
  CHECK(check_wings({{"actors/lmcache/a.cpp", "#include \"actors/client/b.hpp\"\n"}}).empty());
  CHECK(check_wings({{"actors/lmcache/a.cpp", "#include \"actors/node/b.hpp\"\n"}}).size() == 1);
  CHECK(check_wings({{"actors/node/a.cpp", "#include \"actors/lmcache/b.hpp\"\n"}}).size() == 1);
  CHECK(check_wings({{"actors/node/a.cpp", "#include \"actors/cluster/b.hpp\"\n"}}).size() == 1);
  CHECK(check_wings({{"actors/client/a.cpp", "#include \"actors/cluster/b.hpp\"\n"}}).size() == 1);
}

} // namespace style_test
