#include "tests/catch.hpp"
#include "tests/unit/connector_support.hpp"

#include <algorithm>

/// The scheduler half with requests that arrive, with loads within a step, and with loads that do not pay off.

namespace troupe::test::connector_synchronous_test {

namespace {

using connector::hit_sources;
using phase = connector::request_tracker::phase;

scheduler_options synchronous_options(std::uint32_t workers = 1) {
  auto out = hf3fs_options();
  out.synchronous_loads = true;
  out.workers = out.writers = workers;
  return out;
}

/// 100 tokens, of which 6 pages are full and 4 are in the cache; the request runs in the step that loads them.
load_op run_with_load(scheduler_harness& harness, std::string_view id = "r") {
  const auto tokens = tokens_from(1, 100);
  harness.ask(id, tokens);
  harness.answer(4);
  REQUIRE(harness.ask(id, tokens) == matched_tokens{64, false});
  harness.allocate(id, blocks_from(10, 7), 64);
  const auto meta = harness.run_new(id, blocks_from(10, 7), 64, 36);
  REQUIRE(meta.loads.size() == 1);
  REQUIRE(meta.loads[0].synchronous());
  // Tokens of the step may be computed from unfilled blocks.
  CHECK(meta.stores.empty());
  return meta.loads[0];
}

worker_output outcome(const load_op& load, std::vector<std::uint8_t> filled) {
  worker_output out;
  out.stores.push_back({load.id, std::move(filled)});
  return out;
}

} // namespace

TEST_CASE("connector synchronous: a lookup begins when the request arrives, once", "[connector]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  harness.arrive("r", tokens);
  CHECK(harness.lookups_sent == 1);
  harness.arrive("r", tokens);
  CHECK(harness.lookups_sent == 1);
  harness.answer(4);
  CHECK(harness.ask("r", tokens) == matched_tokens{64, true});
  CHECK(harness.lookups_sent == 1);

  // With nothing to find no lookup is sent.
  harness.arrive("short", tokens_from(1, 16));
  harness.state.on_new_request({.id = "embedded", .tokens = {0, tokens}, .cacheable = false}, harness.now);
  CHECK(harness.state.outbox_empty());
  CHECK(harness.lookups_sent == 1);
  CHECK(harness.state.find("embedded") == nullptr);
}

TEST_CASE("connector synchronous: a request beyond the early lookup limit is looked up when the engine asks",
          "[connector]") {
  auto options = hf3fs_options();
  options.early_lookups_max = 1;
  scheduler_harness harness(options);
  const auto tokens = tokens_from(1, 100);
  harness.arrive("first", tokens);
  harness.arrive("second", tokens);
  CHECK(harness.lookups_sent == 1);
  CHECK(harness.state.tracked_requests() == 2);
  CHECK_FALSE(harness.ask("second", tokens).tokens.has_value());
  CHECK(harness.lookups_sent == 2);
  // The same holds for an engine that has announced the request completely.
  harness.arrive("third", tokens);
  CHECK(harness.lookups_sent == 2);
  const auto asked = harness.state.get_num_new_matched_tokens({.id = "third", .tokens = {100, {}}}, 0, harness.now);
  CHECK_FALSE(asked.tokens.has_value());
  CHECK_FALSE(harness.state.outbox_empty());
}

TEST_CASE("connector synchronous: a request that arrives and ends at once holds nothing", "[connector]") {
  scheduler_harness harness(hf3fs_options());
  harness.arrive("r", tokens_from(1, 100));
  harness.answer(4);
  CHECK(harness.state.leases_held() == 1);
  CHECK_FALSE(harness.finish("r"));
  CHECK(harness.released.size() == 1);
  CHECK(harness.state.tracked_requests() == 0);
}

TEST_CASE("connector synchronous: a lookup result that is too old when the engine asks is looked up again",
          "[connector]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  harness.arrive("r", tokens);
  harness.answer(4);
  harness.now += std::chrono::minutes(5);
  CHECK_FALSE(harness.ask("r", tokens).tokens.has_value());
  CHECK(harness.lookups_sent == 2);
  harness.answer(4);
  CHECK(harness.ask("r", tokens) == matched_tokens{64, true});
}

TEST_CASE("connector synchronous: hits below the minimum number of tokens are computed", "[connector]") {
  auto options = hf3fs_options();
  options.min_load_tokens = 48;
  scheduler_harness harness(options);
  const auto tokens = tokens_from(1, 100);
  harness.ask("r", tokens);
  harness.answer(4);
  CHECK(harness.ask("r", tokens, 32) == matched_tokens{0, false}); // 32 are left
  CHECK(harness.ask("r", tokens, 16) == matched_tokens{48, true});
  CHECK(harness.ask("r", tokens, 32) == matched_tokens{0, false});
  harness.allocate("r", blocks_from(0, 7), 0);
  CHECK(harness.state.leases_held() == 0);
  // They are in the cache and not saved again.
  const auto stores = harness.run_new("r", blocks_from(0, 7), 32, 68).stores;
  REQUIRE(stores.size() == 1);
  CHECK(stores[0].first_page == 4);
}

TEST_CASE("connector synchronous: a synchronous load ends with the output of its step", "[connector]") {
  scheduler_harness harness(synchronous_options(2));
  const auto load = run_with_load(harness);
  CHECK(load.keys.size() == 4);
  CHECK(load.blocks == blocks_from(10, 4));
  CHECK(harness.state.leases_held() == 1);
  harness.report(outcome(load, {1, 1, 1, 1}));
  CHECK(harness.state.find("r")->current_phase() == phase::loading); // of two workers
  CHECK(harness.run_on("r", {}, 100, 1).stores.empty());
  harness.report(outcome(load, {1, 1, 1, 1}));
  CHECK(harness.state.find("r")->current_phase() == phase::active);
  CHECK(harness.state.leases_held() == 0);
  // The pages that the step has computed are saved now.
  const auto stores = harness.run_on("r", {}, 101, 1).stores;
  REQUIRE(stores.size() == 1);
  CHECK(stores[0].first_page == 4);
  CHECK(stores[0].keys.size() == 2);
}

TEST_CASE("connector synchronous: pages that a synchronous load did not fill are computed and saved", "[connector]") {
  scheduler_harness harness(synchronous_options(2));
  const auto load = run_with_load(harness);
  auto first = outcome(load, {1, 1, 1, 0});
  first.load_errors = {13};
  harness.report(first);
  harness.report(outcome(load, {1, 0, 1, 1}));
  const auto events = harness.state.take_events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].what == cache_event::kind::removed);
  CHECK(events[0].keys == std::vector<key_digest>{load.keys[1]});
  CHECK(events[1].keys == std::vector<key_digest>{load.keys[3]});
  // The engine returns to the first missing block.
  auto stores = harness.run_on("r", {}, 16, 84).stores;
  REQUIRE(stores.size() == 2);
  CHECK(stores[0].first_page == 1);
  CHECK(stores[0].keys.size() == 1);
  CHECK(stores[1].first_page == 3);
  CHECK(stores[1].keys.size() == 3);
}

