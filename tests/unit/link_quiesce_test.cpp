#include "tests/unit/link_harness.hpp"

#include <algorithm>

namespace link_quiesce_test {

/// The reports to a node about ended attachments.

namespace {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

constexpr auto owner = harness_owner;
constexpr auto start = harness_start;

} // namespace

TEST_CASE("link state: a new bind uses another attachment, since pins end with the old one", "[link_state]") {
  harness d;
  d.attach();
  d.state.bind(1, {0, 1}, timestamp::max());
  CHECK(d.take<link_seek>().empty()); // nothing was bound before
  d.bind_all();
  CHECK(d.ended(1) == errc::ok);
  d.state.bind(2, {0}, timestamp::max());
  d.collect();
  // Those of before are left before the new ones count.
  std::vector<std::size_t> order;
  for (const auto& x : d.effects)
    order.push_back(x.index());
  const auto position = [&](const link_effect& of) {
    return std::find(order.begin(), order.end(), of.index()) - order.begin();
  };
  CHECK(position(link_unbind{}) < position(link_seek{}));
  CHECK(position(link_quiesce{}) < position(link_seek{}));
  CHECK(d.take_one<link_part>().owner == owner);
  CHECK(d.take<link_quiesce>().size() == 2);
  d.state.wait_attached(3, timestamp::max());
  d.attach(harness::offer(owner + 1));
  d.bind_all();
  CHECK(d.ended(2) == errc::ok);
  CHECK(d.ended(3) == errc::ok);
  CHECK(d.state.owner() == owner + 1);
}

TEST_CASE("link state: the old node is notified that the client is quiesced when each copy engine has answered",
          "[link_state]") {
  harness d;
  d.state.bind(1, {0, 1}, timestamp::max());
  d.attach();
  const bool bound = GENERATE(false, true);
  if (bound)
    d.bind_all();
  else
    d.take<link_map>(); // which may have arrived
  const bool ends = GENERATE(false, true);
  if (ends)
    d.state.end();
  else
    d.state.bind(2, {0, 1}, timestamp::max());
  CHECK(d.take_one<link_part>().owner == owner);
  const auto rests = d.take<link_quiesce>();
  REQUIRE(rests.size() == 2);
  CHECK(d.said(true).empty());
  d.state.on_quiesced(owner, {});
  CHECK(d.said(true).empty());
  CHECK(d.take<link_ended>().empty());
  d.state.on_quiesced(owner + 1, {}); // of an unknown owner
  SECTION("all of them answer") {
    d.state.on_quiesced(owner, {});
    CHECK(d.said(true) == std::vector{owner});
    d.state.on_quiesced(owner, {});
    CHECK(d.said(true).empty()); // once
  }
  SECTION("one of them does not answer") {
    d.state.on_quiesced(owner, fail(errc::timeout, "no answer"));
    CHECK(d.said(true).empty());
    CHECK(d.said(false).empty());
  }
  CHECK(d.take<link_forget_left>().size() == 1);
  CHECK(d.take<link_ended>().size() == (ends ? 1 : 0));
}

TEST_CASE("link state: a client that was disconnected by the node reports that it is quiesced and comes back",
          "[link_state]") {
  harness d;
  d.state.on_sent_away(start); // before it is attached: nothing
  d.state.bind(1, {0, 1}, timestamp::max());
  d.attach();
  d.bind_all();
  d.state.on_sent_away(start);
  CHECK(d.take_one<link_part>().owner == owner);
  CHECK(d.take<link_unbind>().size() == 1);
  d.rest();
  CHECK(d.said(true) == std::vector{owner});
  CHECK(d.state.owner() == 0);
  d.state.on_time(d.state.next_event());
  d.attach(harness::offer(owner + 1));
  d.bind_all();
  CHECK(d.state.owner() == owner + 1);
}

TEST_CASE("link state: a lost node is notified that the client is quiesced when it is back, before anything else",
          "[link_state]") {
  harness d;
  d.state.bind(1, {0, 1}, timestamp::max());
  d.attach();
  d.bind_all();
  d.state.on_node_lost(start);
  const auto rests = d.take<link_quiesce>();
  REQUIRE(rests.size() == 2);
  const bool in_time = GENERATE(false, true);
  if (in_time)
    for (const auto& x : rests)
      d.state.on_quiesced(x.owner, {});
  CHECK(d.said(true).empty());
  CHECK(d.said(false).empty());
  d.state.on_time(d.state.next_event());
  const auto number = d.find();
  d.collect();
  d.effects.clear();
  CHECK(d.state.on_attached(number, harness::offer(owner + 1)));
  if (in_time) {
    d.collect();
    REQUIRE_FALSE(d.effects.empty());
    CHECK(std::holds_alternative<link_report_quiesced>(d.effects.front()));
  } else {
    for (const auto& x : rests)
      d.state.on_quiesced(x.owner, {});
  }
  CHECK(d.said(false) == std::vector{owner});
  const bool heard = GENERATE(false, true);
  d.state.on_quiesced_reported(owner, heard ? result<void>{} : fail(errc::unreachable, "the line is cut"), start);
  // The report is repeated until it is received.
  d.state.on_node_lost(start);
  d.rest();
  d.state.on_time(d.state.next_event());
  d.attach(harness::offer(owner + 2));
  CHECK(d.said(false) == (heard ? std::vector{owner + 1} : std::vector{owner, owner + 1}));
}

TEST_CASE("link state: a node that missed the end of an attachment is notified again", "[link_state]") {
  harness d;
  d.state.bind(1, {0, 1}, timestamp::max());
  d.attach();
  d.bind_all();
  d.state.on_node_lost(start);
  d.rest();
  d.state.on_time(d.state.next_event());
  d.attach(harness::offer(owner + 1));
  CHECK(d.said(false) == std::vector{owner});
  CHECK(d.state.next_event() == timestamp::max());
  d.state.on_quiesced_reported(owner, fail(errc::busy, "this client is attached"), start);
  const auto again = d.state.next_event();
  CHECK(again < timestamp::max());
  d.state.on_time(again - std::chrono::milliseconds(1));
  CHECK(d.said(false).empty());
  d.state.on_time(again);
  CHECK(d.said(false) == std::vector{owner});
  d.state.on_quiesced_reported(owner, {}, again);
  d.state.on_quiesced_reported(owner, fail(errc::busy, "late"), again); // without an open report
  CHECK(d.state.next_event() == timestamp::max());
}

TEST_CASE("link state: an attachment without bound copy engines is reported at once", "[link_state]") {
  harness d;
  SECTION("the node is left") {
    d.attach();
    d.state.end();
    CHECK(d.said(true) == std::vector{owner});
    CHECK(d.take<link_ended>().size() == 1);
  }
  SECTION("the node is refused") {
    auto strange = harness::offer();
    strange.geometry = {};
    d.attach(strange);
    CHECK(d.said(true) == std::vector{owner});
  }
  SECTION("the node is lost") {
    d.attach();
    d.state.on_node_lost(start);
    d.state.on_time(d.state.next_event());
    d.attach(harness::offer(owner + 1));
    CHECK(d.said(false) == std::vector{owner});
  }
  SECTION("no node") {
    d.state.end();
    CHECK(d.said(true).empty());
    CHECK(d.take<link_ended>().size() == 1);
  }
  CHECK(d.take<link_quiesce>().empty());
}

TEST_CASE("link state: shutdown does not wait for reports that no node would receive", "[link_state]") {
  harness d;
  d.state.bind(1, {0, 1}, timestamp::max());
  d.attach();
  d.bind_all();
  d.state.on_node_lost(start);
  CHECK(d.take<link_quiesce>().size() == 2);
  d.state.end();
  CHECK(d.take<link_ended>().size() == 1);
}

} // namespace link_quiesce_test
