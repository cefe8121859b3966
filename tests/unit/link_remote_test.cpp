#include "tests/unit/link_harness.hpp"

namespace link_remote_test {

/// A node that has to reach memory of the client.

using namespace troupe;
using namespace troupe::test;

TEST_CASE("link state: memory that the node has reached counts as mapped", "[link_state]") {
  harness d;
  d.state.bind(1, {0, 1}, timestamp::max());
  d.attach();
  d.state.on_bound(d.take_one<link_bind_lookup>().epoch, {}, harness_start);
  for (const auto& x : d.take<link_map>())
    d.state.on_offered(x.epoch, x.rank, {}, harness_start);
  for (const auto& x : d.take<link_bind_transfer>())
    d.state.on_bound(x.epoch, {}, harness_start);
  CHECK(d.ended(1) == errc::ok);
}

TEST_CASE("link state: a node that cannot reach the memory is left and retried, and a permanent error is final",
          "[link_state]") {
  harness d;
  d.state.bind(1, {0, 1}, timestamp::max());
  d.attach();
  d.take_one<link_bind_lookup>();
  const auto maps = d.take<link_map>();
  REQUIRE(maps.size() == 2);
  const auto passes = GENERATE(errc::unreachable, errc::timeout, errc::io_error, errc::internal, errc::unsupported);
  d.state.on_offered(maps[0].epoch, 0, fail(passes, "the node says so"), harness_start);
  d.state.on_offered(maps[1].epoch, 1, fail(passes, "and again"), harness_start); // of an expired epoch
  CHECK(d.take_one<link_part>().owner == harness_owner);
  CHECK(d.take<link_quiesce>().size() == 2);
  if (passes == errc::unsupported) {
    CHECK(d.ended(1) == errc::unsupported);
    CHECK(d.state.refused());
    return;
  }
  CHECK_FALSE(d.state.refused());
  CHECK(d.ended(1) == errc::internal); // it waits
  d.state.on_time(d.state.next_event());
  d.attach(harness::offer(harness_owner + 1));
  d.bind_all();
  CHECK(d.ended(1) == errc::ok);
}

TEST_CASE("link state: memory that is not reached is logged once until the client is bound, or not before that",
          "[link_state]") {
  const bool caller_logs = GENERATE(false, true);
  harness d(true, caller_logs);
  d.state.bind(1, {0, 1}, timestamp::max());
  auto now = harness_start;
  const auto fails = [&](const char* why) {
    d.attach();
    d.take<link_bind_lookup>();
    const auto map = d.take<link_map>().front();
    d.state.on_offered(map.epoch, map.rank, fail(errc::io_error, why), now);
    std::size_t warnings = 0;
    for (const auto& x : d.take<link_news>())
      warnings += x.how == link_news::weight::warning ? 1 : 0;
    now = d.state.next_event();
    d.state.on_time(now);
    return warnings;
  };
  CHECK(fails("port 1 is not reached") == (caller_logs ? 0 : 1));
  CHECK(fails("port 2 is not reached") == 0);
  CHECK(fails("port 2 is not reached") == 0);
  d.attach();
  d.bind_all();
  d.state.on_node_lost(now);
  d.take<link_news>();
  d.state.on_time(d.state.next_event());
  CHECK(fails("port 1 is not reached") == 1);
}

} // namespace link_remote_test
