#include "tests/catch.hpp"
#include "tests/unit/connector_support.hpp"

#include <algorithm>
#include <set>

/// One test for each hazard of the connectors that Troupe replaces and that the scheduler half has to rule out: H-… are
/// those of LMCache's multi-process connector, C-… those of vLLM's HF3FS connector. docs/hazards-engine-connector.md
/// has the whole list.

namespace troupe::test::connector_hazards_test {

namespace {

/// A request of 100 tokens in blocks of 16 that runs, with nothing found: 6 full blocks.
void run_cold(scheduler_harness& harness, std::string_view id, const std::vector<block_id>& blocks,
              std::uint32_t scheduled = 100) {
  const auto tokens = tokens_from(1, 100);
  harness.admit(id, tokens, blocks);
  harness.all_stored(harness.run_new(id, blocks, 0, scheduled).stores);
}

bool has_finish(const connector_metadata& meta, std::string_view id) {
  return std::ranges::any_of(meta.finished, [&](const auto& x) { return x.request == id; });
}

} // namespace

TEST_CASE("H1: a preempted request is reported to the workers while its stores are open", "[connector][hazards]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  harness.admit("r", tokens, blocks_from(0, 7));
  const auto running = harness.run_new("r", blocks_from(0, 7), 0, 100);
  REQUIRE(running.stores.size() == 1);
  const auto meta = harness.preempt("r");
  CHECK(meta.preempted == std::vector<session_id>{running.stores[0].session});
  // With all stores reported there is nothing to wait for.
  harness.all_stored(running.stores);
  harness.resume("r", blocks_from(20, 7), 0, 100);
  CHECK(harness.preempt("r").preempted.empty());
}

TEST_CASE("H2: a resumed request knows what the prefix cache has", "[connector][hazards]") {
  scheduler_harness harness(hf3fs_options());
  run_cold(harness, "r", blocks_from(0, 7));
  harness.preempt("r");
  const auto tokens = tokens_from(1, 100);
  // The engine still has three blocks, and the store has all six.
  CHECK_FALSE(harness.ask("r", tokens, 48).tokens.has_value());
  harness.answer(6);
  CHECK(harness.ask("r", tokens, 48) == matched_tokens{48, true});
  harness.allocate("r", blocks_from(30, 7), 48);
  const auto loads = harness.build().loads;
  REQUIRE(loads.size() == 1);
  CHECK(loads[0].blocks == std::vector<block_id>{33, 34, 35});
}

TEST_CASE("H3: a resumed request loads what the store has", "[connector][hazards]") {
  scheduler_harness harness(hf3fs_options());
  run_cold(harness, "r", blocks_from(0, 7));
  harness.preempt("r");
  const auto tokens = tokens_from(1, 150); // with generated tokens
  CHECK_FALSE(harness.ask("r", tokens).tokens.has_value());
  CHECK(harness.lookups.at(0).work.keys.size() == 9);
  harness.answer(6);
  CHECK(harness.ask("r", tokens) == matched_tokens{96, true});
}

TEST_CASE("H4: an unused lease is released however the request ends", "[connector][hazards]") {
  const auto tokens = tokens_from(1, 100);
  const auto all_given_back = [](const scheduler_harness& harness) {
    std::set<std::uint64_t> released;
    for (const auto& x : harness.released)
      CHECK(released.insert(x.sequence).second); // once each
    return released.size() == harness.leases_given && harness.state.leases_held() == 0;
  };
  SECTION("finished before it was allocated") {
    scheduler_harness harness(hf3fs_options());
    harness.ask("r", tokens);
    harness.answer(4);
    CHECK_FALSE(harness.finish("r"));
    CHECK(all_given_back(harness));
  }
  SECTION("finished before the answer") {
    scheduler_harness harness(hf3fs_options());
    harness.ask("r", tokens);
    CHECK_FALSE(harness.finish("r"));
    harness.answer(4);
    CHECK(all_given_back(harness));
    CHECK(harness.state.tracked_requests() == 0);
  }
  SECTION("the answer is late") {
    scheduler_harness harness(hf3fs_options());
    harness.ask("r", tokens);
    harness.now += std::chrono::seconds(6);
    CHECK(harness.ask("r", tokens) == matched_tokens{0, false});
    harness.answer(4);
    CHECK(all_given_back(harness));
    CHECK(harness.ask("r", tokens) == matched_tokens{0, false});
  }
  SECTION("the engine runs the request without waiting for the answer") {
    scheduler_harness harness(hf3fs_options());
    harness.ask("r", tokens);
    harness.allocate("r", blocks_from(0, 7), 0);
    harness.run_new("r", blocks_from(0, 7), 0, 100);
    harness.answer(4);
    CHECK(all_given_back(harness));
  }
  SECTION("the engine has as many tokens itself") {
    scheduler_harness harness(hf3fs_options());
    harness.ask("r", tokens, 64);
    harness.answer(4);
    CHECK(harness.ask("r", tokens, 64) == matched_tokens{0, false});
    harness.allocate("r", blocks_from(0, 7), 0);
    CHECK(all_given_back(harness));
  }
  SECTION("the engine cannot take the load") {
    scheduler_harness harness(hf3fs_options());
    harness.ask("r", tokens);
    harness.answer(4);
    harness.ask("r", tokens);
    harness.allocate("r", blocks_from(0, 7), 0);
    CHECK(all_given_back(harness));
    CHECK(harness.build().loads.empty());
  }
  SECTION("aborted between allocation and the step") {
    scheduler_harness harness(hf3fs_options());
    harness.ask("r", tokens);
    harness.answer(4);
    harness.ask("r", tokens);
    harness.allocate("r", blocks_from(0, 4), 64);
    CHECK_FALSE(harness.finish("r"));
    CHECK(all_given_back(harness));
    CHECK(harness.build().empty());
  }
  SECTION("aborted during the load") {
    scheduler_harness harness(hf3fs_options());
    harness.begin_load("r", tokens, 0, 4, blocks_from(0, 4));
    CHECK(harness.finish("r"));
    CHECK(harness.state.leases_held() == 1); // workers read the leased pages
    harness.report({.received = {"r"}});
    CHECK(all_given_back(harness));
  }
  SECTION("about to expire") {
    scheduler_harness harness(hf3fs_options());
    harness.ask("r", tokens);
    harness.answer(4);
    CHECK(harness.ask("r", tokens).tokens == 64);
    harness.now += std::chrono::seconds(25);
    CHECK_FALSE(harness.ask("r", tokens).tokens.has_value());
    CHECK(all_given_back(harness));
    harness.answer(4);
    CHECK(harness.ask("r", tokens).tokens == 64);
  }
  SECTION("about to expire early at a restarted node with shorter leases") {
    scheduler_harness harness(hf3fs_options());
    harness.ask("r", tokens);
    harness.answer(4, {}, std::chrono::seconds(4));
    CHECK(harness.ask("r", tokens).tokens == 64);
    harness.now += std::chrono::seconds(2);
    CHECK(harness.ask("r", tokens).tokens == 64);
    harness.now += std::chrono::seconds(1);
    CHECK_FALSE(harness.ask("r", tokens).tokens.has_value());
    CHECK(all_given_back(harness));
    harness.answer(4, {}, std::chrono::hours(1)); // not longer, though
    CHECK(harness.ask("r", tokens).tokens == 64);
    harness.now += std::chrono::seconds(25);
    CHECK_FALSE(harness.ask("r", tokens).tokens.has_value());
    CHECK(all_given_back(harness));
  }
}

TEST_CASE("H7: repeated lookups change nothing", "[connector][hazards]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  for (int i = 0; i < 10; ++i)
    CHECK_FALSE(harness.ask("r", tokens).tokens.has_value());
  CHECK(harness.lookups_sent == 1);
  harness.answer(4);
  for (int i = 0; i < 10; ++i)
    CHECK(harness.ask("r", tokens) == matched_tokens{64, true});
  harness.allocate("r", blocks_from(0, 7), 64);
  REQUIRE(harness.build().loads.size() == 1);
  harness.report({.received = {"r"}});
  harness.allocate("r", blocks_from(0, 7), 0);
  // The pages behind the hit are stored, from where the hit ends.
  const auto meta = harness.run_new("r", blocks_from(0, 7), 64, 36);
  REQUIRE(meta.stores.size() == 1);
  CHECK(meta.stores[0].first_page == 4);
  CHECK(meta.stores[0].keys.size() == 2);
}

TEST_CASE("H8 C-8: a request that is aborted during its load is reported once, as received", "[connector][hazards]") {
  scheduler_harness harness(hf3fs_options());
  harness.begin_load("r", tokens_from(1, 100), 0, 4, blocks_from(0, 4));
  CHECK(harness.finish("r")); // its blocks are being written
  const auto meta = harness.build();
  REQUIRE(meta.finished.size() == 1);
  CHECK(meta.finished[0].received);
  CHECK(harness.state.tracked_requests() == 1);
  harness.report({.received = {"r"}});
  CHECK(harness.state.tracked_requests() == 0);
  CHECK_FALSE(has_finish(harness.build(), "r"));
}

TEST_CASE("C-2: requests share keys only if everything that determines their KV is the same", "[connector][hazards]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  const multimodal_item cat{20, 10, "cat"};
  const multimodal_item dog{20, 10, "dog"};
  const engine_request plain{.id = "plain", .tokens = {0, tokens}};
  auto with = [&](std::string_view id, auto change) {
    auto x = plain;
    x.id = id;
    change(x);
    harness.state.get_num_new_matched_tokens(x, 0, harness.now);
    return std::vector<key_digest>(harness.state.find(id)->keys().begin(), harness.state.find(id)->keys().end());
  };
  const auto base = with("plain", [](engine_request&) {});
  CHECK(with("again", [](engine_request&) {}) == base);
  CHECK(with("lora", [](engine_request& x) { x.lora = "adapter"; }).front() != base.front());
  CHECK(with("salt", [](engine_request& x) { x.cache_salt = "tenant"; }).front() != base.front());
  const auto with_cat = with("cat", [&](engine_request& x) { x.multimodal = {&cat, 1}; });
  const auto with_dog = with("dog", [&](engine_request& x) { x.multimodal = {&dog, 1}; });
  CHECK(with_cat[0] == with_dog[0]); // before the picture
  for (std::size_t i = 1; i < with_cat.size(); ++i)
    CHECK(with_cat[i] != with_dog[i]);
  auto elsewhere = hf3fs_options();
  elsewhere.ns = namespace_id{3, 4};
  scheduler_harness other(elsewhere);
  other.state.get_num_new_matched_tokens(plain, 0, other.now);
  CHECK(other.state.find("plain")->keys().front() != base.front());
}

TEST_CASE("C-6: the blocks of a resumed request replace the old ones", "[connector][hazards]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  harness.admit("r", tokens, blocks_from(0, 3));
  harness.all_stored(harness.run_new("r", blocks_from(0, 3), 0, 48).stores);
  harness.preempt("r");
  harness.admit("r", tokens, blocks_from(40, 7));
  const auto meta = harness.resume("r", blocks_from(40, 7), 0, 100);
  CHECK(std::ranges::equal(harness.state.find("r")->blocks(), blocks_from(40, 7)));
  REQUIRE(meta.stores.size() == 1);
  CHECK(meta.stores[0].first_page == 3);
  CHECK(meta.stores[0].blocks == std::vector<block_id>{43, 44, 45});
  // Also after a load, which had begun with fewer blocks.
  harness.all_stored(meta.stores);
  harness.preempt("r");
  const auto load = harness.begin_load("r", tokens, 0, 6, blocks_from(60, 6));
  CHECK(load.blocks == blocks_from(60, 6));
  harness.report({.received = {"r"}});
  harness.allocate("r", blocks_from(60, 7), 0);
  harness.resume("r", blocks_from(60, 7), 96, 4);
  CHECK(std::ranges::equal(harness.state.find("r")->blocks(), blocks_from(60, 7)));
}

TEST_CASE("C-10: a page that could not be stored is retried a bounded number of times", "[connector][hazards]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  harness.admit("r", tokens, blocks_from(0, 7));
  auto meta = harness.run_new("r", blocks_from(0, 7), 0, 100);
  REQUIRE(meta.stores.size() == 1);
  harness.report({.stores = {{meta.stores[0].id, {1, 0, 1, 1, 0, 0}}}});
  // Stored pages are known to be stored, and adjacent missing ones are stored together.
  meta = harness.run_on("r", {}, 100, 1);
  REQUIRE(meta.stores.size() == 2);
  CHECK(meta.stores[0].first_page == 1);
  CHECK(meta.stores[0].blocks == std::vector<block_id>{1});
  CHECK(meta.stores[0].parent == harness.state.find("r")->keys()[0]);
  CHECK(meta.stores[1].first_page == 4);
  CHECK(meta.stores[1].keys.size() == 2);
  // Stores in progress are not started again.
  CHECK(harness.run_on("r", {}, 101, 1).stores.empty());
  harness.report({.stores = {{meta.stores[0].id, {1}}, {meta.stores[1].id, {0, 0}}}});
  meta = harness.run_on("r", {}, 102, 1);
  REQUIRE(meta.stores.size() == 1);
  harness.report({.stores = {{meta.stores[0].id, {0, 0}}}});
  CHECK(harness.run_on("r", {}, 103, 1).stores.empty());
  CHECK_FALSE(harness.finish("r"));

  // Blocks that only the engine's prefix cache had are stored like those that were computed.
  harness.ask("shared", tokens, 96);
  harness.answer(2);
  harness.ask("shared", tokens, 96);
  harness.allocate("shared", blocks_from(0, 7), 0);
  meta = harness.run_new("shared", blocks_from(0, 7), 96, 4);
  REQUIRE(meta.stores.size() == 1);
  CHECK(meta.stores[0].first_page == 2);
  CHECK(meta.stores[0].keys.size() == 4);
}

TEST_CASE("C-10: a page that could not be loaded is stored again", "[connector][hazards]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  harness.begin_load("r", tokens, 0, 5, blocks_from(0, 5));
  // One worker reports the failure before the other has ended.
  harness.report({.load_errors = {3}});
  harness.report({.received = {"r"}});
  const auto events = harness.state.take_events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].what == cache_event::kind::removed);
  CHECK(events[0].keys == std::vector<key_digest>{harness.state.find("r")->keys()[3]});
  harness.allocate("r", blocks_from(0, 7), 0);
  const auto meta = harness.run_new("r", blocks_from(0, 7), 48, 52);
  REQUIRE(meta.stores.size() == 2);
  CHECK(meta.stores[0].first_page == 3);
  CHECK(meta.stores[0].keys.size() == 1);
  CHECK(meta.stores[1].first_page == 5);
}

