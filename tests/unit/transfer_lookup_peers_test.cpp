#include "actors/client/transfer/lookup_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

#include <vector>

namespace transfer_lookup_peers_test {

/// Lookups at a node that has peers.

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

struct finder_with_peers {
  explicit finder_with_peers(std::uint32_t shards = 1) : state(8, std::chrono::seconds(3)), effects(state) {
    lookup_state::binding node;
    node.owner = 77;
    node.ns = test_namespace;
    node.shard_count = shards;
    node.batch_keys_max = 512;
    node.lease_max = std::chrono::seconds(60);
    node.has_peers = true;
    state.bind(node);
  }
  template <class T>
  T one() {
    return effects.one<T>();
  }
  void matched(const lookup_match& x, std::uint32_t count) { state.on_match(x.call, match_reply{count}, t0); }

  lookup_state state;
  effects_of<lookup_state, lookup_effect> effects;
};

lookup_task find(std::uint32_t count) {
  return {test_task(count).keys, std::chrono::seconds(30)};
}

} // namespace

TEST_CASE("lookup: peers are asked for missing keys, and the arrived pages are matched again", "[lookup_state]") {
  finder_with_peers s;
  const auto id = s.state.start(find(5), t0);
  const auto first = s.one<lookup_match>();
  s.matched(first, 2);
  const auto wanted_prefix = s.one<lookup_prefix_fetch>();
  CHECK(wanted_prefix.request.ns == test_namespace);
  CHECK(wanted_prefix.request.parent == key(1));
  CHECK(wanted_prefix.request.keys.items == std::vector<key_digest>{key(2), key(3), key(4)});
  CHECK(s.effects.take<lookup_finished>().empty());
  s.state.on_prefix_fetch(wanted_prefix.call, prefix_fetch_reply{2}, t0);
  const auto second = s.one<lookup_match>();
  CHECK(second.request.lease != first.request.lease);
  CHECK(second.request.keys.size() == 5);
  s.matched(second, 4);
  // The keys are leased twice for a moment and are never without a lease.
  CHECK(s.one<lookup_release>().request.lease == first.request.lease);
  const auto done = s.one<lookup_finished>();
  CHECK(done.lookup == *id);
  REQUIRE(done.answer);
  CHECK(done.answer->matched == 4);
  CHECK(done.answer->lease == second.request.lease);
  CHECK(s.state.held() == 1);
  CHECK(s.state.under_way() == 0);
}

TEST_CASE("lookup: the answer says what peers had of it, and how long that took", "[lookup_state]") {
  using std::chrono::milliseconds;
  finder_with_peers s;
  s.state.start(find(5), t0);
  s.matched(s.one<lookup_match>(), 1);
  s.state.on_prefix_fetch(s.one<lookup_prefix_fetch>().call, prefix_fetch_reply{2}, t0 + milliseconds(20));
  SECTION("over all requests to them") {
    s.state.on_match(s.one<lookup_match>().call, match_reply{4}, t0 + milliseconds(30));
    s.state.on_prefix_fetch(s.one<lookup_prefix_fetch>().call, prefix_fetch_reply{}, t0 + milliseconds(35));
    CHECK(s.one<lookup_finished>().answer->peers == peers_share{2, 2, milliseconds(25)});
  }
  SECTION("also if they were too late") {
    s.state.on_match(s.one<lookup_match>().call, match_reply{4}, t0 + milliseconds(30));
    const auto late = s.one<lookup_prefix_fetch>();
    s.state.on_tick(t0 + std::chrono::seconds(10));
    const auto in_all = milliseconds(20) + std::chrono::seconds(10) - milliseconds(30);
    CHECK(s.one<lookup_finished>().answer->peers == peers_share{2, 2, in_all});
    s.state.on_prefix_fetch(late.call, prefix_fetch_reply{1}, t0 + std::chrono::seconds(11));
  }
  // Nothing of it is left for the next one.
  s.state.start(find(5), t0);
  s.matched(s.one<lookup_match>(), 5);
  CHECK(s.one<lookup_finished>().answer->peers == peers_share{});
}

TEST_CASE("lookup: where peers have nothing or fail, the local result is the answer", "[lookup_state]") {
  finder_with_peers s;
  s.state.start(find(5), t0);
  const auto first = s.one<lookup_match>();
  s.matched(first, 2);
  const auto wanted_prefix = s.one<lookup_prefix_fetch>();
  if (GENERATE(false, true))
    s.state.on_prefix_fetch(wanted_prefix.call, prefix_fetch_reply{}, t0);
  else
    s.state.on_prefix_fetch(wanted_prefix.call, fail(errc::unreachable, "it ends"), t0);
  const auto done = s.one<lookup_finished>();
  REQUIRE(done.answer);
  CHECK(done.answer->matched == 2);
  CHECK(done.answer->lease == first.request.lease);
  CHECK(s.effects.take<lookup_match>().empty());
  CHECK(s.effects.take<lookup_release>().empty());
  REQUIRE(s.state.release(done.answer->lease, t0));
}

