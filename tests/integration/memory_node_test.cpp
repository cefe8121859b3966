#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

namespace memory_node_test {

/// Nodes whose pages are in memory: some of them, or all.

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::uint64_t block_count = 100;

nlohmann::json without_disk(const std::filesystem::path& where, const node_shape& shape) {
  auto out = node_config(where, shape);
  for (auto& rank : out["storage"]["ranks"])
    rank["slab_bytes"] = 0;
  return out;
}

} // namespace

TEST_CASE("memory node: a node without a disk serves pages from memory and none after a restart") {
  const scratch_directory scratch;
  const node_shape shape{.ranks = 2};
  auto json = without_disk(scratch.path(), shape);
  json["registry"]["durability"] = GENERATE("none", "relaxed");
  const auto config = write_config(scratch.path(), json);
  const auto trace = write_trace(scratch / "trace", {ids(1, block_count)});
  std::optional<serving_node> node(std::in_place, config);
  const auto play = [&] {
    auto x = run_replay({"--attach", node->address(), "--trace", trace, "--concurrency", "1"});
    check_clean(x, shape);
    return x;
  };
  CHECK(play().count("saved_pages") == 2 * block_count);
  const auto found = play();
  CHECK(found.count("hit_blocks") == block_count);
  CHECK(found.count("loaded_pages") == 2 * block_count);
  const auto rest = node->wait_until_quiesced();
  for (const auto& x : rest.ranks) {
    CHECK(x.live == block_count);
    CHECK(x.read == 0);
    CHECK(x.written == 0);
  }
  CHECK(node->stop() == 0);
  for (const auto& name : entries(scratch / "data"))
    CHECK(name.find(".slab") == std::string::npos);

  node.emplace(config);
  CHECK(play().count("hit_blocks") == 0);
  CHECK(play().count("hit_blocks") == block_count);
  CHECK(node->stop() == 0);
}

TEST_CASE("memory node: a node without a disk evicts old pages when its memory is full") {
  const scratch_directory scratch;
  const node_shape shape{.page_bytes = 65536, .memory_bytes = 4 * little_memory};
  serving_node node(write_config(scratch.path(), without_disk(scratch.path(), shape)));
  const auto x = run_replay({"--attach", node.address(), "--trace", "loogle:20,1024,4,128", "--concurrency", "1"});
  check_clean(x, shape);
  CHECK(x.count("evicted_keys") > 0);
  CHECK(x.count("loaded_pages") > 0);
  const auto rest = node.wait_until_quiesced();
  CHECK(rest.ranks[0].live > 0);
  CHECK(node.stop() == 0);
}

TEST_CASE("memory node: after a kill only pages that were in memory alone are misses") {
  const scratch_directory scratch;
  const auto* durability = GENERATE("none", "relaxed", "strict");
  INFO(durability);
  const node_shape shape{.slots = 2048};
  auto json = node_config(scratch.path(), shape);
  json["registry"]["durability"] = durability;
  json["memory"] = {{"write_back", "on_eviction"}};
  const auto config = write_config(scratch.path(), json);
  const auto trace = write_trace(scratch / "trace", {ids(1, block_count)});
  std::optional<serving_node> node(std::in_place, config);
  const auto play = [&] {
    auto x = run_replay({"--attach", node->address(), "--trace", trace, "--concurrency", "1"});
    check_report(x, shape); // every byte that is loaded is compared
    CHECK(x.code == 0);
    return x;
  };
  CHECK(play().count("saved_pages") == block_count);
  node->program().kill();
  node.emplace(config);
  const auto after = play();
  if (std::string(durability) == "strict")
    CHECK(after.count("loaded_pages") == block_count);
  else
    CHECK(after.count("loaded_pages") == 0);
  CHECK(play().count("hit_blocks") == block_count);
  CHECK(node->stop() == 0);

  // A node that ends in good order has written all of it.
  node.emplace(config);
  CHECK(play().count("loaded_pages") == (std::string(durability) == "none" ? 0 : block_count));
  CHECK(node->stop() == 0);
}

