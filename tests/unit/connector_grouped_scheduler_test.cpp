#include "tests/catch.hpp"
#include "tests/unit/grouped_scheduler_support.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace connector_grouped_scheduler_test {

using namespace troupe;
using namespace troupe::connector;
using namespace troupe::test::groups;

using std::chrono::seconds;

TEST_CASE("connector grouped scheduler: a lookup asks for all groups, and waits for all answers",
          "[connector][groups]") {
  harness x(three_groups());
  CHECK_FALSE(x.ask("a", 13).tokens);
  REQUIRE(x.lookups.size() == 3);
  CHECK(x.lookups[0].work.each);
  CHECK(x.lookups[0].work.keys.size() == 3);
  // The engine's name of the request goes with each, so that the node can explain them by it.
  for (const auto& lookup : x.lookups)
    CHECK(lookup.work.request == "a");
  x.answer(0, {1, 1, 1});
  x.answer(2, {1, 1, 1});
  CHECK_FALSE(x.ask("a", 13).tokens);
  x.answer(1, {1, 1, 1});
  CHECK(x.ask("a", 13) == matched_tokens{12, true});
}

TEST_CASE("connector grouped scheduler: the page of the last token is not looked up", "[connector][groups]") {
  harness x(two_groups());
  x.ask("a", 12);
  REQUIRE(x.lookups.size() == 2);
  CHECK(x.lookups[0].work.keys.size() == 2);
  CHECK(x.ask("b", 4) == matched_tokens{0, false});
}

TEST_CASE("connector grouped scheduler: only the pages of the hit stay leased, in each group", "[connector][groups]") {
  harness x(three_groups());
  x.ask("a", 17);
  x.answer(0, {1, 1, 1, 1});
  x.answer(1, {1, 1, 0, 1});
  x.answer(2, {1, 1, 0, 0});
  CHECK(x.ask("a", 17) == matched_tokens{8, true});
  REQUIRE(x.retained.size() == 3);
  CHECK(x.retained[0].keys.size() == 2);
  CHECK(x.retained[1].keys.size() == 1); // the last 4 tokens of 8 are page 1
  CHECK(x.retained[2].keys.size() == 1);
  CHECK(x.retained[1].keys.front() == x.retained[0].keys.back());
  CHECK(x.releases.empty());
}

TEST_CASE("connector grouped scheduler: a lookup that finds nothing of use keeps no lease", "[connector][groups]") {
  harness x(three_groups());
  x.ask("a", 13);
  x.answer(0, {1, 1, 1});
  x.answer(1, {1, 1, 1});
  x.answer(2, {});
  CHECK(x.ask("a", 13) == matched_tokens{0, false});
  CHECK(x.releases.size() == 2);
  CHECK(x.state.leases_held() == 0);
}

TEST_CASE("connector grouped scheduler: an answer that comes too late is not used, and its lease released",
          "[connector][groups]") {
  harness x(two_groups());
  x.ask("a", 13);
  x.answer(0, {1, 1, 1});
  x.now += seconds(5);
  CHECK(x.ask("a", 13) == matched_tokens{0, false});
  x.answer(1, {1, 1, 1});
  CHECK(x.releases.size() == 2);
}

TEST_CASE("connector grouped scheduler: a hit is looked up again when its lease may have expired",
          "[connector][groups]") {
  harness x(two_groups());
  x.ask("a", 13);
  x.answer(0, {1, 1, 1}, seconds(4));
  x.answer(1, {1, 1, 1});
  CHECK(x.ask("a", 13) == matched_tokens{12, true});
  x.now += seconds(3);
  CHECK_FALSE(x.ask("a", 13).tokens);
  CHECK(x.releases.size() == 2);
  CHECK(x.lookups.size() == 2);
}

TEST_CASE("connector grouped scheduler: an answer whose lease has expired before the engine asks makes no hit",
          "[connector][groups]") {
  harness x(two_groups());
  x.ask("a", 13);
  x.answer(0, {1, 1, 1}, seconds(4));
  x.answer(1, {1, 1, 1});
  x.now += seconds(3);
  CHECK_FALSE(x.ask("a", 13).tokens);
  CHECK(x.releases.size() == 2);
  CHECK(x.state.leases_held() == 0);
}

TEST_CASE("connector grouped scheduler: each group loads what the hit needs into the blocks that the engine has for it",
          "[connector][groups]") {
  harness x(three_groups());
  const auto meta = x.load_twelve("a");
  REQUIRE(meta.loads.size() == 3);
  CHECK(meta.loads[0].keys.size() == 3);
  CHECK(meta.loads[0].blocks == std::vector<block_id>{3, 4, 5, 6, 7, 8});
  CHECK(meta.loads[1].group == 1);
  CHECK(meta.loads[1].blocks == std::vector<block_id>{1, 2});
  CHECK(meta.loads[1].keys.front() == meta.loads[0].keys.back());
  CHECK(meta.loads[2].blocks == std::vector<block_id>{9});
}