TEST_CASE("connector synchronous: pages that a worker does not report in a synchronous load count as not loaded",
          "[connector]") {
  scheduler_harness harness(synchronous_options());
  const auto load = run_with_load(harness);
  harness.report(outcome(load, {1}));
  const auto events = harness.state.take_events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].keys.size() == 3);
}

TEST_CASE("connector synchronous: a request may end in the step of its synchronous load", "[connector]") {
  scheduler_harness harness(synchronous_options());
  const auto load = run_with_load(harness);
  // One token was all it wanted: the engine finishes it before it passes on the output.
  CHECK_FALSE(harness.finish("r"));
  CHECK(harness.state.leases_held() == 1); // a worker may still be loading
  harness.report(outcome(load, {1, 1, 1, 1}));
  CHECK(harness.state.leases_held() == 0);
  CHECK(harness.state.tracked_requests() == 0);
  CHECK(harness.build().finished.empty());
}

TEST_CASE("connector synchronous: a request that is preempted during its synchronous load is looked up again",
          "[connector]") {
  scheduler_harness harness(synchronous_options());
  const auto load = run_with_load(harness);
  harness.preempt("r");
  const auto tokens = tokens_from(1, 101);
  CHECK_FALSE(harness.ask("r", tokens).tokens.has_value());
  harness.report(outcome(load, {0, 0, 0, 0})); // of blocks that were freed
  CHECK(harness.state.take_events().empty());
  harness.answer(4);
  CHECK(harness.ask("r", tokens) == matched_tokens{64, false});
  harness.allocate("r", blocks_from(30, 7), 64);
  const auto again = harness.resume("r", blocks_from(30, 7), 64, 37).loads;
  REQUIRE(again.size() == 1);
  CHECK(again[0].id != load.id);
  harness.report(outcome(again[0], {1, 1, 1, 1}));
  CHECK(harness.state.find("r")->current_phase() == phase::active);
  CHECK(harness.state.leases_held() == 0);
}