TEST_CASE("connector hazards: a load that failed from its first block on is retried a bounded number of times",
          "[connector][hazards]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  harness.begin_load("r", tokens, 0, 5, blocks_from(0, 5));
  harness.report({.received = {"r"}, .load_errors = blocks_from(0, 5)});
  // The engine has nothing of it and asks again.
  CHECK(harness.ask("r", tokens) == matched_tokens{0, false});
  CHECK(harness.lookups.empty());
  harness.allocate("r", blocks_from(10, 7), 0);
  const auto meta = harness.run_new("r", blocks_from(10, 7), 0, 100);
  CHECK(meta.loads.empty());
  REQUIRE(meta.stores.size() == 1);
  CHECK(meta.stores[0].blocks == blocks_from(10, 6));
}

TEST_CASE("C-11: a hook never blocks, and each request is looked up once", "[connector][hazards]") {
  auto options = hf3fs_options();
  options.lookups_max = 2;
  options.lookup_keys_max = 4;
  scheduler_harness harness(options);
  const auto tokens = tokens_from(1, 200); // 12 pages to look up, in three parts
  for (const auto* id : {"a", "b", "c"})
    for (int i = 0; i < 3; ++i)
      CHECK_FALSE(harness.ask(id, tokens).tokens.has_value());
  CHECK(harness.lookups_sent == 2); // the third waits for room
  harness.answer(4);                // a: more may follow
  REQUIRE(harness.lookups.size() == 2);
  CHECK_FALSE(harness.ask("a", tokens).tokens.has_value());
  harness.answer(1); // b: no further key
  CHECK(harness.ask("b", tokens) == matched_tokens{16, true});
  CHECK_FALSE(harness.ask("c", tokens).tokens.has_value());
  harness.answer(4);                 // a
  harness.refuse(errc::unreachable); // c
  CHECK(harness.ask("c", tokens) == matched_tokens{0, false});
  harness.answer(0); // a: the keys found in earlier parts count
  CHECK(harness.ask("a", tokens) == matched_tokens{128, true});
  CHECK(harness.state.leases_held() == 3);
}

