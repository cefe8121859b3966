#include "actors/cluster/pages/searching.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace cluster_searching_test {

/// Searches of pages at peers, and fetches of what they found.

namespace {

using namespace troupe;
using namespace troupe::cluster;
using test::key;
using test::ms;
using test::t0;
using test::test_namespace;
using marks = std::vector<std::uint8_t>;

packed<key_digest> keys(const std::vector<std::uint64_t>& numbers) {
  packed<key_digest> out;
  for (const auto n : numbers)
    out.items.push_back(key(n));
  return out;
}

struct harness {
  explicit harness(std::vector<peer_number> all = {0, 1}, std::size_t asking_max = 64)
      : peers(std::move(all)), pages(page_options()), state(options(asking_max), pages), effects(state),
        page_effects(pages) {
    pages.add_namespace(test_namespace, 4096, 1, 8);
  }

  fetching_options page_options() {
    fetching_options out{50 * ms, 200 * ms, 1000 * ms, 4, 8, 16, {}};
    out.peers = [this](const namespace_id&) { return peers; };
    return out;
  }
  searching_options options(std::size_t asking_max) {
    searching_options out{50 * ms, 200 * ms, 8, asking_max, {}, true, 900};
    out.peers = [this](const namespace_id&) { return peers; };
    return out;
  }

  template <class T>
  std::vector<T> take() {
    return effects.take<T>();
  }
  template <class T>
  T one() {
    return effects.one<T>();
  }
  void has(const search_ask& x, const marks& found, timestamp now = t0) {
    lookup_result out;
    out.matched = static_cast<std::uint32_t>(std::ranges::count(found, 1));
    if (out.matched > 0 && x.peer < 900)
      out.lease = {100 + x.peer, x.call};
    out.found.items = found;
    state.on_found(x.call, out, now);
  }
  /// A search whose peers have the keys that their marks say.
  search_number search(const std::vector<std::uint64_t>& numbers, const std::map<peer_number, marks>& there) {
    const auto out = state.search({test_namespace, keys(numbers), {}}, t0);
    for (const auto& x : take<search_ask>())
      has(x, there.at(x.peer));
    return out;
  }
  std::vector<fetch_move> moves() { return page_effects.take<fetch_move>(); }
  void moved(const fetch_move& x, errc code = errc::ok, std::size_t fails_from = 0, timestamp now = t0) {
    transfer_result out;
    for (std::size_t i = 0; i < x.work.keys.size(); ++i)
      out.results.items.push_back(static_cast<std::uint8_t>(i < fails_from ? errc::ok : code));
    pages.on_moved(x.call, out, {}, now);
    pass_on();
  }
  void pass_on() {
    for (const auto& x : page_effects.take<fetch_answer>())
      CHECK(state.on_run(x));
    CHECK(page_effects.take<fetch_release>().empty());
  }
  /// All that moves, moves.
  void move_all() {
    for (auto all = moves(); !all.empty(); all = moves())
      for (const auto& x : all)
        moved(x);
    pass_on();
  }
  bool quiet() const { return state.searches() == 0 && state.calls_under_way() == 0 && pages.is_idle(); }

  std::vector<peer_number> peers;
  fetching pages;
  searching state;
  test::effects_of<searching, search_effect> effects;
  test::effects_of<fetching, fetch_effect> page_effects;
};

} // namespace

TEST_CASE("searching: exactly the named pages are fetched, each from a peer that has it", "[cluster]") {
  harness x;
  const auto search = x.search({1, 2, 3, 4}, {{0, {1, 0, 1, 1}}, {1, {0, 0, 0, 1}}});
  const auto found = x.one<search_found>();
  CHECK(found.search == search);
  CHECK(found.reply.search == search);
  CHECK(found.reply.found.items == marks{1, 0, 1, 1});
  const auto fetch = x.state.fetch({test_namespace, search, keys({3, 4}), {}}, t0);
  // Both pages come from the peer that has both; the other one's lease ends at once.
  const auto retained = x.one<search_retain>();
  CHECK(retained.peer == 0);
  CHECK(retained.keys == keys({3, 4}).items);
  CHECK(x.one<fetch_release>().peer == 1);
  const auto moves = x.moves();
  REQUIRE(moves.size() == 1);
  CHECK(moves[0].peer == 0);
  CHECK(moves[0].work.keys == keys({3, 4}));
  CHECK_FALSE(moves[0].work.chained);
  CHECK(moves[0].work.parent == key_digest{});
  CHECK(x.take<search_fetched>().empty());
  x.moved(moves[0]);
  const auto done = x.one<search_fetched>();
  CHECK(done.search == fetch);
  CHECK(done.keys == 2);
  const auto released = x.one<fetch_release>();
  CHECK(released.lease == retained.lease);
  CHECK(released.kept_here == keys({3, 4}).items);
  CHECK(x.quiet());
}