TEST_CASE("connector grouped scheduler: blocks that the engine has computed are not loaded", "[connector][groups]") {
  harness x(two_groups());
  x.ask("a", 13, 4);
  x.answer(0, {1, 1, 1});
  x.answer(1, {0, 0, 1});
  REQUIRE(x.ask("a", 13, 4) == matched_tokens{8, true});
  x.allocate("a", {{none, none, none, none, 1, 2}, {none, none, 5, 6, 7, 8}}, 8);
  const auto meta = x.build();
  REQUIRE(meta.loads.size() == 2);
  CHECK(meta.loads[0].keys.size() == 2);
  CHECK(meta.loads[0].blocks == std::vector<block_id>{5, 6, 7, 8});
  CHECK(meta.loads[1].blocks == std::vector<block_id>{1, 2});
}

TEST_CASE("connector grouped scheduler: a page that was not loaded is left out of later hits of its request",
          "[connector][groups]") {
  harness x(three_groups());
  const auto meta = x.load_twelve("a");
  x.report({.received = {"a"},
            .stores = {{meta.loads[0].id, {1, 1, 1}}, {meta.loads[1].id, {0}}, {meta.loads[2].id, {1}}},
            .failed = {"a"}});
  CHECK(x.state.leases_held() == 0);
  CHECK_FALSE(x.ask("a", 13).tokens);
  x.answer(0, {1, 1, 1});
  x.answer(1, {1, 1, 1});
  x.answer(2, {1, 1, 1});
  CHECK(x.ask("a", 13) == matched_tokens{8, true});
  // Others may have it loaded.
  x.ask("b", 13);
  x.answer(0, {1, 1, 1});
  x.answer(1, {1, 1, 1});
  x.answer(2, {1, 1, 1});
  CHECK(x.ask("b", 13) == matched_tokens{12, true});
}

TEST_CASE("connector grouped scheduler: a page that the node could not be asked for is tried again",
          "[connector][groups]") {
  auto options = three_groups();
  options.workers = 2;
  harness x(options);
  const auto meta = x.load_twelve("a");
  // The first worker says of one page that the node was unreachable, the second of another one that it is damaged.
  x.report({.stores = {{meta.loads[0].id, {1, 2, 1}}, {meta.loads[1].id, {2}}, {meta.loads[2].id, {1}}}});
  const bool damaged = GENERATE(false, true);
  x.report({.received = {"a"},
            .stores = {{meta.loads[0].id, {1, 1, 1}},
                       {meta.loads[1].id, {static_cast<std::uint8_t>(damaged ? 0 : 1)}},
                       {meta.loads[2].id, {2}}},
            .failed = {"a"}});
  CHECK_FALSE(x.ask("a", 13).tokens);
  x.answer(0, {1, 1, 1});
  x.answer(1, {1, 1, 1});
  x.answer(2, {1, 1, 1});
  CHECK(x.ask("a", 13) == matched_tokens{damaged ? 8U : 12U, true});
}

TEST_CASE(
    "connector grouped scheduler: a page that is damaged on one worker is not tried again, whatever the others say",
    "[connector][groups]") {
  auto options = three_groups();
  options.workers = 2;
  harness x(options);
  const auto meta = x.load_twelve("a");
  x.report({.stores = {{meta.loads[0].id, {1, 1, 0}}, {meta.loads[1].id, {2}}, {meta.loads[2].id, {2}}}});
  x.report({.received = {"a"},
            .stores = {{meta.loads[0].id, {2, 2, 2}}, {meta.loads[1].id, {2}}, {meta.loads[2].id, {2}}},
            .failed = {"a"}});
  x.ask("a", 13);
  x.answer(0, {1, 1, 1});
  x.answer(1, {1, 1, 1});
  x.answer(2, {1, 1, 1});
  CHECK(x.ask("a", 13) == matched_tokens{8, true});
}

TEST_CASE("connector grouped scheduler: a save of which a worker says no more than that it was not tried has failed",
          "[connector][groups]") {
  harness x(two_groups());
  x.ask("a", 13);
  x.answer(0, {});
  x.answer(1, {});
  x.ask("a", 13);
  x.allocate("a", {}, 0);
  const auto meta = x.run("a", {{1, 2, 3, 4}, {5, 6, 7, 8}}, 0, 8, 13);
  REQUIRE(meta.stores.size() == 2);
  x.report({.stores = {{meta.stores[0].id, {2, 1}}, {meta.stores[1].id, {1, 1}}}});
  const auto events = x.state.take_events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].first_page == 1);
}