TEST_CASE("C-12: a request whose tokens do not determine its KV is ignored", "[connector][hazards]") {
  scheduler_harness harness(hf3fs_options());
  CHECK(harness.state.get_num_new_matched_tokens({.id = "r", .tokens = {}, .cacheable = false}, 0, harness.now) ==
        matched_tokens{0, false});
  harness.allocate("r", blocks_from(0, 7), 0);
  CHECK(harness.run_new("r", blocks_from(0, 7), 0, 100).empty());
  CHECK_FALSE(harness.finish("r"));
  CHECK(harness.state.tracked_requests() == 0);
}

TEST_CASE("C-22: pages in the store are not stored again", "[connector][hazards]") {
  scheduler_harness harness(hf3fs_options());
  harness.begin_load("r", tokens_from(1, 100), 32, 6, blocks_from(0, 7));
  harness.report({.received = {"r"}});
  harness.allocate("r", blocks_from(0, 7), 0);
  CHECK(harness.run_new("r", blocks_from(0, 7), 96, 4).stores.empty());
}

TEST_CASE("connector hazards: a request keeps its blocks until all of its stores are reported", "[connector]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  harness.admit("r", tokens, blocks_from(0, 7));
  const auto first = harness.run_new("r", blocks_from(0, 7), 0, 64);
  const auto second = harness.run_on("r", {}, 64, 36);
  harness.all_stored(first.stores);
  CHECK(harness.finish("r")); // the second store is in progress
  const auto meta = harness.build();
  REQUIRE(meta.finished.size() == 1);
  CHECK_FALSE(meta.finished[0].received);
  harness.all_stored(second.stores);
  CHECK(harness.state.tracked_requests() == 1);
  harness.report({.sent = {"r"}});
  CHECK(harness.state.tracked_requests() == 0);
}