TEST_CASE("lookup: peers are not asked where all keys are here, nor a second time", "[lookup_state]") {
  finder_with_peers s;
  s.state.start(find(5), t0);
  s.matched(s.one<lookup_match>(), 5);
  CHECK(s.effects.take<lookup_prefix_fetch>().empty());
  CHECK(s.one<lookup_finished>().answer->matched == 5);

  s.state.start(find(5), t0);
  s.matched(s.one<lookup_match>(), 0);
  const auto wanted_prefix = s.one<lookup_prefix_fetch>();
  CHECK(wanted_prefix.request.parent.is_null());
  s.state.on_prefix_fetch(wanted_prefix.call, prefix_fetch_reply{3}, t0);
  // They were evicted meanwhile.
  s.matched(s.one<lookup_match>(), 0);
  CHECK(s.effects.take<lookup_prefix_fetch>().empty());
  const auto done = s.one<lookup_finished>();
  REQUIRE(done.answer);
  CHECK(done.answer->matched == 0);
  CHECK(done.answer->lease == ticket{});
}

TEST_CASE("lookup: behind keys that were here already peers are asked again, a bounded number of times",
          "[lookup_state]") {
  finder_with_peers s;
  s.state.start(find(20), t0);
  s.matched(s.one<lookup_match>(), 1);
  // Each time the others have two keys, and this node has the two behind them.
  for (std::uint32_t here = 1, times = 0; times < 4; ++times) {
    const auto wanted_prefix = s.one<lookup_prefix_fetch>();
    CHECK(wanted_prefix.request.parent == key(here - 1));
    CHECK(wanted_prefix.request.keys.size() == 20 - here);
    s.state.on_prefix_fetch(wanted_prefix.call, prefix_fetch_reply{2}, t0);
    here += 4;
    s.matched(s.one<lookup_match>(), here);
    CHECK(s.effects.take<lookup_release>().size() == 1);
  }
  CHECK(s.effects.take<lookup_prefix_fetch>().empty());
  CHECK(s.one<lookup_finished>().answer->matched == 17);
  CHECK(s.state.held() == 1);
  // Where no more was found than was fetched, the peers have nothing further.
  s.state.start(find(20), t0);
  s.matched(s.one<lookup_match>(), 1);
  s.state.on_prefix_fetch(s.one<lookup_prefix_fetch>().call, prefix_fetch_reply{2}, t0);
  s.matched(s.one<lookup_match>(), 3);
  CHECK(s.effects.take<lookup_prefix_fetch>().empty());
  CHECK(s.one<lookup_finished>().answer->matched == 3);
}

TEST_CASE("lookup: a repeated request to peers carries the time already waited", "[lookup_state]") {
  finder_with_peers s;
  s.state.start(find(20), t0);
  const auto asked_at = t0 + 5 * ms;
  s.state.on_match(s.one<lookup_match>().call, match_reply{1}, asked_at);
  for (std::uint32_t here = 1, times = 0; times < 4; ++times) {
    const auto wanted_prefix = s.one<lookup_prefix_fetch>();
    CHECK(wanted_prefix.request.waited == times * 300 * ms);
    const auto now = asked_at + (times + 1) * 300 * ms;
    s.state.on_prefix_fetch(wanted_prefix.call, prefix_fetch_reply{2}, now - ms);
    here += 4;
    s.state.on_match(s.one<lookup_match>().call, match_reply{here}, now);
    s.effects.take<lookup_release>();
  }
}

TEST_CASE("lookup: a failed or late second match keeps the first result", "[lookup_state]") {
  finder_with_peers s;
  const bool is_late = GENERATE(false, true);
  s.state.start(find(5), t0);
  const auto first = s.one<lookup_match>();
  s.matched(first, 2);
  s.state.on_prefix_fetch(s.one<lookup_prefix_fetch>().call, prefix_fetch_reply{3}, t0);
  const auto second = s.one<lookup_match>();
  if (is_late)
    s.state.on_tick(t0 + std::chrono::seconds(3));
  else
    s.state.on_match(second.call, fail(errc::limit_exceeded, "too many leases"), t0);
  CHECK(s.one<lookup_release>().request.lease == second.request.lease);
  const auto done = s.one<lookup_finished>();
  REQUIRE(done.answer);
  CHECK(done.answer->matched == 2);
  CHECK(done.answer->lease == first.request.lease);
  CHECK(s.state.under_way() == 0);
}

TEST_CASE("lookup: peers that never answer cost their time limit and nothing else", "[lookup_state]") {
  finder_with_peers s(3);
  s.state.start(find(9), t0);
  for (const auto& x : s.effects.take<lookup_match>())
    s.matched(x, 0);
  const auto wanted_prefix = s.one<lookup_prefix_fetch>();
  CHECK(wanted_prefix.request.keys.size() == 9);
  s.state.on_tick(t0 + std::chrono::seconds(3));
  const auto done = s.one<lookup_finished>();
  REQUIRE(done.answer);
  CHECK(done.answer->matched == 0);
  s.state.on_prefix_fetch(wanted_prefix.call, prefix_fetch_reply{9}, t0);
  CHECK(s.effects.take<lookup_match>().empty());
}

} // namespace transfer_lookup_peers_test
