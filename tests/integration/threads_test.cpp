#include "tests/catch.hpp"
#include "tests/integration/clusters.hpp"
#include "tests/thread_table.hpp"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

namespace threads_test {

using namespace troupe::test;

namespace {

/// The names of the threads of a process. One that ends meanwhile is left out.
std::set<std::string> threads_of(pid_t process) {
  std::set<std::string> out;
  std::error_code failure;
  const auto all = std::filesystem::path("/proc") / std::to_string(process) / "task";
  for (std::filesystem::directory_iterator at(all, failure), end; !failure && at != end; at.increment(failure)) {
    std::ifstream file(at->path() / "comm");
    std::string name;
    if (std::getline(file, name))
      out.insert(name);
  }
  return out;
}

} // namespace

TEST_CASE("threads: those of a node are all in the documentation") {
  test_cluster nodes(2);
  nodes.change = [](std::size_t, nlohmann::json& config) {
    config["http"] = {{"enabled", true}, {"port", 0}};
    config["registry"]["record_keys"] = 1000;
    config["registry"]["durability"] = "relaxed";
  };
  nodes.start_all();
  // The second node fetches pages of the first, so that all parts of both have been in use.
  const std::string trace = "loogle:2,256,4,64";
  check_clean(nodes.replay(0, trace), nodes.shape);
  check_clean(nodes.replay(1, trace), nodes.shape);
  const auto table = documented_threads(TROUPE_SOURCE_DIR);
  REQUIRE(table.size() > 20);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto names = threads_of(nodes.node(i).program().id());
    for (const auto& name : names) {
      INFO("a thread that docs/architecture.md does not list: " << name);
      CHECK(is_documented_thread(name, table));
    }
    for (const auto* name : {"troupe", "troupe-log", "caf.multiplexer", "caf.clock", "io-0-0", "troupe-sockets",
                             "troupe-spaces", "troupe-store", "rocksdb:low", "rocksdb:high", "troupe-trace",
                             "troupe-http", "troupe-peers", "troupe-dialer", "troupe-mover", "troupe-copy"}) {
      INFO(name);
      CHECK(names.contains(name));
    }
  }
  nodes.stop_all();
}

} // namespace threads_test