TEST_CASE("connector grouped scheduler: a request is not loaded again and again", "[connector][groups]") {
  harness x(three_groups());
  for (int i = 0; i < 3; ++i) {
    x.load_twelve("a");
    x.report({.received = {"a"}, .failed = {"a"}}); // not a word of which page
  }
  CHECK(x.ask("a", 13) == matched_tokens{0, false});
  CHECK(x.lookups.empty());
}

TEST_CASE(
    "connector grouped scheduler: pages are saved by the step that completes them, and their blocks held until then",
    "[connector][groups]") {
  harness x(two_groups());
  x.ask("a", 13);
  x.answer(0, {});
  x.answer(1, {});
  CHECK(x.ask("a", 13) == matched_tokens{0, false});
  x.allocate("a", {}, 0);
  const auto meta = x.run("a", {{1, 2, 3, 4}, {5, 6, 7, 8}}, 0, 8, 13);
  REQUIRE(meta.stores.size() == 2);
  CHECK(meta.stores[0].blocks == std::vector<block_id>{5, 6, 7, 8});
  CHECK(meta.stores[0].chained);
  CHECK(meta.stores[1].blocks == std::vector<block_id>{1, 2, 3, 4});
  CHECK_FALSE(meta.stores[1].chained);
  CHECK(x.state.take_block_holds().hold.size() == 8);
  CHECK_FALSE(x.state.request_finished("a")); // nothing keeps its blocks but the holds
  x.report({.stores = {{meta.stores[0].id, {1, 1}}}});
  CHECK(x.state.take_block_holds().release == meta.stores[0].blocks);
  x.report({.stores = {{meta.stores[1].id, {0, 0}}}});
  CHECK(x.state.take_block_holds().release == meta.stores[1].blocks);
  CHECK(x.state.open_transfers() == 0);
  CHECK(x.state.tracked_requests() == 0);
}

TEST_CASE("connector grouped scheduler: drafts are in no page, whether they are accepted or not",
          "[connector][groups]") {
  harness x(two_groups());
  x.ask("a", 7);
  x.answer(0, {});
  x.answer(1, {});
  CHECK(x.ask("a", 7) == matched_tokens{0, false});
  x.allocate("a", {}, 0);
  CHECK(x.run("a", {{1, 2, 3, 4}, {5, 6, 7, 8}}, 0, 7, 7).stores.size() == 2);
  // The last token of a page and five drafts, which go over the end of the next page.
  auto meta = x.run("a", {{9, 10}, {11, 12}}, 7, 6, 8, false);
  REQUIRE(meta.stores.size() == 2);
  CHECK(meta.stores[0].first_page == 1);
  CHECK(meta.stores[0].keys.size() == 1);
  CHECK(meta.stores[0].blocks == std::vector<block_id>{7, 8});
  CHECK(meta.stores[1].blocks == std::vector<block_id>{3, 4});
  // Two of them are accepted, then none. An engine that schedules ahead has counted them before.
  CHECK(x.run("a", {{}, {}}, 13, 6, 11, false).stores.empty());
  CHECK(x.run("a", {{}, {}}, 10, 6, 11, false).stores.empty());
  // The last token of their page is known.
  meta = x.run("a", {{}, {}}, 11, 6, 12, false);
  REQUIRE(meta.stores.size() == 2);
  CHECK(meta.stores[0].first_page == 2);
  CHECK(meta.stores[0].blocks == std::vector<block_id>{11, 12});
}

TEST_CASE("connector grouped scheduler: pages that were found behind the hit are saved again", "[connector][groups]") {
  harness x(three_groups());
  x.ask("a", 17);
  x.answer(0, {1, 1, 1, 0});
  x.answer(1, {1, 1, 1, 1});
  x.answer(2, {0, 1, 0, 0});
  REQUIRE(x.ask("a", 17) == matched_tokens{8, true});
  x.allocate("a", {{none, none, 1, 2}, {3, 4, 5, 6}, {none, 7}}, 8);
  const auto loads = x.build().loads;
  REQUIRE(loads.size() == 3);
  x.report({.received = {"a"}, .stores = {{loads[0].id, {1, 1}}, {loads[1].id, {1}}, {loads[2].id, {1}}}});
  const auto meta =
      x.run("a", {{none, none, 1, 2, 11, 12, 13, 14}, {3, 4, 5, 6, 15, 16, 17, 18}, {none, 7, none, 19}}, 8, 8, 17);
  // No lease holds what was found there, and it may be evicted first.
  REQUIRE(meta.stores.size() == 2);
  CHECK(meta.stores[0].blocks == std::vector<block_id>{15, 16, 17, 18});
  CHECK(meta.stores[1].blocks == std::vector<block_id>{11, 12, 13, 14});
  for (const auto& store : meta.stores)
    x.report({.stores = {{store.id, {1, 1}}}});
  CHECK(x.state.open_transfers() == 0);
}