TEST_CASE("searching: pages with parents are saved with them, also on both sides of a gap", "[cluster]") {
  harness x({0});
  const auto search = x.search({1, 2, 3, 4}, {{0, {1, 1, 1, 1}}});
  x.state.fetch({test_namespace, search, keys({1, 2, 4}), {{key_digest{}, key(1), key(3)}}}, t0);
  const auto moves = x.moves();
  REQUIRE(moves.size() == 2);
  CHECK(moves[0].work.keys == keys({1, 2}));
  CHECK(moves[0].work.parent == key_digest{});
  CHECK(moves[0].work.chained);
  CHECK(moves[1].work.keys == keys({4}));
  CHECK(moves[1].work.parent == key(3));
  for (const auto& each : moves)
    x.moved(each);
  CHECK(x.one<search_fetched>().keys == 3);
  CHECK(x.quiet());
}

TEST_CASE("searching: pages that one peer lacks come from another one", "[cluster]") {
  harness x;
  const auto search = x.search({1, 2, 3}, {{0, {1, 1, 0}}, {1, {0, 1, 1}}});
  x.state.fetch({test_namespace, search, keys({1, 2, 3}), {}}, t0);
  const auto moves = x.moves();
  REQUIRE(moves.size() == 2);
  CHECK(moves[0].work.keys == keys({1, 2}));
  CHECK(moves[1].peer == 1);
  CHECK(moves[1].work.keys == keys({3}));
  // Each is kept leased where it comes from, and nowhere else.
  const auto retained = x.take<search_retain>();
  REQUIRE(retained.size() == 2);
  CHECK(retained[1].keys == keys({3}).items);
  x.moved(moves[1]);
  CHECK(x.take<search_fetched>().empty());
  x.moved(moves[0]);
  CHECK(x.one<search_fetched>().keys == 3);
  CHECK(x.take<fetch_release>().size() == 2);
  CHECK(x.quiet());
}

TEST_CASE("searching: a page that does not come ends its run, and only what came counts", "[cluster]") {
  harness x({0});
  const auto search = x.search({1, 2, 3}, {{0, {1, 1, 1}}});
  x.state.fetch({test_namespace, search, keys({1, 2, 3}), {}}, t0);
  auto moves = x.moves();
  REQUIRE(moves.size() == 1);
  x.moved(moves[0], GENERATE(errc::corrupt, errc::not_found, errc::full), 1);
  CHECK(x.moves().empty());
  CHECK(x.one<search_fetched>().keys == 1);
  CHECK(x.one<fetch_release>().kept_here == keys({1}).items);
  CHECK(x.quiet());
}

TEST_CASE("searching: pages that another fetch brings are waited for, and move once", "[cluster]") {
  harness x({0});
  const auto first = x.search({1, 2}, {{0, {1, 1}}});
  const auto second = x.search({1, 2, 3}, {{0, {1, 1, 1}}});
  x.state.fetch({test_namespace, first, keys({1, 2}), {}}, t0);
  x.state.fetch({test_namespace, second, keys({2, 3}), {}}, t0);
  const auto moves = x.moves();
  REQUIRE(moves.size() == 1);
  CHECK(moves[0].work.keys == keys({1, 2}));
  SECTION("it comes") {
    x.moved(moves[0]);
    const auto rest = x.moves();
    REQUIRE(rest.size() == 1);
    CHECK(rest[0].work.keys == keys({3}));
    x.moved(rest[0]);
  }
  SECTION("it does not, and is fetched again from the peer that the second search has leased it at") {
    x.moved(moves[0], errc::timeout);
    const auto again = x.moves();
    REQUIRE(again.size() == 1);
    CHECK(again[0].work.keys == keys({2, 3}));
    x.moved(again[0], errc::timeout);
    CHECK(x.moves().empty());
  }
  CHECK(x.take<search_fetched>().size() == 2);
  CHECK(x.quiet());
}

TEST_CASE("searching: peers that do not answer in time are late, and what they answer then is released", "[cluster]") {
  harness x;
  const auto search = x.state.search({test_namespace, keys({1, 2}), {}}, t0);
  const auto asks = x.take<search_ask>();
  REQUIRE(asks.size() == 2);
  x.has(asks[0], {1, 0});
  CHECK(x.take<search_found>().empty());
  CHECK(x.state.next_event() <= t0 + 50 * ms);
  x.state.on_tick(t0 + 50 * ms);
  CHECK(x.one<search_found>().reply.found.items == marks{1, 0});
  CHECK(x.one<fetch_late>().peer == 1);
  x.has(asks[1], {1, 1}, t0 + 60 * ms);
  CHECK(x.one<fetch_release>().peer == 1);
  x.state.fetch({test_namespace, search, {}, {}}, t0 + 60 * ms);
  CHECK(x.one<fetch_release>().peer == 0);
  CHECK(x.quiet());
}