TEST_CASE("connector hazards: invalid reports change nothing and end nothing", "[connector]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  harness.begin_load("r", tokens, 0, 4, blocks_from(0, 4));
  harness.begin_load("other", tokens, 0, 4, blocks_from(10, 4));
  CHECK(harness.finish("r"));
  harness.report({.sent = {"r"}}); // in the wrong list
  harness.report({.sent = {"r"}, .received = {"r"}});
  harness.report({.sent = {"unknown"}, .received = {"unknown"}, .load_errors = {0, 11, 99}, .stores = {{77, {1}}}});
  CHECK(harness.state.tracked_requests() == 1);
  harness.report({.received = {"other"}});
  harness.report({.received = {"other"}});
  CHECK_FALSE(harness.finish("other"));
  CHECK(harness.state.tracked_requests() == 0);
  CHECK(harness.state.leases_held() == 0);
}

TEST_CASE("connector hazards: with several workers a page is stored when all of them have stored it", "[connector]") {
  auto options = hf3fs_options();
  options.workers = 4;
  options.writers = 3;
  scheduler_harness harness(options);
  const auto tokens = tokens_from(1, 60);
  harness.admit("r", tokens, blocks_from(0, 4));
  const auto id = harness.run_new("r", blocks_from(0, 4), 0, 60).stores.at(0).id;
  harness.report({.stores = {{id, {1, 1, 1}}, {id, {1, 0, 1}}}});
  CHECK(harness.state.take_events().empty());
  harness.report({.stores = {{id, {1, 1, 1}}}});
  const auto events = harness.state.take_events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].what == cache_event::kind::stored);
  CHECK(events[0].keys.size() == 1);
  CHECK(events[1].parent == harness.state.find("r")->keys()[1]);
  const auto again = harness.run_on("r", {}, 60, 1);
  REQUIRE(again.stores.size() == 1);
  CHECK(again.stores[0].first_page == 1);
}