TEST_CASE("connector grouped scheduler: a page of a window that has moved on is not saved any more",
          "[connector][groups]") {
  harness x(two_groups());
  const auto first = x.run("a", {{1, 2, 3, 4}, {5, 6, 7, 8}}, 0, 8, 17);
  CHECK(first.stores.empty()); // not known yet
  x.ask("a", 17);
  x.answer(0, {});
  x.answer(1, {});
  x.ask("a", 17);
  x.allocate("a", {}, 0);
  const auto meta = x.run("a", {{1, 2, 3, 4}, {5, 6, 7, 8}}, 0, 8, 17);
  REQUIRE(meta.stores.size() == 2);
  x.report({.stores = {{meta.stores[0].id, {0, 0}}, {meta.stores[1].id, {0, 0}}}});
  // Token 8 is next: the last 4 before it are page 1.
  const auto next = x.run("a", {{9, 10}, {11, 12}}, 8, 4, 17, false);
  REQUIRE(next.stores.size() == 2);
  CHECK(next.stores[0].blocks == std::vector<block_id>{5, 6, 7, 8, 11, 12});
  CHECK(next.stores[1].blocks == std::vector<block_id>{3, 4, 9, 10});
}

TEST_CASE(
    "connector grouped scheduler: what is computed again after a preemption can be saved, whatever had been freed",
    "[connector][groups]") {
  auto options = two_groups();
  options.groups[1].tokens = 2;
  harness x(options);
  x.ask("a", 13);
  x.answer(0, {});
  x.answer(1, {});
  x.ask("a", 13);
  x.allocate("a", {}, 0);
  // Page 0 is completed by a step in which its first block is not in the window's table any more.
  auto meta = x.run("a", {{1, 2, 3}, {4, 5, 6}}, 0, 3, 13);
  CHECK(meta.stores.empty());
  meta = x.run("a", {{none, 2, 3}, {4, 5, 6}}, 3, 3, 13, true);
  REQUIRE(meta.stores.size() == 1);
  CHECK(meta.stores[0].group == 0);
  const std::string_view name = "a";
  x.build({.preempted = {&name, 1}});
  CHECK_FALSE(x.ask("a", 13).tokens);
  x.answer(0, {});
  x.answer(1, {});
  x.ask("a", 13);
  x.allocate("a", {}, 0);
  meta = x.run("a", {{1, 2, 3}, {4, 5, 6}}, 0, 6, 13);
  REQUIRE(meta.stores.size() == 1);
  CHECK(meta.stores[0].group == 1);
  CHECK(meta.stores[0].blocks == std::vector<block_id>{1, 2});
}

TEST_CASE("connector grouped scheduler: a state is saved where it is offered, and not out of the tables",
          "[connector][groups]") {
  harness x(three_groups());
  x.ask("a", 13);
  x.answer(0, {});
  x.answer(1, {});
  x.answer(2, {});
  x.ask("a", 13);
  x.allocate("a", {}, 0);
  auto meta = x.run("a", {{1, 2}, {3, 4}, {5}}, 0, 4, 13);
  CHECK(meta.stores.size() == 2);
  meta = x.run("a", {{6, 7}, {8, 9}, {10}}, 4, 4, 13, false, {{2, 10, 8}});
  REQUIRE(meta.stores.size() == 3);
  CHECK(meta.stores[2].group == 2);
  CHECK(meta.stores[2].first_page == 1);
  CHECK(meta.stores[2].blocks == std::vector<block_id>{10});
  CHECK(meta.stores[2].keys.front() == meta.stores[0].keys.front());
}

TEST_CASE("connector grouped scheduler: a request that finishes during its load keeps its blocks until it is received",
          "[connector][groups]") {
  harness x(three_groups());
  x.load_twelve("a");
  CHECK(x.state.request_finished("a"));
  const auto meta = x.build();
  REQUIRE(meta.finished.size() == 1);
  CHECK(meta.finished[0].received);
  x.report({.received = {"a"}});
  CHECK(x.state.tracked_requests() == 0);
  CHECK(x.state.leases_held() == 0);
}

TEST_CASE("connector grouped scheduler: a hit that the engine does not use is released", "[connector][groups]") {
  harness x(two_groups());
  x.ask("a", 13);
  x.answer(0, {1, 1, 1});
  x.answer(1, {1, 1, 1});
  REQUIRE(x.ask("a", 13) == matched_tokens{12, true});
  x.allocate("a", {}, 0);
  CHECK(x.releases.size() == 2);
  CHECK(x.state.leases_held() == 0);
}

} // namespace connector_grouped_scheduler_test