TEST_CASE("memory node: memory beyond the disk holds pages, and a restart keeps those on the disk") {
  const scratch_directory scratch;
  constexpr std::uint64_t on_disk = 32;
  const node_shape shape{.slots = on_disk};
  auto json = node_config(scratch.path(), shape);
  json["registry"]["durability"] = "relaxed";
  json["registry"]["shards"] = 1;
  const auto* mode = GENERATE("eager", "on_eviction");
  INFO(mode);
  json["memory"]["write_back"] = mode;
  const auto config = write_config(scratch.path(), json);
  const auto trace = write_trace(scratch / "trace", {ids(1, block_count)});
  std::optional<serving_node> node(std::in_place, config);
  const auto play = [&] {
    auto x = run_replay({"--attach", node->address(), "--trace", trace, "--concurrency", "1"});
    check_clean(x, shape); // every byte that is loaded is compared
    return x;
  };
  CHECK(play().count("saved_pages") == block_count);
  CHECK(play().count("loaded_pages") == block_count);
  const auto rest = node->wait_until_quiesced();
  CHECK(rest.ranks[0].live == block_count);
  CHECK(rest.ranks[0].written <= on_disk);
  CHECK(node->stop() == 0);

  // The beginning of the prompt is on the disk.
  node.emplace(config);
  const auto after = play();
  CHECK(after.count("hit_blocks") == on_disk);
  CHECK(after.count("loaded_pages") == on_disk);
  CHECK(play().count("loaded_pages") == block_count);
  node->program().kill();
  node.emplace(config);
  CHECK(play().count("hit_blocks") <= on_disk);
  CHECK(play().count("loaded_pages") == block_count);
  CHECK(node->stop() == 0);
}

TEST_CASE("memory node: old pages of memory and disk are evicted together when both are full") {
  const scratch_directory scratch;
  const node_shape shape{.page_bytes = 65536, .slots = 64, .memory_bytes = 4 * little_memory};
  serving_node node(write_config(scratch.path(), node_config(scratch.path(), shape)));
  // Prompts have 72 pages, and those in progress must fit: with four at once there may be nothing to evict.
  const auto x = run_replay({"--attach", node.address(), "--trace", "loogle:20,1024,4,128", "--concurrency", "2"});
  check_clean(x, shape);
  CHECK(x.count("evicted_keys") > 0);
  CHECK(x.count("loaded_pages") > 0);
  const auto rest = node.wait_until_quiesced();
  CHECK(rest.ranks[0].live > 64);
  CHECK(rest.ranks[0].written > 0);
  CHECK(node.stop() == 0);
}

TEST_CASE("memory node: pages without a second request are not written and not in the next run's index") {
  const scratch_directory scratch;
  const node_shape shape{.slots = 2048};
  auto json = node_config(scratch.path(), shape);
  json["registry"]["durability"] = "relaxed";
  json["memory"] = {{"admission", "second_hit"}};
  const auto config = write_config(scratch.path(), json);
  const auto trace = write_trace(scratch / "trace", {ids(1, block_count)});
  std::optional<serving_node> node(std::in_place, config);
  const auto play = [&] {
    auto x = run_replay({"--attach", node->address(), "--trace", trace, "--concurrency", "1"});
    check_clean(x, shape);
    return x;
  };
  const auto start_again = [&] {
    CHECK(node->stop() == 0);
    node.emplace(config);
  };
  CHECK(play().count("saved_pages") == block_count);
  start_again();
  CHECK(play().count("hit_blocks") == 0);
  const auto again = play();
  CHECK(again.count("loaded_from_memory") == block_count);
  start_again();
  // Some were read ahead, when the lookup had found them.
  const auto found = play();
  CHECK(found.count("hit_blocks") == block_count);
  CHECK(found.count("load_failures") == 0);
  CHECK(node->stop() == 0);
}

} // namespace memory_node_test
