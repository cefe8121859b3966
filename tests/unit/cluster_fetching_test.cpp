#include "actors/cluster/pages/fetching.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace cluster_fetching_test {

namespace {

using namespace troupe;
using namespace troupe::cluster;
using test::key;
using test::ms;
using test::t0;
using test::test_namespace;

prefix_fetch_request wanted(std::uint32_t count, std::uint64_t first = 0) {
  prefix_fetch_request out{test_namespace, first > 0 ? key(first - 1) : key_digest{}, {}};
  for (std::uint32_t i = 0; i < count; ++i)
    out.keys.items.push_back(key(first + i));
  return out;
}

/// Peers with keys from 0 on, and the results of requests to them.
struct harness {
  explicit harness(std::vector<peer_number> all = {0, 1}, std::uint32_t blocks = 8, std::uint32_t ranks = 1)
      : peers(std::move(all)), state(options()), effects(state) {
    state.add_namespace(test_namespace, 4096, ranks, blocks);
  }

  fetching_options options() {
    fetching_options out{50 * ms, 200 * ms, 1000 * ms, 4, 8, 16, {}};
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
  void has(const fetch_ask& x, std::uint32_t count, timestamp now = t0) {
    state.on_found(x.call, lookup_result{count, count > 0 ? ticket{9, x.call} : ticket{}, {}}, now);
  }
  static transfer_result all_of(const transfer_task& x, errc code = errc::ok) {
    transfer_result out;
    out.results.items.assign(x.keys.size(), static_cast<std::uint8_t>(code));
    return out;
  }
  /// Completes every possible transfer.
  void move(timestamp now = t0) {
    for (;;) {
      const auto moves = take<fetch_move>();
      if (moves.empty())
        return;
      for (const auto& x : moves)
        state.on_moved(x.call, all_of(x.work), {}, now);
    }
  }

  std::vector<peer_number> peers;
  fetching state;
  test::effects_of<fetching, fetch_effect> effects;
};

} // namespace

TEST_CASE("fetching: a dead node is fetched from only where no live node has as much", "[cluster]") {
  harness d({0, 1, 900});
  auto how = d.options();
  how.first_dead = 900;
  d.state = fetching(how);
  d.state.add_namespace(test_namespace, 4096, 1, 8);
  d.state.wanted_prefix(wanted(4), t0);
  const auto asks = d.take<fetch_ask>();
  REQUIRE(asks.size() == 3);
  // It answers at once that it has everything.
  d.has(asks[2], 4);
  CHECK(d.take<fetch_move>().empty());
  d.has(asks[0], 0);
  SECTION("a live node has all of it as well") {
    d.has(asks[1], 4);
    CHECK(d.one<fetch_move>().peer == 1);
    CHECK(d.one<fetch_release>().peer == 900);
  }
  SECTION("a live node has less") {
    d.has(asks[1], 3);
    CHECK(d.one<fetch_move>().peer == 900);
  }
  SECTION("a live node does not answer") {
    d.state.on_tick(t0 + 50 * ms);
    CHECK(d.one<fetch_move>().peer == 900);
  }
}

TEST_CASE("fetching: all peers are asked at once, and pages are fetched from the one with most", "[cluster]") {
  harness x;
  const auto requester = x.state.wanted_prefix(wanted(10, 5), t0);
  const auto asks = x.take<fetch_ask>();
  REQUIRE(asks.size() == 2);
  CHECK(asks[0].keys.size() == 10);
  x.has(asks[0], 3);
  CHECK(x.take<fetch_move>().empty());
  x.has(asks[1], 6);
  CHECK(x.one<fetch_release>().peer == 0);
  const auto loads = x.take<fetch_move>();
  REQUIRE(loads.size() == 2);
  CHECK(loads[0].peer == 1);
  CHECK(loads[0].work.keys.size() == 4);
  CHECK(loads[1].work.keys.size() == 2);
  std::set<std::uint32_t> blocks(loads[0].work.blocks.begin(), loads[0].work.blocks.end());
  blocks.insert(loads[1].work.blocks.begin(), loads[1].work.blocks.end());
  CHECK(blocks.size() == 6);
  CHECK(loads[0].work.parent == key(4));
  CHECK(loads[1].work.parent == key(8));
  x.state.on_moved(loads[1].call, harness::all_of(loads[1].work), {}, t0);
  CHECK(x.take<fetch_answer>().empty());
  x.state.on_moved(loads[0].call, harness::all_of(loads[0].work), {}, t0);
  CHECK(x.one<fetch_release>().peer == 1);
  // The rest may be at the other one.
  const auto rest = x.one<fetch_ask>();
  CHECK(rest.peer == 0);
  CHECK(rest.keys == std::vector<key_digest>{key(11), key(12), key(13), key(14)});
  x.has(rest, 0);
  const auto answer = x.one<fetch_answer>();
  CHECK(answer.requester == requester);
  CHECK(answer.keys == 6);
  CHECK(x.state.is_idle());
  CHECK(x.state.next_event() == timestamp::max());
  CHECK(x.state.counts(1).pages == 6);
  CHECK(x.state.counts(1).bytes == 6 * 4096);
  CHECK(x.state.counts(0).asked == 2);
}

TEST_CASE("fetching: time that a request has already waited counts against its limit", "[cluster]") {
  harness x;
  auto late = wanted(4);
  late.waited = x.options().wait_limit - 10 * ms;
  const auto requester = x.state.wanted_prefix(late, t0);
  REQUIRE(x.take<fetch_ask>().size() == 2);
  x.state.on_tick(t0 + 9 * ms);
  CHECK(x.take<fetch_answer>().empty());
  x.state.on_tick(t0 + 10 * ms);
  CHECK(x.one<fetch_answer>().requester == requester);
  auto over = wanted(4, 100);
  over.waited = x.options().wait_limit + ms;
  x.state.wanted_prefix(over, t0);
  CHECK(x.one<fetch_answer>().keys == 0);
  CHECK(x.take<fetch_ask>().empty());
  // An impossible waiting time does not extend the limit.
  auto liar = wanted(4, 200);
  liar.waited = -x.options().wait_limit;
  x.state.wanted_prefix(liar, t0);
  for (const auto& ask : x.take<fetch_ask>())
    x.has(ask, 4);
  x.state.on_tick(t0 + x.options().wait_limit - ms);
  CHECK(x.take<fetch_answer>().empty());
  x.state.on_tick(t0 + x.options().wait_limit);
  CHECK(x.one<fetch_answer>().keys == 0);
}

TEST_CASE("fetching: the peer is notified of the copies that were created here and of no others", "[cluster]") {
  harness x({0}, 16, 2);
  x.state.wanted_prefix(wanted(6), t0);
  x.has(x.one<fetch_ask>(), 6);
  for (const auto& save : x.take<fetch_move>()) {
    CHECK(save.work.origin == page_origin::fetched);
    auto outcome = harness::all_of(save.work);
    for (std::size_t i = 0; i < save.work.keys.size(); ++i)
      if ((save.work.keys[i] == key(1) && save.rank == 0) || save.work.keys[i] == key(2))
        outcome.results.items[i] = static_cast<std::uint8_t>(errc::exists);
      else if (save.work.keys[i] == key(5) && save.rank == 1)
        outcome.results.items[i] = static_cast<std::uint8_t>(errc::full);
    CHECK(x.take<fetch_release>().empty());
    x.state.on_moved(save.call, outcome, {}, t0);
  }
  const auto notified = x.one<fetch_release>();
  CHECK(notified.peer == 0);
  CHECK(notified.kept_here == std::vector<key_digest>{key(0), key(3), key(4)});
}

TEST_CASE("fetching: copies that are evicted first here are transient, and the peer is not notified", "[cluster]") {
  harness x({0});
  auto how = x.options();
  how.keep_copies = false;
  x.state = fetching(how);
  x.state.add_namespace(test_namespace, 4096, 1, 8);
  x.state.wanted_prefix(wanted(3), t0);
  x.has(x.one<fetch_ask>(), 3);
  const auto save = x.one<fetch_move>();
  CHECK(save.work.origin == page_origin::transient);
  x.state.on_moved(save.call, harness::all_of(save.work), {}, t0);
  CHECK(x.one<fetch_release>().kept_here.empty());
}

TEST_CASE("fetching: a round is split into one chunk per parallel copy, within size bounds", "[cluster]") {
  harness x({0});
  auto how = x.options();
  how.chunk_pages = 16;
  how.chunk_bytes_min = 8192;
  how.chunk_bytes_max = 32768;
  // Bytes of a page, pages, blocks, copies at once: pages of the first chunk.
  const auto [page_bytes, pages, blocks, copies, together] =
      GENERATE(table<std::uint64_t, std::uint32_t, std::uint32_t, std::uint32_t, std::size_t>({
          {1024, 24, 64, 1, 16}, // limited by the pages of one request
          {2048, 24, 64, 1, 16}, // nor bytes than the most
          {4096, 24, 64, 1, 8},  //
          {4096, 24, 64, 4, 6},  // a share for each copy
          {4096, 25, 64, 4, 7},  // the last one has the rest
          {4096, 24, 64, 16, 2}, // no fewer bytes than the least
          {4096, 24, 24, 3, 4},  // half of the blocks, so that the next chunks are in flight
          {4096, 24, 4, 4, 2},   // but the least
          {4096, 1, 64, 4, 1},   //
          {8193, 24, 64, 8, 3},  // a page is never cut
          {65536, 24, 64, 8, 1}, //
          {4096, 24, 64, 0, 8},  // as if one at a time
      }));
  x.state = fetching(how);
  x.state.add_namespace(test_namespace, page_bytes, 1, blocks, copies);
  x.state.wanted_prefix(wanted(pages), t0);
  x.has(x.one<fetch_ask>(), pages);
  std::size_t moved = 0;
  for (auto moves = x.take<fetch_move>(); !moves.empty(); moves = x.take<fetch_move>())
    for (const auto& move : moves) {
      CHECK(move.work.keys.size() == std::min<std::size_t>({together, pages - moved, blocks}));
      CHECK(move.work.blocks.size() == move.work.keys.size());
      moved += move.work.keys.size();
      x.state.on_moved(move.call, harness::all_of(move.work), {}, t0);
    }
  CHECK(moved == pages);
  CHECK(x.one<fetch_answer>().keys == pages);
}

TEST_CASE("fetching: alternating parts of a prefix at two peers are all fetched", "[cluster]") {
  harness x;
  x.state.wanted_prefix(wanted(6), t0);
  // How many of the keys each of them has from the first missing one on, round by round.
  for (const auto& [first, second] : {std::pair(2U, 0U), std::pair(0U, 2U), std::pair(2U, 0U)}) {
    for (const auto& ask : x.take<fetch_ask>())
      x.has(ask, ask.peer == 0 ? first : second);
    x.move();
  }
  CHECK(x.one<fetch_answer>().keys == 6);
  CHECK(x.state.counts(0).pages == 4);
  CHECK(x.state.counts(1).pages == 2);
  // A peer that has nothing more is not asked again.
  CHECK(x.state.counts(0).asked == 2);
  CHECK(x.state.counts(1).asked == 2);
  CHECK(x.state.rounds() == 0);
}

TEST_CASE("fetching: a peer that has everything does not wait for the others", "[cluster]") {
  harness x;
  x.state.wanted_prefix(wanted(4), t0);
  const auto asks = x.take<fetch_ask>();
  x.has(asks[1], 4);
  const auto load = x.one<fetch_move>();
  CHECK(load.peer == 1);
  // The lease at the other peer is released.
  x.has(asks[0], 4);
  CHECK(x.one<fetch_release>().peer == 0);
  x.state.on_moved(load.call, harness::all_of(load.work), {}, t0);
  x.move();
  CHECK(x.one<fetch_answer>().keys == 4);
  CHECK(x.state.calls_under_way() == 0);
}

TEST_CASE("fetching: a late peer costs its time, and its late answer is released", "[cluster]") {
  harness x;
  x.state.wanted_prefix(wanted(4), t0);
  const auto asks = x.take<fetch_ask>();
  x.has(asks[0], 2);
  x.state.on_tick(t0 + 49 * ms);
  CHECK(x.take<fetch_late>().empty());
  x.state.on_tick(t0 + 50 * ms);
  CHECK(x.one<fetch_late>().peer == 1);
  CHECK(x.state.counts(1).late == 1);
  CHECK(x.one<fetch_move>().peer == 0);
  x.has(asks[1], 4, t0 + 60 * ms);
  CHECK(x.one<fetch_release>().peer == 1);
  // No peer is left.
  harness y;
  y.state.wanted_prefix(wanted(4), t0);
  y.state.on_tick(t0 + 50 * ms);
  CHECK(y.one<fetch_answer>().keys == 0);
  CHECK(y.state.rounds() == 0);
}

TEST_CASE("fetching: no peers, an unknown namespace or an exceeded limit gives an empty answer", "[cluster]") {
  harness x(std::vector<peer_number>{});
  x.state.wanted_prefix(wanted(4), t0);
  CHECK(x.one<fetch_answer>().keys == 0);
  harness y;
  auto other = wanted(4);
  other.ns = {3, 3};
  y.state.wanted_prefix(other, t0);
  CHECK(y.one<fetch_answer>().keys == 0);
  for (std::uint64_t i = 0; i < 8; ++i)
    y.state.wanted_prefix(wanted(1, 100 * i), t0);
  CHECK(y.take<fetch_answer>().empty());
  y.state.wanted_prefix(wanted(1, 5000), t0);
  CHECK(y.one<fetch_answer>().keys == 0);
}

TEST_CASE("fetching: a transfer in progress is shared and happens once", "[cluster]") {
  harness x(std::vector<peer_number>{0});
  const auto first = x.state.wanted_prefix(wanted(4), t0);
  const auto ask = x.one<fetch_ask>();
  const auto part = x.state.wanted_prefix(wanted(2), t0);
  auto longer = wanted(3);
  longer.keys.items.push_back(key(77));
  const auto other = x.state.wanted_prefix(longer, t0);
  CHECK(x.take<fetch_ask>().empty());
  x.has(ask, 4);
  const auto load = x.one<fetch_move>();
  x.state.on_moved(load.call, harness::all_of(load.work), {}, t0);
  const auto answers = x.take<fetch_answer>();
  REQUIRE(answers.size() == 2);
  CHECK(answers[0].requester == first);
  CHECK(answers[0].keys == 4);
  CHECK(answers[1].requester == part);
  CHECK(answers[1].keys == 2);
  // It was never asked for the following keys.
  const auto rest = x.one<fetch_ask>();
  CHECK(rest.keys == std::vector<key_digest>{key(77)});
  x.has(rest, 0);
  const auto last = x.one<fetch_answer>();
  CHECK(last.requester == other);
  CHECK(last.keys == 3);
}

TEST_CASE("fetching: a request that shares only the head of a transfer does not wait for the tail", "[cluster]") {
  harness x({0});
  const auto all = x.state.wanted_prefix(wanted(8), t0);
  const auto ask = x.one<fetch_ask>();
  auto other = wanted(3);
  other.keys.items[2] = key(77);
  const auto some = x.state.wanted_prefix(other, t0);
  x.has(ask, 8);
  const auto moves = x.take<fetch_move>();
  REQUIRE(moves.size() == 2);
  CHECK(x.take<fetch_ask>().empty());
  x.state.on_moved(moves[0].call, harness::all_of(moves[0].work), {}, t0);
  // The rest of it is requested while the tail of the other one is in flight.
  const auto rest = x.one<fetch_ask>();
  CHECK(rest.keys == std::vector<key_digest>{key(77)});
  x.has(rest, 0);
  const auto first = x.one<fetch_answer>();
  CHECK(first.requester == some);
  CHECK(first.keys == 2);
  x.state.on_moved(moves[1].call, harness::all_of(moves[1].work), {}, t0);
  const auto second = x.one<fetch_answer>();
  CHECK(second.requester == all);
  CHECK(second.keys == 8);
  CHECK(x.state.is_idle());
  CHECK(x.state.next_event() == timestamp::max());
}

TEST_CASE("fetching: pages from a peer that was removed meanwhile are counted for no peer", "[cluster]") {
  harness x({0});
  x.state.wanted_prefix(wanted(8), t0);
  const auto ask = x.one<fetch_ask>();
  const bool before_it_answers = GENERATE(true, false);
  if (before_it_answers)
    x.state.forget(0);
  x.has(ask, 8);
  x.state.forget(0);
  x.move();
  CHECK(x.one<fetch_answer>().keys == 8);
  CHECK(x.state.counts(0).pages == 0);
  CHECK(x.state.counts(0).had == 0);
}

TEST_CASE("fetching: a waiting request is answered in time and the pages still arrive", "[cluster]") {
  harness x(std::vector<peer_number>{0});
  x.state.wanted_prefix(wanted(8), t0);
  x.has(x.one<fetch_ask>(), 8);
  const auto loads = x.take<fetch_move>();
  REQUIRE(loads.size() == 2);
  x.state.on_moved(loads[0].call, harness::all_of(loads[0].work), {}, t0);
  x.state.on_tick(t0 + 200 * ms);
  CHECK(x.one<fetch_answer>().keys == 4);
  CHECK(!x.state.is_idle());
  x.state.on_moved(loads[1].call, harness::all_of(loads[1].work), {}, t0 + 300 * ms);
  x.move(t0 + 300 * ms);
  CHECK(x.take<fetch_answer>().empty());
  CHECK(x.one<fetch_release>().peer == 0);
  CHECK(x.state.counts(0).pages == 8);
  CHECK(x.state.is_idle());
  CHECK(x.state.next_event() == timestamp::max());
}

TEST_CASE("fetching: a page that does not arrive ends the prefix, and the next peer is asked for it", "[cluster]") {
  harness x;
  x.state.wanted_prefix(wanted(4), t0);
  auto asks = x.take<fetch_ask>();
  x.has(asks[0], 4);
  const auto load = x.one<fetch_move>();
  auto outcome = harness::all_of(load.work);
  outcome.results.items[2] = static_cast<std::uint8_t>(errc::corrupt);
  sending_counts sent;
  sent.add(outcome, 4);
  outcome.results.items[3] = static_cast<std::uint8_t>(errc::cancelled);
  x.state.on_moved(load.call, outcome, sent, t0);
  CHECK(x.state.counts(0).pages == 2);
  CHECK(x.state.counts(0).failed == 1);
  const auto next = x.one<fetch_ask>();
  CHECK(next.peer == 1);
  CHECK(next.keys.size() == 2);
  x.state.on_found(next.call, fail(errc::unreachable, "gone"), t0);
  CHECK(x.one<fetch_answer>().keys == 2);
}

TEST_CASE("fetching: a peer that dies in the middle leaves the pages that arrived and all blocks free", "[cluster]") {
  harness x(std::vector<peer_number>{0}, 4);
  x.state.wanted_prefix(wanted(12), t0);
  x.has(x.one<fetch_ask>(), 12);
  const auto load = x.one<fetch_move>();
  CHECK(x.take<fetch_move>().empty()); // no block is free
  x.state.on_moved(load.call, harness::all_of(load.work), {}, t0);
  const auto next = x.one<fetch_move>();
  x.state.on_moved(next.call, fail(errc::unreachable, "the node has ended"), {}, t0);
  CHECK(x.one<fetch_answer>().keys == 4);
  CHECK(x.state.rounds() == 0);
  x.state.wanted_prefix(wanted(4, 50), t0);
  x.has(x.one<fetch_ask>(), 4);
  CHECK(x.one<fetch_move>().work.keys.size() == 4);
}

TEST_CASE("fetching: a key counts when the pages of all ranks have arrived", "[cluster]") {
  harness x(std::vector<peer_number>{0}, 8, 2);
  x.state.wanted_prefix(wanted(4), t0);
  x.has(x.one<fetch_ask>(), 4);
  const auto loads = x.take<fetch_move>();
  REQUIRE(loads.size() == 2);
  CHECK(loads[0].rank == 0);
  CHECK(loads[1].rank == 1);
  x.state.on_moved(loads[0].call, harness::all_of(loads[0].work, errc::exists), {}, t0);
  x.state.on_tick(t0 + 200 * ms);
  CHECK(x.one<fetch_answer>().keys == 0);
  x.state.on_moved(loads[1].call, harness::all_of(loads[1].work), {}, t0);
  x.move();
  CHECK(x.state.rounds() == 0);
  CHECK(x.state.counts(0).pages == 4);
}

TEST_CASE("fetching: a removed namespace stays in use until transfers in progress have ended", "[cluster]") {
  harness x(std::vector<peer_number>{0});
  x.state.wanted_prefix(wanted(4), t0);
  x.has(x.one<fetch_ask>(), 4);
  const auto load = x.one<fetch_move>();
  x.state.remove_namespace(test_namespace);
  CHECK(x.state.is_in_use(test_namespace));
  x.state.wanted_prefix(wanted(4), t0);
  CHECK(x.one<fetch_answer>().keys == 0);
  x.state.on_tick(t0);
  CHECK(x.state.is_in_use(test_namespace));
  x.state.on_moved(load.call, harness::all_of(load.work), {}, t0);
  CHECK_FALSE(x.state.is_in_use(test_namespace));
  CHECK(x.one<fetch_answer>().keys == 0);
}

TEST_CASE("fetching: whatever peers do, every request is answered once and in time, and nothing stays in use",
          "[cluster]") {
  const auto seed = GENERATE(range(0U, 200U));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto draw = [&](std::uint64_t below) { return random() % below; };
  const auto ranks = static_cast<std::uint32_t>(1 + draw(3));
  harness x({0, 1, 2}, static_cast<std::uint32_t>(1 + draw(12)), ranks);
  // The ranks that each key has here in the end.
  std::map<key_digest, std::set<std::uint32_t>> here;
  std::map<prefix_fetch_number, std::pair<prefix_fetch_request, timestamp>> open;
  std::vector<fetch_effect> under_way;
  std::map<std::pair<peer_number, ticket>, int> leases;
  auto now = t0;
  const auto look = [&] {
    for (auto& effect : x.state.take_outbox()) {
      if (const auto* const answer = std::get_if<fetch_answer>(&effect)) {
        const auto found = open.find(answer->requester);
        REQUIRE(found != open.end());
        const auto& keys = found->second.first.keys;
        REQUIRE(answer->keys <= keys.size());
        for (std::uint32_t i = 0; i < answer->keys; ++i)
          REQUIRE(here[keys[i]].size() == ranks);
        REQUIRE(now <= found->second.second + 200 * ms + 30 * ms);
        open.erase(found);
      } else if (const auto* const back = std::get_if<fetch_release>(&effect)) {
        REQUIRE(--leases[{back->peer, back->lease}] == 0);
      } else if (!std::holds_alternative<fetch_late>(effect)) {
        under_way.push_back(std::move(effect));
      }
    }
  };
  const auto code = [&] { return draw(12) == 0 ? errc::unreachable : errc::ok; };
  const auto end_one = [&](std::size_t i) {
    const auto effect = std::move(under_way[i]);
    under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(i));
    if (const auto* const ask = std::get_if<fetch_ask>(&effect)) {
      if (draw(6) == 0)
        return x.state.on_found(ask->call, fail(errc::timeout, "late"), now);
      const auto some = static_cast<std::uint32_t>(draw(ask->keys.size() + 1));
      const ticket lease{some > 0 ? 5U : 0U, some > 0 ? ask->call : 0};
      if (some > 0)
        ++leases[{ask->peer, lease}];
      // Now and then a peer says that it has more than it was asked for.
      const auto said = some > 0 && draw(8) == 0 ? some + static_cast<std::uint32_t>(ask->keys.size()) : some;
      return x.state.on_found(ask->call, lookup_result{said, lease, {}}, now);
    }
    const auto& save = std::get<fetch_move>(effect);
    auto outcome = harness::all_of(save.work);
    for (std::size_t k = 0; k < save.work.keys.size(); ++k) {
      const auto ended = code();
      outcome.results.items[k] = static_cast<std::uint8_t>(ended);
      if (ended == errc::ok)
        here[save.work.keys[k]].insert(save.rank);
    }
    x.state.on_moved(save.call, outcome, {}, now);
  };
  for (int step = 0; step < 400; ++step) {
    switch (draw(4)) {
    case 0: {
      auto request = wanted(static_cast<std::uint32_t>(1 + draw(20)), 10 * draw(4));
      if (draw(3) == 0)
        request.keys.items.back() = key(9000 + draw(3));
      const auto next = x.state.wanted_prefix(request, now);
      open.emplace(next, std::pair(request, now));
      break;
    }
    case 1:
      now += draw(30) * ms;
      x.state.on_tick(now);
      break;
    default:
      if (!under_way.empty())
        end_one(draw(under_way.size()));
    }
    look();
    if (step % 5 == 0) {
      x.state.on_tick(now);
      look();
    }
  }
  while (!under_way.empty()) {
    end_one(0);
    look();
  }
  now += std::chrono::seconds(10);
  for (int i = 0; i < 3; ++i) {
    for (auto& [requester, w] : open)
      w.second = now; // they were not looked after meanwhile
    x.state.on_tick(now);
    look();
    while (!under_way.empty()) {
      end_one(0);
      look();
    }
  }
  CHECK(open.empty());
  CHECK(x.state.rounds() == 0);
  CHECK(x.state.calls_under_way() == 0);
  for (const auto& [name, held] : leases)
    CHECK(held == 0);
}

TEST_CASE("fetching: pages that came from files of a peer are counted, and so are those refused there", "[cluster]") {
  harness x({3});
  x.state.wanted_prefix(wanted(4), t0);
  x.has(x.one<fetch_ask>(), 4);
  const auto load = x.one<fetch_move>();
  auto outcome = harness::all_of(load.work);
  outcome.from_files = 2;
  outcome.files_stale = 5;
  outcome.files_damaged = 6;
  outcome.files_failed = 7;
  sending_counts sent;
  sent.add(outcome, 4);
  x.state.on_moved(load.call, outcome, sent, t0);
  const auto counts = x.state.counts(3);
  CHECK(counts.pages == 4);
  CHECK(counts.file_pages == 2);
  CHECK(counts.file_bytes == 2 * 4096);
  CHECK(counts.files_stale == 5);
  CHECK(counts.files_damaged == 6);
  CHECK(counts.files_failed == 7);
}

} // namespace cluster_fetching_test