TEST_CASE("searching: a search of which nothing is fetched ends with the caller's time", "[cluster]") {
  harness x({0});
  const auto search = x.search({1}, {{0, {1}}});
  CHECK(x.take<fetch_release>().empty());
  CHECK(x.state.next_event() <= t0 + 200 * ms);
  x.state.on_tick(t0 + 200 * ms);
  CHECK(x.one<fetch_release>().peer == 0);
  CHECK(x.quiet());
  // It is unknown from then on, and so it is for another namespace.
  x.state.fetch({test_namespace, search, keys({1}), {}}, t0 + 201 * ms);
  CHECK(x.one<search_fetched>().keys == 0);
  const auto other = x.search({1}, {{0, {1}}});
  x.state.fetch({namespace_id{1, 2}, other, keys({1}), {}}, t0);
  CHECK(x.one<search_fetched>().keys == 0);
  CHECK(x.moves().empty());
}

TEST_CASE("searching: a fetch is answered at its time limit, with what has come", "[cluster]") {
  harness x({0});
  const auto search = x.search({1, 2, 3, 4, 5, 6}, {{0, {1, 1, 1, 1, 1, 1}}});
  x.state.fetch({test_namespace, search, keys({1, 2, 3, 4, 5, 6}), {}}, t0);
  const auto moves = x.moves();
  REQUIRE(moves.size() == 2);
  x.moved(moves[0]);
  CHECK(x.take<search_fetched>().empty());
  x.pages.on_tick(t0 + 200 * ms);
  x.pass_on();
  CHECK(x.one<search_fetched>().keys == 4);
  CHECK(x.one<fetch_release>().peer == 0);
  x.moved(moves[1]); // it goes on without the caller
  CHECK(x.quiet());
}

TEST_CASE("searching: earlier waiting of the same lookup counts", "[cluster]") {
  harness x({0});
  x.state.search({test_namespace, keys({1}), 200 * ms}, t0);
  CHECK(x.take<search_ask>().empty());
  CHECK(x.one<search_found>().reply.search == 0);
  x.state.search({test_namespace, keys({1}), 180 * ms}, t0);
  CHECK(x.take<search_ask>().size() == 1);
  x.state.on_tick(t0 + 20 * ms);
  CHECK(x.one<search_found>().reply.search == 0);
  CHECK(x.take<fetch_late>().empty()); // the peer had no 50 ms
}

TEST_CASE("searching: a few searches are asked about at a time, and the others follow", "[cluster]") {
  harness x({0}, 2);
  for (std::uint64_t i = 1; i <= 4; ++i)
    x.state.search({test_namespace, keys({i}), {}}, t0);
  auto asks = x.take<search_ask>();
  REQUIRE(asks.size() == 2);
  x.has(asks[0], {0});
  CHECK(x.one<search_found>().reply.search == 0);
  const auto next = x.one<search_ask>();
  CHECK(next.keys == keys({3}).items);
  // Those that are late make room for the last one, by the next tick.
  x.state.on_tick(t0 + 50 * ms);
  CHECK(x.take<search_found>().size() == 2);
  CHECK(x.take<search_ask>().empty());
  CHECK(x.state.next_event() <= t0 + 50 * ms);
  x.state.on_tick(t0 + 50 * ms);
  CHECK(x.one<search_ask>().keys == keys({4}).items);
  x.state.on_tick(t0 + 100 * ms);
  CHECK(x.take<search_found>().size() == 1);
  CHECK(x.state.searches() == 0);
}

TEST_CASE("searching: without peers, and beyond the limit, nothing is found at once", "[cluster]") {
  harness none(std::vector<peer_number>{});
  none.state.search({test_namespace, keys({1}), {}}, t0);
  CHECK(none.one<search_found>().reply.search == 0);
  harness x({0});
  for (std::uint64_t i = 0; i < 9; ++i)
    x.state.search({test_namespace, keys({i}), {}}, t0);
  CHECK(x.one<search_found>().reply.search == 0);
}

TEST_CASE("searching: a dead node gives no lease, and pages that no live peer has", "[cluster]") {
  harness x({0, 900});
  const auto search = x.search({1, 2, 3}, {{0, {1, 0, 0}}, {900, {1, 1, 1}}});
  x.state.fetch({test_namespace, search, keys({1, 2, 3}), {}}, t0);
  CHECK(x.one<search_retain>().peer == 0);
  const auto moves = x.moves();
  REQUIRE(moves.size() == 2);
  CHECK(moves[0].work.keys == keys({1}));
  CHECK(moves[1].peer == 900);
  CHECK(moves[1].work.keys == keys({2, 3}));
  for (const auto& each : moves)
    x.moved(each);
  CHECK(x.one<fetch_release>().peer == 0);
  CHECK(x.quiet());
}

TEST_CASE("searching: pages that were here are not reported as copies", "[cluster]") {
  harness x({0});
  const auto search = x.search({1, 2}, {{0, {1, 1}}});
  x.state.fetch({test_namespace, search, keys({1, 2}), {}}, t0);
  x.moved(x.moves().at(0), errc::exists, 1);
  CHECK(x.one<search_fetched>().keys == 2);
  CHECK(x.one<fetch_release>().kept_here == keys({1}).items);
}

} // namespace cluster_searching_test
