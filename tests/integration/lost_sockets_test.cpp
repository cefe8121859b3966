#include "tests/catch.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"

#include <filesystem>
#include <iterator>

namespace lost_sockets_test {

using namespace troupe::test;
namespace fs = std::filesystem;

/// Files that clean-up programs remove under a running node.

namespace {

constexpr const char* small_trace = "loogle:2,1024,3,128";

nlohmann::json config_of(const fs::path& directory) {
  auto out = node_config(directory);
  out["http"] = {{"enabled", true}, {"port", 0}, {"socket", "http.sock"}};
  return out;
}

std::ptrdiff_t open_descriptors(serving_node& node) {
  const fs::directory_iterator all("/proc/" + std::to_string(node.program().id()) + "/fd");
  return std::distance(begin(all), end(all));
}

bool is_lost(const serving_node& node) {
  return sum_of_metric(node, "troupe_degraded{reason=\"socket_lost\"}") == 1;
}

} // namespace

TEST_CASE("lost sockets: sockets and lock removed under a running node are created again and work") {
  const scratch_directory scratch;
  const auto data = scratch / "data";
  const auto config = write_config(scratch.path(), config_of(scratch.path()));
  serving_node node(config);
  const auto status = [&] { return run(program_with({"status", data.string()})).code; };
  CHECK(status() == 0);
  process connected(replay_command({"--attach", node.address(), "--trace", endless_trace}));
  node.wait_for_statistics([](const auto& s) { return s.clients == 1 && s.keys > 100; });
  std::ptrdiff_t after_first = 0;
  for (int round = 0; round < 3; ++round) {
    INFO("round " << round);
    const auto mark = node.log_mark();
    for (const auto* name : {"troupe.sock", "http.sock", "lock"})
      CHECK(fs::remove(data / name));
    for (const auto* name : {"troupe.sock", "http.sock", "lock"}) {
      CHECK(eventually([&] { return fs::exists(fs::symlink_status(data / name)); }));
      node.wait_for_log(std::string(name) == "lock" ? "the lock of" : name, mark);
    }
    check_clean(run_replay({"--attach", data.string(), "--trace", small_trace, "--salt", std::to_string(round)}), {});
    CHECK(eventually([&] { return status() == 0; }));
    // The previous listener is closed.
    if (round == 0)
      after_first = open_descriptors(node);
    else
      CHECK(eventually([&] { return open_descriptors(node) <= after_first; }));
  }
  CHECK_FALSE(is_lost(node));
  CHECK_FALSE(connected.ended());
  connected.kill();
  CHECK(node.stop() == 0);
  for (const auto* name : {"troupe.sock", "http.sock"})
    CHECK_FALSE(fs::exists(fs::symlink_status(data / name)));
}

TEST_CASE("lost sockets: a socket that cannot be created again is reported until it can") {
  const scratch_directory scratch;
  const auto socket = scratch / "data/troupe.sock";
  serving_node node(write_config(scratch.path(), config_of(scratch.path())));
  CHECK_FALSE(is_lost(node));
  // The file at this path must not be removed.
  fs::create_directory(scratch / "thing");
  fs::rename(socket, scratch / "moved");
  fs::rename(scratch / "thing", socket);
  CHECK(eventually([&] { return is_lost(node); }));
  node.wait_for_log("cannot be recreated");
  const auto status = run(program_with({"status", (scratch / "data").string()}));
  CHECK(status.out.find("socket_lost") != std::string::npos);
  fs::remove(socket);
  CHECK(eventually([&] { return !is_lost(node); }));
  check_clean(run_replay({"--attach", socket.string(), "--trace", small_trace}), {});
  CHECK(node.stop() == 0);
}

TEST_CASE("lost sockets: no second node starts on a directory in use, whatever files were removed") {
  const scratch_directory scratch;
  auto first = config_of(scratch.path());
  // No slab file and no index keep it out.
  first["storage"] = nlohmann::json::object();
  first["namespaces"] = nlohmann::json::array();
  first["http"]["port"] = "off";
  first["actors"] = nlohmann::json::object();
  const auto config = write_config(scratch.path(), first);
  process node(program_with({"serve", "--config", config.string()}));
  node.wait_for_line(process::stream::out, "\"ready\"");
  for (int round = 0; round < 3; ++round) {
    for (const auto* name : {"lock", "troupe.sock", "http.sock"})
      fs::remove(scratch / "data" / name);
    const auto second = run(program_with({"serve", "--config", config.string()}));
    INFO(second.err);
    CHECK(second.code == 1);
    CHECK(second.err.find("in use by another node") != std::string::npos);
  }
  CHECK_FALSE(node.ended());
  node.send(SIGTERM);
  CHECK(node.wait() == 0);
}

} // namespace lost_sockets_test