TEST_CASE("connector hazards: after a reset no earlier page is found, and running requests are not saved",
          "[connector]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  harness.ask("old", tokens);
  harness.answer(4);
  const auto before = harness.state.find("old")->keys()[0];
  CHECK(harness.state.reset_cache());
  CHECK(harness.ask("old", tokens) == matched_tokens{0, false});
  CHECK(harness.released.size() == 1);
  harness.allocate("old", blocks_from(0, 7), 0);
  CHECK(harness.run_new("old", blocks_from(0, 7), 0, 100).stores.empty());
  harness.ask("new", tokens);
  CHECK(harness.state.find("new")->keys()[0] != before);
  CHECK(harness.state.take_events().at(0).what == cache_event::kind::all_cleared);
  CHECK_FALSE(harness.finish("old"));
}

TEST_CASE("connector hazards: a request with non-consecutive tokens is ignored", "[connector]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  harness.admit("r", tokens, blocks_from(0, 20));
  const auto later_tokens = tokens_from(200, 50);
  CHECK(harness.run_on("r", {}, 0, 200, {150, later_tokens}).stores.empty());
  CHECK_FALSE(harness.state.find("r")->usable());
}

TEST_CASE("connector hazards: prompts only: generated tokens are not stored", "[connector]") {
  auto options = hf3fs_options();
  options.save_generated = false;
  scheduler_harness harness(options);
  const auto tokens = tokens_from(1, 100);
  harness.admit("r", tokens, blocks_from(0, 7));
  CHECK(harness.run_new("r", blocks_from(0, 7), 0, 100).stores.at(0).keys.size() == 6);
  const auto more = tokens_from(101, 100);
  CHECK(harness.run_on("r", blocks_from(7, 6), 100, 100, {100, more}).stores.empty());
}

} // namespace troupe::test::connector_hazards_test
