#include "tests/catch.hpp"
#include "tests/unit/connector_support.hpp"

#include <algorithm>

/// The worked examples of LMCache's tracker, with blocks of 16 tokens and pages of 256: tokens that the engine is
/// offered, that are loaded, and that are stored.

namespace troupe::test::connector_examples_test {

namespace {

struct load_case {
  const char* name;
  /// Blocks that the engine has in its own prefix cache, and leading blocks that are in the store.
  std::uint32_t computed_blocks;
  std::uint32_t found_blocks;
  /// The number of tokens that the engine is offered.
  std::uint32_t notified;
  /// Blocks that are loaded, from the beginning of a page on; and tokens at its beginning that are not written.
  std::uint32_t first;
  std::uint32_t last;
  std::uint32_t skip;
};

constexpr load_case load_cases[] = {
    {"cold prefix cache", 0, 48, 768, 0, 48, 0},      {"unaligned prefix cache", 20, 48, 448, 16, 48, 64},
    {"aligned prefix cache", 32, 48, 256, 32, 48, 0}, {"equal", 48, 48, 0, 0, 0, 0},
    {"prefix cache longer", 50, 48, 0, 0, 0, 0},      {"prefix cache inside the first page", 5, 16, 176, 0, 16, 80},
};

} // namespace

TEST_CASE("worked examples: what is loaded for each combination of prefix cache and store", "[connector]") {
  for (const auto& x : load_cases) {
    INFO(x.name);
    scheduler_harness harness(lmcache_options());
    const auto tokens = tokens_from(1, 1000);
    CHECK_FALSE(harness.ask("r", tokens, x.computed_blocks * 16).tokens.has_value());
    harness.answer(x.found_blocks / 16);
    const auto notified = harness.ask("r", tokens, x.computed_blocks * 16);
    CHECK(notified == matched_tokens{x.notified, x.notified > 0});

    const auto blocks = blocks_from(100, 63);
    harness.allocate("r", blocks, x.notified);
    // Every lease has been released or belongs to the one load.
    CHECK(harness.state.leases_held() + harness.released.size() == 1);
    const auto meta = harness.build();
    if (x.last == 0) {
      CHECK(meta.loads.empty());
      CHECK(harness.state.leases_held() == 0);
      continue;
    }
    REQUIRE(meta.loads.size() == 1);
    const auto& load = meta.loads.front();
    CHECK(load.keys.size() == (x.last - x.first) / 16);
    REQUIRE(load.blocks.size() == x.last - x.first);
    for (std::uint32_t i = 0; i < load.blocks.size(); ++i)
      CHECK(load.blocks[i] == (i * 16 < x.skip ? null_block : blocks[x.first + i]));
    const auto all = harness.state.find("r")->keys();
    CHECK(std::equal(load.keys.begin(), load.keys.end(), all.begin() + x.first / 16));
    CHECK(harness.state.leases_held() == 1);
    harness.report({.received = {"r"}});
    CHECK(harness.state.leases_held() == 0);
    CHECK(harness.released.size() == 1);
  }
}

TEST_CASE("worked examples: a prompt without hits is stored up to its last full page", "[connector]") {
  scheduler_harness harness(lmcache_options());
  const auto tokens = tokens_from(1, 1000);
  const auto blocks = blocks_from(0, 63);
  harness.admit("r", tokens, blocks);
  const auto meta = harness.run_new("r", blocks, 0, 1000);
  REQUIRE(meta.stores.size() == 1);
  CHECK(meta.stores[0].first_page == 0);
  CHECK(meta.stores[0].keys.size() == 3);
  CHECK(meta.stores[0].blocks == blocks_from(0, 48));
  CHECK(meta.stores[0].parent.is_null());
  // Nothing new is full.
  CHECK(harness.run_on("r", {}, 1000, 1).stores.empty());
}

TEST_CASE("worked examples: a chunked prompt is stored chunk by chunk", "[connector]") {
  scheduler_harness harness(lmcache_options());
  const auto tokens = tokens_from(1, 2000);
  harness.admit("r", tokens, blocks_from(0, 40));
  auto meta = harness.run_new("r", blocks_from(0, 40), 0, 640);
  REQUIRE(meta.stores.size() == 1);
  CHECK(meta.stores[0].blocks == blocks_from(0, 32));
  meta = harness.run_on("r", blocks_from(40, 40), 640, 640);
  REQUIRE(meta.stores.size() == 1);
  CHECK(meta.stores[0].first_page == 2);
  CHECK(meta.stores[0].blocks == blocks_from(32, 48));
  CHECK(meta.stores[0].parent == harness.state.find("r")->keys()[1]);
}

TEST_CASE("worked examples: generated tokens are stored a page every 256", "[connector]") {
  scheduler_harness harness(lmcache_options());
  auto tokens = tokens_from(1, 200);
  harness.ask("r", tokens); // nothing to look up: no full page
  CHECK(harness.lookups.empty());
  harness.allocate("r", blocks_from(0, 13), 0);
  harness.run_new("r", blocks_from(0, 13), 0, 200);
  std::vector<std::uint32_t> stored_at;
  std::uint32_t blocks = 13;
  for (std::uint32_t computed = 200; computed < 1000; ++computed) {
    tokens.push_back(computed);
    std::vector<block_id> added;
    if (computed / 16 >= blocks)
      added.push_back(blocks++);
    const auto meta = harness.run_on("r", added, computed, 1, {computed, std::span(tokens).subspan(computed)});
    for (const auto& x : meta.stores) {
      CHECK(x.keys.size() == 1);
      stored_at.push_back(computed + 1);
    }
  }
  CHECK(stored_at == std::vector<std::uint32_t>{256, 512, 768});
}

TEST_CASE("connector examples: a page is stored when its last token is computed, not when its blocks are allocated",
          "[connector]") {
  // 512 tokens and then 248: 760 are computed, and 48 blocks, which is 768 tokens, are allocated.
  scheduler_harness harness(lmcache_options());
  const auto tokens = tokens_from(1, 2000);
  harness.admit("r", tokens, blocks_from(0, 32));
  CHECK(harness.run_new("r", blocks_from(0, 32), 0, 512).stores.at(0).keys.size() == 2);
  CHECK(harness.run_on("r", blocks_from(32, 16), 512, 248).stores.empty());
  const auto meta = harness.run_on("r", blocks_from(48, 1), 760, 8);
  REQUIRE(meta.stores.size() == 1);
  CHECK(meta.stores[0].first_page == 2);
}

TEST_CASE("connector examples: the first step after a hit stores all that it completes", "[connector]") {
  // A prompt of 4096 tokens, of which 768 are found: the rest is computed in one step, and a request that ends after
  // it has no other step.
  scheduler_harness harness(lmcache_options());
  const auto tokens = tokens_from(1, 4096);
  const auto blocks = blocks_from(0, 256);
  harness.begin_load("r", tokens, 0, 3, blocks);
  harness.report({.received = {"r"}});
  harness.allocate("r", blocks, 0);
  const auto meta = harness.run_new("r", blocks, 768, 3328);
  REQUIRE(meta.stores.size() == 1);
  CHECK(meta.stores[0].first_page == 3);
  CHECK(meta.stores[0].keys.size() == 13);
}

TEST_CASE("connector examples: one block per page follows the same rules", "[connector]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  const auto blocks = blocks_from(50, 7);
  const auto load = harness.begin_load("r", tokens, 32, 5, blocks);
  CHECK(load.keys.size() == 3);
  CHECK(load.blocks == std::vector<block_id>{52, 53, 54});
  harness.report({.received = {"r"}});
  harness.allocate("r", blocks, 0);
  const auto meta = harness.run_new("r", blocks, 80, 20);
  REQUIRE(meta.stores.size() == 1);
  CHECK(meta.stores[0].first_page == 5);
  CHECK(meta.stores[0].blocks == std::vector<block_id>{55});
}

TEST_CASE("connector examples: an engine may take fewer tokens than were found, up to the middle of a page",
          "[connector]") {
  scheduler_harness harness(lmcache_options());
  const auto tokens = tokens_from(1, 1000);
  CHECK_FALSE(harness.ask("r", tokens).tokens.has_value());
  harness.answer(3);
  CHECK(harness.ask("r", tokens) == matched_tokens{768, true});
  const auto blocks = blocks_from(100, 45);
  harness.allocate("r", blocks, 45 * 16);
  const auto loads = harness.build().loads;
  REQUIRE(loads.size() == 1);
  CHECK(loads[0].keys.size() == 3);
  REQUIRE(loads[0].blocks.size() == 48);
  for (std::size_t i = 0; i < 48; ++i)
    CHECK(loads[0].blocks[i] == (i < 45 ? blocks[i] : null_block));
}

TEST_CASE("connector examples: a lookup answer from before a preemption is not used for the repeated lookup",
          "[connector]") {
  // The engine does not wait for the first answer and preempts the request before it arrives.
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  harness.ask("r", tokens);
  const auto first = harness.lookups.at(0).lookup;
  harness.lookups.clear();
  harness.allocate("r", blocks_from(0, 7), 0);
  harness.run_new("r", blocks_from(0, 7), 0, 100);
  harness.preempt("r");
  CHECK_FALSE(harness.ask("r", tokens).tokens.has_value());
  REQUIRE(harness.lookups.size() == 1);
  harness.late_answer(first, 6, ticket{7, 500});
  CHECK(harness.released == std::vector{ticket{7, 500}});
  CHECK_FALSE(harness.ask("r", tokens).tokens.has_value());
  harness.answer(2);
  CHECK(harness.ask("r", tokens) == matched_tokens{32, true});
}

TEST_CASE("connector examples: a page of which the engine has freed a block is not stored", "[connector]") {
  // A sliding window leaves a prefix without blocks at its beginning.
  const auto per_page = GENERATE(1U, 16U);
  auto options = lmcache_options();
  options.keys.blocks_per_page = per_page;
  scheduler_harness harness(options);
  const auto tokens = tokens_from(1, 1000);
  auto blocks = blocks_from(100, 63);
  for (const auto i : {0, 1, 2, 20})
    blocks[static_cast<std::size_t>(i)] = null_block;
  harness.admit("r", tokens, blocks);
  std::vector<block_id> stored;
  std::vector<std::uint32_t> first_pages;
  for (const auto& x : harness.run_new("r", blocks, 0, 1000).stores) {
    CHECK(x.blocks.size() == x.keys.size() * per_page);
    first_pages.push_back(x.first_page);
    stored.insert(stored.end(), x.blocks.begin(), x.blocks.end());
    // The page before it is its parent, stored or not.
    CHECK(x.parent == harness.state.find("r")->keys()[x.first_page - 1]);
  }
  CHECK(std::find(stored.begin(), stored.end(), null_block) == stored.end());
  if (per_page == 1) {
    CHECK(first_pages == std::vector<std::uint32_t>{3, 21});
    CHECK(stored.size() == 62 - 4);
  } else {
    CHECK(first_pages == std::vector<std::uint32_t>{2});
    CHECK(stored == blocks_from(132, 16));
  }
}

TEST_CASE("connector examples: the last token is never looked up, so that the engine has something to compute",
          "[connector]") {
  scheduler_harness harness(hf3fs_options());
  harness.ask("full", tokens_from(1, 64));
  CHECK(harness.lookups.at(0).work.keys.size() == 3);
  harness.ask("one more", tokens_from(1, 65));
  CHECK(harness.lookups.at(1).work.keys.size() == 4);
  CHECK(harness.ask("short", tokens_from(1, 16)) == matched_tokens{0, false});
  CHECK(harness.ask("nothing", {}) == matched_tokens{0, false});
  CHECK(harness.lookups.size() == 2);
}

} // namespace troupe::test::connector_examples_test
