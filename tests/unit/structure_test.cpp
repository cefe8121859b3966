#include "tests/catch.hpp"
#include "tests/unit/source_tree.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace structure_test {

/// The rules of CONTRIBUTING.md on what may include what, on the sources themselves.

using namespace troupe::test;

namespace {

/// The folders whose files may include CAF's headers directly. Others that may know of actors use these folders.
constexpr std::array caf_folders{
    "messages/",     "actors/",           "connector/live/",       "workload/runner/",   "cli/",  "http/registry/",
    "tests/actors/", "tests/simulation/", "tests/cluster_actors/", "tests/integration/", "bench/"};

/// Libraries of mixed folders whose files must not include CAF through any chain of headers; and all that are named
/// *_states.
constexpr std::array<std::string_view, 6> plain_libraries{"troupe_connecting",  "troupe_etcd",
                                                          "troupe_http_bodies", "troupe_mapped_arena",
                                                          "troupe_node_files",  "troupe_takeover"};

/// Neither of these folders includes a file of the other: the node's wing and the client's. What a node is towards
/// other nodes, and what serves LMCache's clients, are made of the client's, which knows nothing of them, and the
/// node's wing and they do not know each other.
constexpr std::string_view node_wing = "actors/node/";
constexpr std::array wings_of_clients{"actors/cluster/", "actors/lmcache/"};
constexpr std::array client_wing{"actors/client/", "connector/"};

bool in_any(std::string_view path, const auto& folders) {
  return std::ranges::any_of(folders, [&](std::string_view folder) { return path.starts_with(folder); });
}

/// The folders in the table of CONTRIBUTING.md, and whether it says "no": no file there includes CAF, through any chain
/// of headers.
std::map<std::string, bool> folders_of(const std::string& page) {
  static const std::regex folder("`([^`]+/)`");
  std::map<std::string, bool> result;
  bool in_table = false;
  for (const auto& line : lines_of(page)) {
    if (in_table && !line.starts_with('|'))
      break;
    in_table = in_table || line == "| folder | what | may use CAF |";
    const auto names = in_table ? line.substr(0, line.find(" | ")) : std::string{};
    for (std::sregex_iterator at{names.begin(), names.end(), folder}, end; at != end; ++at)
      result.emplace((*at)[1], line.ends_with("| no |"));
  }
  return result;
}

/// Of folders that contain one another, the innermost counts, which is the last in their order.
bool is_plain(std::string_view path, const std::map<std::string, bool>& folders) {
  bool result = false;
  for (const auto& [folder, says_no] : folders)
    if (path.starts_with(folder))
      result = says_no;
  return result;
}

/// The files that make up the libraries of rules, as CMakeLists.txt name them, and of `others`; with their headers.
std::set<std::string> rule_files(const source_tree& tree, std::span<const std::string_view> others = {}) {
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
      if (!library.ends_with("_states") && std::ranges::find(others, library) == others.end())
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

/// Time is an argument of rules, and what they want done is a result: so a simulation can play them.
std::vector<std::string> check_rules(const source_tree& tree) {
  static const std::regex outside(
      "std::j?thread\\b|\\b(?:start_thread|serial_executor|i?o?fstream)\\b|clock::now\\b|(?:^|[^a-z_>])::open\\(|"
      "\\b(?:fs|filesystem)::(?:absolute|canonical|copy|create_|current_path|directory_iterator|exists|file_size|is_|"
      "remove|rename|resize_file|status|weakly_canonical)");
  std::vector<std::string> complaints;
  for (const auto& path : rule_files(tree))
    for (const auto& line : lines_of(tree.at(path)))
      if (is_product(path) && std::regex_search(line.substr(0, line.find("//")), outside))
        complaints.push_back(concat({path, ": rules that have a thread, a clock or files: ", line}));
  return complaints;
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

std::vector<std::string> check_caf(const source_tree& tree, const std::map<std::string, bool>& folders) {
  std::vector<std::string> complaints;
  const auto rules = rule_files(tree, plain_libraries);
  for (const auto& [path, text] : tree) {
    if (!is_cpp(path))
      continue;
    if (is_plain(path, folders) || rules.contains(path)) {
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

/// From folder to folder, each with an example.
using arrows = std::map<std::string, std::map<std::string, std::string>>;

/// What is built of what: `base`, `actors/node`.
std::string top_folder(std::string_view path) {
  const auto first = path.find('/');
  return std::string{path.substr(0, path.starts_with("actors/") ? path.find('/', first + 1) : first)};
}

/// A folder of a top folder, or that folder itself: `io/slab`, `io`.
std::string sub_folder(std::string_view path) {
  const auto top = top_folder(path);
  const auto next = path.find('/', top.size() + 1);
  return next == std::string_view::npos ? top : std::string{path.substr(0, next)};
}

void find_cycles(const arrows& all, std::vector<std::string>& way, std::set<std::string>& done,
                 std::vector<std::string>& complaints) {
  const auto from = all.find(way.back());
  for (const auto& [to, example] : from == all.end() ? arrows::mapped_type{} : from->second) {
    if (auto at = std::ranges::find(way, to); at != way.end()) {
      std::string complaint = "folders include one another: ";
      for (; at != way.end(); ++at)
        complaint += concat({*at, " → "});
      complaints.push_back(concat({complaint, to, ", as ", example}));
    } else if (!done.contains(to)) {
      way.push_back(to);
      find_cycles(all, way, done, complaints);
      way.pop_back();
    }
  }
  done.insert(way.back());
}

/// Neither top folders nor the folders within one include one another in a circle.
std::vector<std::string> check_cycles(const source_tree& tree) {
  arrows all;
  for (const auto& [path, text] : tree)
    if (is_product(path) && path.find('/') != std::string::npos)
      for (const auto& name : includes_of(text)) {
        const auto file = name.substr(1, name.size() - 2);
        if (!tree.contains(file) || file.find('/') == std::string::npos)
          continue;
        const auto example = concat({path, " includes ", file});
        if (top_folder(path) != top_folder(file))
          all[top_folder(path) + "/"].emplace(top_folder(file) + "/", example);
        else if (sub_folder(path) != sub_folder(file))
          all[sub_folder(path)].emplace(sub_folder(file), example);
      }
  std::vector<std::string> complaints;
  std::set<std::string> done;
  for (const auto& [folder, to] : all)
    if (std::vector way{folder}; !done.contains(folder))
      find_cycles(all, way, done, complaints);
  return complaints;
}

} // namespace

TEST_CASE("structure: rules have no threads, clocks and files", "[style]") {
  if (!have_sources())
    return;
  expect_none(check_rules(sources()));
  const auto of = [](const std::string& line) {
    return check_rules({{"a/CMakeLists.txt", "troupe_add_library(troupe_a_states SOURCES b.cpp LINK c)\n"},
                        {"a/b.cpp", line + "\n"},
                        {"a/c.cpp", "std::thread x;\n"}})
        .size();
  };
  CHECK(of("const auto now = at; // std::chrono::steady_clock::now()") == 0);
  CHECK(of("std::filesystem::path x; bool is_open(); thread_name y; std::mutex z;") == 0);
  for (const auto* line : {"std::thread x;", "std::jthread x;", "auto x = start_thread(y);", "#include <fstream>",
                           "std::unique_ptr<serial_executor> x_;", "std::ofstream x(y);", "auto x = clock::now();",
                           "auto x = std::chrono::system_clock::now();", "const auto x = ::open(path, O_RDONLY);",
                           "if (std::filesystem::exists(x))", "fs::create_directories(x);"}) {
    CAPTURE(line);
    CHECK(of(line) == 1);
  }
}

TEST_CASE("structure: threads are sized for the processors of the process, not of the host", "[style]") {
  if (!have_sources())
    return;
  std::vector<std::string> found;
  for (const auto& [name, text] : sources())
    if (!name.starts_with("tests/") && text.find("hardware_concurrency") != std::string::npos)
      found.push_back(name);
  // Those that name both numbers; processors.hpp has the reason.
  CHECK(found == std::vector<std::string>{"base/processors.cpp", "base/processors.hpp", "cli/serve.cpp"});
}

TEST_CASE("structure: folders do not include one another in a circle", "[style]") {
  if (!have_sources())
    return;
  CHECK(sources().contains("io/engine/engine.cpp"));
  expect_none(check_cycles(sources()));
  CHECK(top_folder("io/slab/x/y.hpp") == "io");
  CHECK(top_folder("actors/node/x.hpp") == "actors/node");
  CHECK(sub_folder("io/slab/x/y.hpp") == "io/slab");
  CHECK(sub_folder("io/y.hpp") == "io");
  CHECK(sub_folder("actors/node/x/y.hpp") == "actors/node/x");
  CHECK(sub_folder("actors/node/y.hpp") == "actors/node");
  const source_tree good{{"a/x.cpp", "#include \"a/b/x.hpp\"\n#include \"c/x.hpp\"\n"},
                         {"a/b/x.hpp", "#include \"a/b/y.hpp\"\n"},
                         {"a/b/y.hpp", "#include \"a/b/x.hpp\"\n#include \"a/d/x.hpp\"\n"},
                         {"a/d/x.hpp", "#include <vector>\n"},
                         {"c/x.hpp", ""}};
  CHECK(check_cycles(good).empty());
  const auto with = [&](const std::string& path, const std::string& text) {
    auto tree = good;
    tree[path] = text;
    return check_cycles(tree);
  };
  CHECK(with("c/x.hpp", "#include \"a/d/x.hpp\"\n").size() == 1);
  CHECK(with("a/d/x.hpp", "#include \"a/b/x.hpp\"\n") ==
        std::vector<std::string>{"folders include one another: a/b → a/d → a/b, as a/d/x.hpp includes a/b/x.hpp"});
  // The root of a folder is one of its folders: it is above those that it includes.
  CHECK(with("a/d/x.hpp", "#include \"a/x.cpp\"\n").size() == 1);
  CHECK(with("tests/x.hpp", "#include \"a/x.cpp\"\n").empty());
}

TEST_CASE("structure: rules, and the folders that CONTRIBUTING.md names, do not depend on actors", "[style]") {
  if (!have_sources())
    return;
  const auto folders = folders_of(page_of_sources("CONTRIBUTING.md"));
  CHECK(is_plain("io/page.hpp", folders));
  CHECK(!is_plain("connector/live/runtime.hpp", folders));
  CHECK(rule_files(sources()).size() > 1);
  expect_none(check_caf(sources(), folders));
}

TEST_CASE("structure: the node part and the client part do not depend on each other", "[style]") {
  if (!have_sources())
    return;
  CHECK(sources().contains("actors/node/CMakeLists.txt"));
  CHECK(sources().contains("actors/client/CMakeLists.txt"));
  expect_none(check_wings(sources()));
}

TEST_CASE("structure: protocols do not depend on the code that combines them", "[style]") {
  if (!have_sources())
    return;
  CHECK(sources().contains("http/node_http.hpp"));
  expect_none(check_rooms(sources()));
}
TEST_CASE("structure: an include of a file above is found", "[style]") {
  CHECK(check_rooms({{"http/a/b.cpp", "#include \"http/server/c.hpp\"\n"}, {"http/d.cpp", "#include \"http/e.hpp\"\n"}})
            .empty());
  CHECK(check_rooms({{"http/a/b.cpp", "#include \"http/e.hpp\"\n"}}).size() == 1);
}

TEST_CASE("structure: forbidden includes of CAF are found, even through other headers", "[style]") {
  const source_tree good{
      {"messages/m.hpp", "#include <caf/all.hpp>\n"},
      {"actors/a/CMakeLists.txt", "troupe_add_library(troupe_a_states\n  SOURCES rules.cpp\n  LINK b.cpp)\n"
                                  "troupe_add_library(troupe_a SOURCES a.cpp)\n"},
      {"actors/a/a.cpp", "#include <caf/all.hpp>\n"},
      {"actors/a/rules.cpp", "#include \"actors/a/rules.hpp\"\n"},
      {"actors/a/rules.hpp", "#include <vector>\n"},
      {"tests/unit/a_test.cpp", "#include \"actors/a/rules.hpp\"\n"},
  };
  const auto folders = folders_of("| `a/` | before | no |\n\n"
                                  "| folder | what | may use CAF |\n| --- | --- | --- |\n| `io/` | `b/` | no |\n"
                                  "| `http/` | | yes |\n| `http/server/`, `c/` | | no |\n| `cli/` | | only `d/` |\n\n"
                                  "| `e/` | after | no |\n");
  CHECK(folders == std::map<std::string, bool>{
                       {"c/", true}, {"cli/", false}, {"http/", false}, {"http/server/", true}, {"io/", true}});
  CHECK(check_caf(good, folders).empty());
  const auto with = [&](const std::string& path, const std::string& text) {
    auto tree = good;
    tree[path] = text;
    return check_caf(tree, folders);
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

TEST_CASE("structure: an include of the other part is found", "[style]") {
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

} // namespace structure_test
