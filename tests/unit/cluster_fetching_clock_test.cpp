#include "actors/cluster/pages/fetching.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

/// When the fetching of pages from peers wants its ticks.

namespace cluster_fetching_clock_test {

using namespace troupe;
using namespace troupe::cluster;
using test::key;
using test::ms;
using test::t0;
using test::test_namespace;

namespace {

constexpr auto ask_limit = 50 * ms;
constexpr auto wait_limit = 200 * ms;

fetching two_peers() {
  fetching_options how{ask_limit, wait_limit, 1000 * ms, 4, 8, 16, {}};
  how.peers = [](const namespace_id&) { return std::vector<peer_number>{0, 1}; };
  fetching out(how);
  out.add_namespace(test_namespace, 4096, 1, 8);
  return out;
}

prefix_fetch_request wanted(duration waited = {}) {
  prefix_fetch_request out{test_namespace, {}, {}};
  for (std::uint32_t i = 0; i < 4; ++i)
    out.keys.items.push_back(key(i));
  out.waited = waited;
  return out;
}

} // namespace

TEST_CASE("fetching: the next tick is at the first limit", "[cluster]") {
  auto state = two_peers();
  CHECK(state.next_event() == timestamp::max());
  state.wanted_prefix(wanted(), t0);
  CHECK(state.next_event() == t0 + ask_limit);
  // A caller that has waited elsewhere has less time left.
  state.wanted_prefix(wanted(wait_limit - 10 * ms), t0);
  CHECK(state.next_event() == t0 + 10 * ms);
  state.on_tick(t0 + 10 * ms);
  CHECK(state.next_event() == t0 + ask_limit);
  // Without any answer, the limits alone end it.
  int ticks = 0;
  for (; !state.is_idle() && ticks < 10; ++ticks)
    state.on_tick(state.next_event());
  CHECK(state.is_idle());
  CHECK(ticks <= 2);
}

TEST_CASE("fetching: a removed namespace is looked at at once", "[cluster]") {
  auto state = two_peers();
  state.wanted_prefix(wanted(), t0);
  state.remove_namespace(test_namespace);
  CHECK(state.next_event() <= t0);
}

} // namespace cluster_fetching_clock_test