TEST_CASE("H1: a request that is preempted between steps and ends has its saves cancelled", "[connector][hazards]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  harness.admit("r", tokens, blocks_from(0, 7));
  const auto stores = harness.run_new("r", blocks_from(0, 7), 0, 100).stores;
  REQUIRE(stores.size() == 1);
  // Its blocks are free: it was preempted with all others and then aborted, all before the next step.
  CHECK(harness.finish("r"));
  const auto meta = harness.preempt("r");
  CHECK(meta.preempted == std::vector<session_id>{stores[0].session});
  REQUIRE(meta.finished.size() == 1);
  CHECK(meta.finished[0].session == stores[0].session);
}

TEST_CASE("connector synchronous: a request that is preempted and resumed in the same step keeps its new blocks",
          "[connector]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  harness.admit("r", tokens, blocks_from(0, 7));
  const auto before = harness.run_new("r", blocks_from(0, 7), 0, 100).stores;
  REQUIRE(before.size() == 1);
  // The lookup comes before the preemption is reported.
  CHECK_FALSE(harness.ask("r", tokens).tokens.has_value());
  harness.answer(0);
  CHECK(harness.ask("r", tokens) == matched_tokens{0, false});
  harness.allocate("r", blocks_from(20, 7), 0);
  const std::string_view id = "r";
  const auto kept = blocks_from(20, 7);
  const scheduled_request again{
      .id = id, .computed_tokens = 0, .scheduled_tokens = 100, .blocks = kept, .resumed = true};
  const auto meta = harness.build({.cached_requests = {&again, 1}, .preempted = {&id, 1}});
  CHECK(meta.preempted == std::vector<session_id>{before[0].session});
  CHECK(std::ranges::equal(harness.state.find("r")->blocks(), kept));
}

TEST_CASE("connector synchronous: the pages of a load that failed on any worker count as not loaded", "[connector]") {
  scheduler_harness harness(hf3fs_options());
  const auto tokens = tokens_from(1, 100);
  const auto load = harness.begin_load("r", tokens, 0, 4, blocks_from(0, 7));
  worker_output out;
  SECTION("without a report of blocks") {
    out.failed = out.received = {"r"};
    harness.report(out);
    const auto events = harness.state.take_events();
    REQUIRE(events.size() == 1);
    CHECK(events[0].keys == load.keys);
  }
  SECTION("with a report of blocks") {
    out.failed = out.received = {"r"};
    out.load_errors = {2};
    harness.report(out);
    const auto events = harness.state.take_events();
    REQUIRE(events.size() == 1);
    CHECK(events[0].keys == std::vector<key_digest>{load.keys[2]});
  }
}

TEST_CASE("connector synchronous: sources of hits add up to the requested tokens", "[connector]") {
  scheduler_harness harness(hf3fs_options());
  CHECK(harness.state.get_external_cache_hit_sources("r", 64) == hit_sources{.unknown = 64});
}

} // namespace troupe::test::connector_synchronous_test
