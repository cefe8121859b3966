#include "tests/catch.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/integration/support.hpp"

#include <fstream>

namespace memory_lack_test {

/// Nodes that have less memory than their config asks for, or more than they can use.

using namespace troupe;
using namespace troupe::test;

namespace {

nlohmann::json with_http(const std::filesystem::path& where) {
  auto out = node_config(where);
  out["http"] = {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}};
  return out;
}

/// The kernel's flags of those mappings of a process whose line contains this text.
std::vector<std::string> flags_of_mappings(pid_t process, const std::string& part) {
  std::vector<std::string> out;
  std::ifstream maps("/proc/" + std::to_string(process) + "/smaps");
  bool is_it = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with("VmFlags:") && is_it)
      out.push_back(line);
    if (line.find('-') != std::string::npos && line.find(" kB") == std::string::npos)
      is_it = line.find(part) != std::string::npos;
  }
  return out;
}

} // namespace

TEST_CASE("memory lack: a node that gets no page memory from the host reports it everywhere and serves") {
  const scratch_directory scratch;
  launch how;
  how.without_page_memory = true;
  serving_node node(write_config(scratch.path(), with_http(scratch.path())), {}, how);
  node.wait_for_log("the host has provided 0 B of the");
  CHECK(sum_of_metric(node, "troupe_degraded{reason=\"memory_short\"}") == 1);
  const auto ready = http(node, "GET", "/ready");
  CHECK(ready.status == 200);
  CHECK(ready.body.find(" of memory.bytes") != std::string::npos);
  const auto url =
      "127.0.0.1:" + std::to_string(nlohmann::json::parse(node.ready_line()).at("http").at("port").get<int>());
  const auto notified = run(program_with({"status", url}));
  INFO(notified.out);
  CHECK(notified.code == 1);
  CHECK(notified.out.find("docs/operations.md#memory_short") != std::string::npos);
  CHECK(node.stop() == 0);
}

TEST_CASE("memory lack: core dumps of a node contain no pages") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path())));
  const auto flags = flags_of_mappings(node.program().id(), "memfd:troupe-arena ");
  REQUIRE_FALSE(flags.empty());
  for (const auto& x : flags)
    CHECK(x.find(" dd") != std::string::npos);
  CHECK(node.stop() == 0);
}

TEST_CASE("memory lack: memory beyond the host is a config error and unused memory is a warning") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), node_config(scratch.path())).string();
  const auto check = [&](const std::string& setting) {
    return run(program_with({"check-config", config, "--set", setting, "--set", "memory.huge_pages=off"}));
  };
  const auto too_much = check("memory.bytes=64 TiB");
  INFO(too_much.err);
  CHECK(too_much.code == 2);
  CHECK(too_much.out.empty());
  CHECK(too_much.err.find("memory.bytes: 64 TiB") != std::string::npos);

  const auto refused = run(program_with({"serve", "--config", config, "--set", "memory.bytes=64 TiB"}));
  INFO(refused.err);
  CHECK(refused.code == 1);
  CHECK(refused.err.find("64 TiB") != std::string::npos);

  // Where every page has to be on the disk.
  const auto unused = run(program_with({"check-config", config, "--set", "memory.bytes=1 GiB", "--set",
                                        "registry.durability=strict", "--set", "memory.huge_pages=off"}));
  INFO(unused.err);
  CHECK(unused.code == 0);
  CHECK(unused.err.find("warning: memory.bytes: ") != std::string::npos);
  CHECK(unused.err.find("of 1 GiB can never hold a page") != std::string::npos);
  CHECK_FALSE(unused.out.empty());
}

} // namespace memory_lack_test
