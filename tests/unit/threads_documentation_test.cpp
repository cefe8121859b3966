#include "tests/catch.hpp"
#include "tests/thread_table.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

/// docs/architecture.md has a table of all threads. That a running node has no others is tested in tests/integration.

namespace threads_documentation_test {

using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

/// The folders of the product.
constexpr std::array folders{"actors",   "base",      "cli",     "config",      "connector", "events",
                             "gpu",      "handshake", "http",    "http_client", "io",        "lmcache",
                             "messages", "metrics",   "offline", "store",       "workload"};

/// A thread that is constructed without a name. Threads that are assigned or moved have one already.
const std::regex
    unnamed("std::j?thread\\s*[({](?!named\\(|std::move)|threads?_\\(\\[|(threads|workers|helpers)_?\\.emplace_"
            "back\\(\\s*\\[");

/// The names that a source sets. One that numbers follow ends with a star.
std::set<std::string> names_in(const std::string& text) {
  static const std::regex name("thread_name(?:\\s+\\w+)?[({]\"([^\"]+)\"[)}](\\.with\\()?");
  std::set<std::string> out;
  for (std::sregex_iterator i(text.begin(), text.end(), name), none; i != none; ++i)
    out.insert((*i)[1].str() + ((*i)[2].matched ? "*" : ""));
  return out;
}

/// Whether a name is one of this project's, and not of a library's.
bool is_own(std::string_view name) {
  return name.starts_with("troupe-") || name.starts_with("io-");
}

} // namespace

TEST_CASE("threads: the documentation lists each name that the sources set, and no other", "[documentation]") {
  if (!fs::exists(fs::path(TROUPE_SOURCE_DIR) / "CMakeLists.txt")) {
    WARN("skipped: the sources are not at " << TROUPE_SOURCE_DIR);
    return;
  }
  const auto listed = documented_threads(TROUPE_SOURCE_DIR);
  std::set<std::string> table;
  for (const auto& x : listed)
    if (is_own(x)) {
      INFO("listed twice: " << x);
      CHECK(table.insert(x).second);
    }
  std::set<std::string> set;
  for (const auto* folder : folders)
    for (const auto& x : fs::recursive_directory_iterator(fs::path(TROUPE_SOURCE_DIR) / folder)) {
      if (x.path().extension() != ".cpp" && x.path().extension() != ".hpp")
        continue;
      std::ifstream file(x.path());
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      set.merge(names_in(text));
      INFO("a thread without a name in " << x.path());
      CHECK_FALSE(std::regex_search(text, unnamed));
    }
  CHECK(table == set);
  CHECK(table.size() > 20);
}

TEST_CASE("threads: names in sources, and threads without one, are found", "[documentation]") {
  CHECK(names_in("start_thread(thread_name(\"a\"), \"b\", c); thread_name d{\"e\"}; thread_name(\"f-\").with(x)") ==
        std::set<std::string>{"a", "e", "f-*"});
  CHECK(std::regex_search(std::string("x = std::thread([] {});"), unnamed));
  CHECK(std::regex_search(std::string("x = std::jthread{f};"), unnamed));
  CHECK(std::regex_search(std::string("threads_.emplace_back([this] {"), unnamed));
  CHECK_FALSE(std::regex_search(std::string("x = std::thread(named(thread_name(\"a\"), f));"), unnamed));
  CHECK_FALSE(std::regex_search(std::string("std::thread thread_; result<std::thread> f();"), unnamed));
  const std::vector<std::string> table{"a", "b-*"};
  CHECK(is_documented_thread("a", table));
  CHECK(is_documented_thread("b-7", table));
  CHECK_FALSE(is_documented_thread("a2", table));
  CHECK_FALSE(is_documented_thread("b", table));
}

} // namespace threads_documentation_test
