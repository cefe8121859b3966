#include "actors/node/supervisor/memory_placement.hpp"
#include "tests/catch.hpp"

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

TEST_CASE("memory lies where the kernel likes unless it is to be spread", "[node]") {
  auto options = with_ranks({std::nullopt, std::nullopt});
  CHECK(numa_nodes_for(options, nodes{0, 1}) == nodes{0, 1});
  options.memory.numa = "off";
  CHECK(numa_nodes_for(options, nodes{0, 1}) == nodes{});
}

TEST_CASE("memory is spread over all NUMA nodes, whatever ranks wish for", "[node]") {
  CHECK(numa_nodes_for(with_ranks({1, 1}), nodes{0, 1, 2}) == nodes{0, 1, 2});
}

TEST_CASE("each rank that wishes for a NUMA node that is not there is told of those that are", "[node]") {
  const auto options = with_ranks({1, 2, std::nullopt, 7});
  const auto faults = faults_of_numa_nodes(options, nodes{0, 1});
  REQUIRE(faults.size() == 2);
  CHECK(config::to_string(faults[0]) ==
        "storage.ranks[1].numa_node: is 2, and the memory of this host that the node may use is on NUMA nodes 0 and 1: "
        "choose of these, or leave it out");
  CHECK(faults[1].path == "storage.ranks[3].numa_node");
  const auto refused = numa_nodes_for(options, nodes{0, 1});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(refused.error().text == config::to_string(faults[0]));
}

TEST_CASE("where the kernel tells of no NUMA nodes, wishes are heard and not fulfilled", "[node]") {
  CHECK(faults_of_numa_nodes(with_ranks({5}), {}).empty());
  CHECK(numa_nodes_for(with_ranks({5}), {}) == nodes{});
}

} // namespace node_memory_placement_test
