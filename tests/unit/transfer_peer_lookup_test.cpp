#include "actors/client/transfer/lookup_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

#include <vector>

namespace transfer_peer_lookup_test {

/// The steps of a lookup of each key that concern pages of other nodes.

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;
using kind = peer_step::kind;

struct finder {
  explicit finder(bool has_peers = true) : state(2, std::chrono::seconds(3)), effects(state) {
    lookup_state::binding node;
    node.owner = 77;
    node.ns = test_namespace;
    node.shard_count = 1;
    node.batch_keys_max = 4;
    node.lease_max = std::chrono::seconds(60);
    node.has_peers = has_peers;
    state.bind(node);
  }
  template <class T>
  T one() {
    return effects.one<T>();
  }

  lookup_state state;
  effects_of<lookup_state, lookup_effect> effects;
};

lookup_task task(kind what, std::uint32_t count, std::uint64_t search = 0) {
  lookup_task out{test_task(count).keys, std::chrono::seconds(30), true, true};
  out.peers.what = what;
  out.peers.search = search;
  return out;
}

match_reply all_of(const match_request& x) {
  match_reply out;
  out.matched = static_cast<std::uint32_t>(x.keys.size());
  out.found.items.assign(x.keys.size(), 1);
  out.on_disk.items.assign(x.keys.size(), 0);
  return out;
}

} // namespace

TEST_CASE("peer lookup: a search asks other nodes alone, and leases nothing here", "[lookup_state]") {
  finder s;
  auto work = task(kind::search, 3);
  work.peers.waited = 7 * ms;
  const auto id = s.state.start(work, t0);
  CHECK(s.effects.take<lookup_match>().empty());
  const auto asked = s.one<lookup_search>();
  CHECK(asked.request.ns == test_namespace);
  CHECK(asked.request.keys.size() == 3);
  CHECK(asked.request.waited == 7 * ms);
  s.state.on_search(asked.call, search_peers_reply{5, {{0, 1, 1}}}, t0);
  const auto done = s.one<lookup_finished>();
  CHECK(done.lookup == *id);
  REQUIRE(done.answer);
  CHECK(done.answer->search == 5);
  CHECK(done.answer->found.items == std::vector<std::uint8_t>{0, 1, 1});
  CHECK(done.answer->matched == 0);
  CHECK(done.answer->lease == ticket{});
  CHECK(s.state.held() == 0);
}

TEST_CASE("peer lookup: fetched keys are looked up here, whatever the fetch reports", "[lookup_state]") {
  finder s;
  auto work = task(kind::fetch, 2, 5);
  work.peers.parents.items = {key_digest{}, key(0)};
  s.state.start(work, t0);
  CHECK(s.effects.take<lookup_match>().empty());
  const auto asked = s.one<lookup_fetch>();
  CHECK(asked.request.search == 5);
  CHECK(asked.request.keys.size() == 2);
  CHECK(asked.request.parents.size() == 2);
  if (GENERATE(true, false))
    s.state.on_prefix_fetch(asked.call, prefix_fetch_reply{0}, t0);
  else
    s.state.on_prefix_fetch(asked.call, fail(errc::unreachable, "the cluster has ended"), t0);
  const auto match = s.one<lookup_match>();
  CHECK(match.request.each);
  s.state.on_match(match.call, all_of(match.request), t0);
  const auto done = s.one<lookup_finished>();
  REQUIRE(done.answer);
  CHECK(done.answer->matched == 2);
  CHECK(done.answer->lease == match.request.lease);
  CHECK(s.state.held() == 1);
}

TEST_CASE("peer lookup: a late answer to a search releases what it found", "[lookup_state]") {
  finder s;
  s.state.start(task(kind::search, 2), t0);
  const auto asked = s.one<lookup_search>();
  CHECK(s.state.needs_ticks());
  s.state.on_tick(t0 + std::chrono::seconds(3));
  CHECK(s.one<lookup_finished>().answer.error().code == errc::timeout);
  s.state.on_search(asked.call, search_peers_reply{5, {{1, 1}}}, t0 + std::chrono::seconds(3));
  const auto ended = s.one<lookup_fetch>();
  CHECK(ended.call == 0);
  CHECK(ended.request.search == 5);
  CHECK(ended.request.keys.empty());
}

TEST_CASE("peer lookup: a fetch that is not answered ends at the time limit, and its answer is ignored",
          "[lookup_state]") {
  finder s;
  s.state.start(task(kind::fetch, 2, 5), t0);
  const auto asked = s.one<lookup_fetch>();
  s.state.on_tick(t0 + std::chrono::seconds(3));
  CHECK(s.one<lookup_finished>().answer.error().code == errc::timeout);
  s.state.on_prefix_fetch(asked.call, prefix_fetch_reply{2}, t0 + std::chrono::seconds(3));
  CHECK(s.effects.take<lookup_match>().empty());
  CHECK(s.state.under_way() == 0);
}

TEST_CASE("peer lookup: a search is released without waiting, also where no more lookups are accepted",
          "[lookup_state]") {
  finder s;
  s.state.start(task(kind::search, 1), t0);
  s.state.start(task(kind::search, 1), t0);
  CHECK_FALSE(s.state.start(task(kind::search, 1), t0));
  REQUIRE(s.state.start(task(kind::fetch, 0, 9), t0));
  CHECK(s.one<lookup_finished>().answer);
  CHECK(s.one<lookup_fetch>().request.search == 9);
}

TEST_CASE("peer lookup: without other nodes nothing is found at once", "[lookup_state]") {
  finder s(false);
  s.state.start(task(GENERATE(kind::search, kind::fetch), 2, 3), t0);
  CHECK(s.effects.take<lookup_search>().empty());
  CHECK(s.effects.take<lookup_fetch>().empty());
  const auto done = s.one<lookup_finished>();
  REQUIRE(done.answer);
  CHECK(done.answer->search == 0);
  CHECK(done.answer->matched == 0);
}

TEST_CASE("peer lookup: no more keys are named than the node accepts at once", "[lookup_state]") {
  finder s;
  auto work = task(kind::fetch, 6, 5);
  work.peers.parents = work.keys;
  s.state.start(work, t0);
  const auto asked = s.one<lookup_fetch>();
  CHECK(asked.request.keys.size() == 4);
  CHECK(asked.request.parents.size() == 4);
}

TEST_CASE("peer lookup: a lookup of each key says whether there are other nodes", "[lookup_state]") {
  const auto has_peers = GENERATE(true, false);
  finder s(has_peers);
  s.state.start(task(kind::none, 2), t0);
  const auto match = s.one<lookup_match>();
  match_reply nothing;
  nothing.found.items = {0, 0};
  s.state.on_match(match.call, nothing, t0);
  CHECK(s.one<lookup_finished>().answer->has_peers == has_peers);
}

} // namespace transfer_peer_lookup_test
