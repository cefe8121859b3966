#include "actors/node/supervisor/memory_placement.hpp"
#include "tests/catch.hpp"

#include <string>

namespace node_memory_placement_test {

using namespace troupe;

namespace {

using nodes = std::vector<io::numa_node>;

config::node_config with_ranks(std::vector<std::optional<std::uint32_t>> wishes) {
  config::node_config out;
  out.memory.numa = "spread";
  for (const auto& x : wishes)
    out.storage.ranks.push_back({0, {}, x});
  return out;
}

} // namespace

TEST_CASE("node memory placement: the kernel places memory unless it is to be spread", "[node]") {
  auto options = with_ranks({std::nullopt, std::nullopt});
  CHECK(numa_nodes_for(options, nodes{0, 1}) == nodes{0, 1});
  options.memory.numa = "off";
  CHECK(numa_nodes_for(options, nodes{0, 1}) == nodes{});
}

TEST_CASE("node memory placement: memory is spread over all NUMA nodes, whatever ranks prefer", "[node]") {
  CHECK(numa_nodes_for(with_ranks({1, 1}), nodes{0, 1, 2}) == nodes{0, 1, 2});
}

TEST_CASE("node memory placement: each rank that prefers an unknown NUMA node gets an error with the known ones",
          "[node]") {
  const auto options = with_ranks({1, 2, std::nullopt, 7});
  const auto faults = faults_of_numa_nodes(options, nodes{0, 1});
  REQUIRE(faults.size() == 2);
  CHECK(config::to_string(faults[0]) ==
        "storage.ranks[1].numa_node: is 2, and the memory of this host that the node may use is on NUMA nodes 0 and 1: "
        "choose one of these, or leave it out");
  CHECK(faults[1].path == "storage.ranks[3].numa_node");
  const auto refused = numa_nodes_for(options, nodes{0, 1});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(refused.error().text == config::to_string(faults[0]));
}

TEST_CASE("node memory placement: preferences are accepted and ignored where the kernel reports no NUMA nodes",
          "[node]") {
  CHECK(faults_of_numa_nodes(with_ranks({5}), {}).empty());
  CHECK(numa_nodes_for(with_ranks({5}), {}) == nodes{});
}

TEST_CASE("node memory placement: memory that can never be provided is an error that depends on its page type",
          "[node][memory]") {
  constexpr std::uint64_t mebibyte = 1U << 20U;
  const memory_bound bound{512 * mebibyte, "this host has"};
  const io::huge_page_room none{};
  // The huge pages are in use, as while the inspected node runs.
  io::huge_page_room taken{io::huge_page_counts{1024, 0}, std::nullopt};
  config::node_config options;
  options.memory.bytes = 1024 * mebibyte;
  const auto faults = faults_of_memory(options, bound, none);
  REQUIRE(faults.size() == 1);
  CHECK(faults[0].path == "memory.bytes");
  CHECK(faults[0].text.find("this host has") != std::string::npos);
  options.memory.bytes = 256 * mebibyte;
  CHECK(faults_of_memory(options, bound, none).empty());

  // Huge pages are not of the memory that control groups count.
  options.memory.bytes = 1024 * mebibyte;
  CHECK(faults_of_memory(options, bound, taken).empty());
  options.memory.huge_pages = "off";
  CHECK(faults_of_memory(options, bound, taken).size() == 1);
  options.memory.huge_pages = "auto";
  options.lmcache.enabled = true; // in /dev/shm
  CHECK(faults_of_memory(options, bound, taken).size() == 1);

  options = {};
  options.memory.bytes = 1024 * mebibyte;
  options.memory.huge_pages = "2 MiB";
  CHECK(faults_of_memory(options, bound, taken).empty());
  taken.group = group_limit{0, 0, "/sys/fs/cgroup/kv/hugetlb.2MB.max"};
  const auto forbidden = faults_of_memory(options, bound, taken);
  REQUIRE(forbidden.size() == 1);
  CHECK(forbidden[0].path == "memory.huge_pages");
  CHECK(forbidden[0].text.find("/sys/fs/cgroup/kv/hugetlb.2MB.max") != std::string::npos);
  const auto missing = faults_of_memory(options, bound, {io::huge_page_counts{500, 500}, std::nullopt});
  REQUIRE(missing.size() == 1);
  CHECK(missing[0].text.find("vm.nr_hugepages=512") != std::string::npos);
}

} // namespace node_memory_placement_test
