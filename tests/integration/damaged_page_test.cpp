#include "tests/catch.hpp"
#include "tests/integration/slab_editor.hpp"
#include "tests/integration/support.hpp"
#include "workload/replay/keys.hpp"

namespace damaged_page_test {

/// Bytes on the disk that differ from the saved ones. Each such page is a counted failure of the one replay that finds
/// it, is saved again by it, and is found and right from then on.

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::uint64_t block_count = 40;

constexpr node_shape strict{.page_bytes = 8192, .strict = true};

/// A node whose slabs hold the pages of one request.
class filled_node {
public:
  explicit filled_node(const node_shape& shape, arguments more = {})
      : shape_(shape), config_(node_config(scratch_.path(), shape)),
        trace_(write_trace(scratch_ / "trace", {ids(1, block_count)})), keys_(replay::chain_keys(ids(1, block_count))),
        more_(std::move(more)) {
    node_.emplace(write_config(scratch_.path(), config_), more_);
    const auto x = play();
    check_clean(x, shape_);
    REQUIRE(x.count("saved_pages") == block_count * shape_.ranks);
    forget_memory();
  }

  /// From now on pages are only in their slabs, where a test can get at them.
  void forget_memory() {
    CHECK(node_->stop() == 0);
    node_.emplace(scratch_ / "node.json", more_);
  }

  replay_outcome play() { return run_replay({"--attach", node_->address(), "--trace", trace_, "--concurrency", "1"}); }

  /// Checks a replay that finds `damaged` pages of one rank, and the one after it.
  void check_repair(std::uint64_t damaged) {
    const auto finds = play();
    check_report(finds, shape_);
    CHECK(finds.code == 0);
    CHECK(finds.count("hit_blocks") == block_count); // a page is known to be damaged only when it is read
    CHECK(finds.count("load_failures") == damaged);
    CHECK(finds.count("saved_pages") == damaged);
    CHECK(finds.count("save_failures") == 0);
    const auto repaired = play();
    check_clean(repaired, shape_);
    CHECK(repaired.count("hit_blocks") == block_count);
    CHECK(repaired.count("saved_pages") == 0);
  }

  /// At the end: every slot is accounted for.
  void check_rest() {
    const auto rest = node_->wait_until_quiesced();
    for (const auto& x : rest.ranks) {
      CHECK(x.live == block_count);
      CHECK(x.free + x.live == x.total);
    }
    CHECK(node_->stop() == 0);
  }

  slab_editor slab(std::uint32_t rank = 0) const { return {slab_path(config_, rank), shape_.page_bytes}; }
  const key_digest& key(std::size_t i) const { return keys_.at(i); }
  serving_node& node() { return *node_; }

private:
  scratch_directory scratch_;
  node_shape shape_;
  nlohmann::json config_;
  std::string trace_;
  std::vector<key_digest> keys_;
  arguments more_;
  std::optional<serving_node> node_;
};

} // namespace

TEST_CASE("damaged page: a flipped byte anywhere in a page is detected and costs only that page") {
  const auto* direct = GENERATE("storage.direct=true", "storage.direct=false");
  INFO(direct);
  filled_node filled(strict, {"--set", direct});
  const auto slab = filled.slab();
  // Header: magic, version, namespace, key, rank, slot, generation, payload size and hash, unused bytes, its own hash;
  // payload: first, middle and last byte.
  constexpr std::uint64_t offsets[] = {0,  8,  12, 16,   32,   47,   48,   52,   56,   64,
                                       72, 87, 88, 2000, 4088, 4095, 4096, 8000, 12287};
  std::size_t block = 0;
  for (const auto offset : offsets) {
    INFO("byte " << offset << " of the page of block " << block);
    filled.forget_memory();
    const auto slot = slab.find(filled.key(block++));
    REQUIRE(slot);
    slab.flip(*slot, offset);
    filled.check_repair(1);
    const auto said = filled.node().program().wait_for_line(process::stream::err, to_string(filled.key(block - 1)));
    CHECK(said.text.find(" warning registry: ") != std::string::npos);
    CHECK(said.text.find("rank 0 slot " + std::to_string(*slot)) != std::string::npos);
  }
  filled.check_rest();
}

TEST_CASE("damaged page: a flipped byte on one rank costs only the page of that rank") {
  const node_shape shape{.ranks = 3, .strict = true};
  filled_node filled(shape);
  const auto slab = filled.slab(1);
  slab.flip(slab.find(filled.key(0)).value(), 5000);
  slab.flip(slab.find(filled.key(block_count - 1)).value(), 5000);
  filled.check_repair(2);
  filled.check_rest();
}

TEST_CASE("damaged page: valid pages in the wrong place are detected") {
  filled_node filled(strict);
  const auto slab = filled.slab();
  const auto a = slab.find(filled.key(3)).value();
  const auto b = slab.find(filled.key(4)).value();
  const auto of_a = slab.read(a);
  const auto of_b = slab.read(b);
  SECTION("another key's page") {
    slab.write(a, of_b);
    filled.check_repair(1);
  }
  SECTION("two swapped pages") {
    slab.write(a, of_b);
    slab.write(b, of_a);
    filled.check_repair(2);
  }
  SECTION("zeroes") {
    slab.write(a, std::vector<std::byte>(slab.slot_bytes()));
    filled.check_repair(1);
  }
  SECTION("the first half of one write and the second of another") {
    auto torn = of_a;
    std::copy(of_b.begin() + 6144, of_b.end(), torn.begin() + 6144);
    slab.write(a, torn);
    filled.check_repair(1);
  }
  SECTION("an older page of the same key") {
    slab.flip(a, 4096);
    filled.check_repair(1);
    const auto now = slab.find(filled.key(3)).value();
    REQUIRE(now != a);
    filled.forget_memory();
    slab.write(now, of_a);
    filled.check_repair(1);
  }
  SECTION("all of them missing") {
    slab.punch();
    filled.check_repair(block_count);
  }
  filled.check_rest();
}

TEST_CASE("damaged page: the scrub finds a damaged page before a load does") {
  filled_node filled(strict,
                     {"--set", "storage.scrub_bytes_per_second=\"64 MiB\"", "--set", "registry.durability=\"strict\""});
  const auto slab = filled.slab();
  const auto slot = slab.find(filled.key(7)).value();
  slab.flip(slot, 5000);
  filled.forget_memory();
  const auto said = filled.node().program().wait_for_line(process::stream::err, to_string(filled.key(7)));
  CHECK(said.text.find(" warning registry: ") != std::string::npos);
  CHECK(said.text.find("slot " + std::to_string(slot)) != std::string::npos);
  filled.node().program().wait_for_line(process::stream::err, "pages read, 1 corrupt");
  const auto finds = filled.play();
  CHECK(finds.count("load_failures") == 0);
  // Pages behind it exist and are not looked up.
  CHECK(finds.count("hit_blocks") == 7);
  CHECK(filled.play().count("hit_blocks") == block_count);
  filled.check_rest();
}

} // namespace damaged_page_test
