#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace durable_node_test {

using namespace troupe;
using namespace troupe::test;

namespace {

nlohmann::json durable_config(const std::filesystem::path& directory, const std::string& durability) {
  auto config = node_config(directory, {2, 4096, 512});
  config["registry"]["durability"] = durability;
  return config;
}

std::vector<std::string> replay_of(const serving_node& node, const std::string& concurrency = "2") {
  return {"--attach", node.address(), "--trace", "loogle:4,2048,3,128", "--concurrency", concurrency};
}

} // namespace

TEST_CASE("durable node: a node with a durable index serves saved pages bit for bit after kill -9", "[durable]") {
  const auto durability = GENERATE(as<std::string>{}, "strict", "relaxed");
  scratch_directory directory;
  const auto config = write_config(directory.path(), durable_config(directory.path(), durability));
  std::uint64_t blocks = 0;
  for (int round = 0; round < 3; ++round) {
    serving_node node(config);
    const auto outcome = run_replay(replay_of(node));
    INFO("durability " << durability << ", round " << round << '\n' << outcome.err << node.log_so_far());
    CHECK(outcome.count("verify_failures") == 0);
    CHECK(outcome.count("load_failures") == 0);
    blocks = outcome.count("blocks");
    if (round == 0) {
      CHECK(outcome.count("saved_pages") > 0);
    } else {
      CHECK(outcome.count("hit_blocks") == blocks);
      CHECK(outcome.count("saved_pages") == 0);
    }
    // Except with "strict", commits are answered before the page is on disk; such a page exists once it has been
    // written.
    if (round == 0 && durability != "strict")
      node.wait_for_statistics([](const node_statistics& x) {
        return std::ranges::all_of(x.ranks, [](const auto& rank) { return rank.written >= rank.live; });
      });
    node.program().kill();
  }
}

TEST_CASE("durable node: a node with a durable index keeps it over a clean restart", "[durable]") {
  scratch_directory directory;
  const auto config = write_config(directory.path(), durable_config(directory.path(), "relaxed"));
  {
    serving_node node(config);
    CHECK(run_replay(replay_of(node)).count("saved_pages") > 0);
    CHECK(node.stop() == 0);
  }
  serving_node node(config);
  const auto outcome = run_replay(replay_of(node));
  CHECK(outcome.count("saved_pages") == 0);
  CHECK(outcome.count("verify_failures") == 0);
}

TEST_CASE("durable node: a namespace renamed in the config keeps its pages", "[durable]") {
  scratch_directory directory;
  auto config = durable_config(directory.path(), "strict");
  const auto before = std::vector{slab_path(config, 0), slab_path(config, 1)};
  {
    serving_node node(write_config(directory.path(), config));
    CHECK(run_replay(replay_of(node)).count("saved_pages") > 0);
    CHECK(node.stop() == 0);
  }
  config["namespaces"][0]["name"] = "chat";
  serving_node node(write_config(directory.path(), config));
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    CHECK_FALSE(std::filesystem::exists(before[rank]));
    CHECK(std::filesystem::exists(slab_path(config, rank)));
  }
  auto replay = replay_of(node);
  replay.insert(replay.end(), {"--namespace", "chat"});
  const auto outcome = run_replay(replay);
  INFO(outcome.err << node.log_so_far());
  CHECK(outcome.count("hit_blocks") == outcome.count("blocks"));
  CHECK(outcome.count("saved_pages") == 0);
  CHECK(outcome.count("verify_failures") == 0);
}

TEST_CASE("durable node: pages of a durable index without their slab are misses and are saved again", "[durable]") {
  scratch_directory directory;
  const auto config = durable_config(directory.path(), "strict");
  const auto file = write_config(directory.path(), config);
  {
    serving_node node(file);
    CHECK(run_replay(replay_of(node)).count("saved_pages") > 0);
    node.program().kill();
  }
  std::filesystem::remove(slab_path(config, 1));
  serving_node node(file);
  const auto outcome = run_replay(replay_of(node, "1"));
  CHECK(outcome.count("verify_failures") == 0);
  CHECK(outcome.count("load_failures") == 0); // known before the first lookup
  CHECK(outcome.count("saved_pages") > 0);
  const auto again = run_replay(replay_of(node, "1"));
  CHECK(again.count("load_failures") == 0);
  CHECK(again.count("saved_pages") == 0);
}

} // namespace durable_node_test
