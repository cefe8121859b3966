#include "handshake/client_state.hpp"
#include "tests/catch.hpp"

#include <chrono>

namespace handshake_client_test {

using namespace troupe;
using namespace troupe::handshake;
using namespace std::chrono_literals;

namespace {

handshake_fetch_reply found_as(incarnation_number incarnation) {
  handshake_fetch_reply x;
  x.incarnation = incarnation;
  x.complete = true;
  x.entries.push_back({{}, "tag", handshake_form::bytes, "payload " + std::to_string(incarnation)});
  return x;
}

handshake_fetch_reply failed_as(errc code) {
  handshake_fetch_reply x;
  x.code = static_cast<std::uint8_t>(code);
  x.text = "no";
  return x;
}

/// Metadata of pp × tp ranks whose payloads name their ranks.
handshake_fetch_reply whole_as(incarnation_number incarnation, const handshake_sizes& sizes) {
  handshake_fetch_reply x;
  x.incarnation = incarnation;
  x.sizes = sizes;
  x.complete = true;
  x.etag = "whole";
  for (std::uint32_t dp = 0; dp < sizes.dp; ++dp)
    for (std::uint32_t pp = 0; pp < sizes.pp; ++pp)
      for (std::uint32_t tp = 0; tp < sizes.tp; ++tp)
        x.entries.push_back({{dp, pp, tp}, "tag", handshake_form::bytes, std::to_string(tp)});
  return x;
}

std::vector<handshake_rank> ranks_of(const std::optional<result<resolution>>& x) {
  REQUIRE(x.has_value());
  REQUIRE(x->has_value());
  std::vector<handshake_rank> out;
  for (const auto& entry : (**x)->entries)
    out.push_back(entry.rank);
  return out;
}

struct world {
  explicit world(const client_options& options = {}) : state(options) {}
  ~world() { CHECK(state.find_inconsistency() == ""); }
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  std::optional<result<resolution>> resolve(const std::string& engine, incarnation_number incarnation = 0,
                                            duration deadline = 30s) {
    return state.resolve({engine, incarnation, deadline}, ++last, now);
  }
  std::optional<result<resolution>> resolve_ranks(const std::string& engine, const wanted_ranks& ranks,
                                                  incarnation_number incarnation = 0) {
    return state.resolve({engine, incarnation, 30s, ranks}, ++last, now);
  }
  client_state::fetch_order order() {
    auto all = state.take_orders();
    REQUIRE(all.size() == 1);
    return all.front();
  }
  void answer(client_state::number fetch, result<handshake_fetch_reply> x) { state.answered(fetch, std::move(x), now); }
  std::vector<errc> answers() {
    std::vector<errc> out;
    for (const auto& [who, x] : state.take_answers())
      out.push_back(x ? errc::ok : x.error().code);
    return out;
  }
  void pass(duration x) {
    now += x;
    state.advance(now);
  }

  client_state state;
  timestamp now{1000s};
  client_state::number last = 0;
};

using codes = std::vector<errc>;

} // namespace

TEST_CASE("handshake client: requests that wait for the same engine share one fetch", "[handshake]") {
  client_options options;
  options.compat = "abc";
  world w(options);
  for (int i = 0; i < 5; ++i)
    CHECK_FALSE(w.resolve("a").has_value());
  const auto order = w.order();
  CHECK(order.what.engine == "a");
  CHECK(order.what.compat == "abc");
  CHECK(order.what.complete);
  CHECK(order.what.wait == 0s);
  w.answer(order.fetch, failed_as(errc::not_found));
  const auto waits = w.order();
  CHECK(waits.what.wait == 10s);
  CHECK(waits.what.complete);
  w.answer(waits.fetch, found_as(7));
  CHECK(w.answers() == codes(5, errc::ok));
  // Later requests need no fetch.
  const auto known = w.resolve("a");
  REQUIRE(known.has_value());
  CHECK((**known)->incarnation == 7);
  CHECK(w.state.take_orders().empty());
}

TEST_CASE("handshake client: one unreachable peer does not delay the others", "[handshake]") {
  client_options options;
  options.parallel_max = 2;
  world w(options);
  w.resolve("unreachable");
  w.resolve("a");
  w.resolve("b");
  auto orders = w.state.take_orders();
  REQUIRE(orders.size() == 2);
  w.answer(orders[1].fetch, found_as(1));
  const auto next = w.order();
  CHECK(next.what.engine == "b");
  w.answer(next.fetch, found_as(1));
  CHECK(w.answers() == codes(2, errc::ok));
  CHECK(w.state.under_way() == 1);
}

TEST_CASE("handshake client: many unreachable peers do not delay the others", "[handshake]") {
  client_options options;
  options.parallel_max = 4;
  options.polls_max = 20;
  world w(options);
  const auto find = [&](const std::string& engine) {
    for (int turns = 0; turns < 20; ++turns)
      for (const auto& order : w.state.take_orders()) {
        if (order.what.engine == engine)
          return w.answer(order.fetch, found_as(1));
        // It waits at the directory or is answered at once that there is nothing.
        if (order.what.wait == 0s)
          w.answer(order.fetch, failed_as(errc::not_found));
      }
  };
  for (int i = 0; i < 50; ++i)
    w.resolve("away-" + std::to_string(i));
  for (const auto* engine : {"a", "b", "c", "d", "e"}) {
    w.resolve(engine);
    find(engine);
    CHECK(w.answers() == codes{errc::ok});
  }
  CHECK(w.state.under_way() == 20);
  CHECK(w.state.waiting() == 50);
  // Engines beyond the bound are asked from time to time without waiting.
  w.pass(100ms);
  std::size_t looks = 0;
  for (const auto& order : w.state.take_orders())
    looks += order.what.wait == 0s ? 1 : 0;
  CHECK(looks == 4);
  CHECK(w.state.find_inconsistency() == "");
}

TEST_CASE("handshake client: of noted engine starts the oldest is forgotten first", "[handshake]") {
  client_options options;
  options.cached_max = 2;
  world w(options);
  for (const auto* engine : {"z", "a", "z", "m"})
    w.state.note(engine, 8, true, w.now);
  // A late answer of an earlier start is refused for the remembered ones.
  w.resolve("z");
  w.answer(w.order().fetch, found_as(7));
  CHECK(w.answers().empty());
  w.state.cancel(1, w.now);
  w.answers();
  w.state.take_orders();
  w.resolve("a");
  w.answer(w.order().fetch, found_as(7));
  CHECK(w.answers() == codes{errc::ok});
}

TEST_CASE("handshake client: every wait ends by its deadline, whatever the directory does", "[handshake]") {
  world w;
  w.resolve("a", 0, 8s);
  w.answer(w.order().fetch, failed_as(errc::not_found));
  const auto order = w.order();
  CHECK(order.what.wait == 8s);
  w.pass(8s);
  CHECK(w.answers() == codes{errc::timeout});
  CHECK(w.state.under_way() == 0);
  // The late answer is ignored.
  w.answer(order.fetch, found_as(7));
  CHECK(w.answers().empty());
  CHECK_FALSE(w.resolve("a").has_value());
}

TEST_CASE("handshake client: transient errors are retried with growing pauses", "[handshake]") {
  world w;
  w.resolve("a");
  duration pause = 100ms;
  for (int i = 0; i < 4; ++i) {
    w.answer(w.order().fetch, fail(errc::unreachable, "unreachable"));
    w.pass(pause - 1ms);
    CHECK(w.state.take_orders().empty());
    CHECK(w.state.next_deadline() == w.now + 1ms);
    w.pass(1ms);
    pause *= 2;
  }
  w.answer(w.order().fetch, found_as(7));
  CHECK(w.answers() == codes{errc::ok});
}

TEST_CASE("handshake client: a fetch without an answer is abandoned and repeated", "[handshake]") {
  world w;
  w.resolve("a", 0, 60s);
  const auto lost = w.order();
  CHECK(lost.deadline == w.now + 5s);
  w.pass(5s);
  w.pass(100ms);
  const auto again = w.order();
  CHECK(again.fetch != lost.fetch);
  w.answer(lost.fetch, found_as(6));
  CHECK(w.answers().empty());
  w.answer(again.fetch, found_as(7));
  CHECK(w.answers() == codes{errc::ok});
}

TEST_CASE("handshake client: a permanent error ends the wait", "[handshake]") {
  world w;
  for (const auto code : {errc::identity_mismatch, errc::expired, errc::not_owner}) {
    w.resolve("a");
    w.resolve("a");
    w.answer(w.order().fetch, failed_as(code));
    CHECK(w.answers() == codes(2, code));
  }
}

TEST_CASE("handshake client: an expired incarnation is reported to the requests that name it", "[handshake]") {
  auto expired = failed_as(errc::expired);
  expired.incarnation = 7;
  world w;
  w.resolve("a");
  w.answer(w.order().fetch, failed_as(errc::not_found));
  w.answer(w.order().fetch, failed_as(errc::not_found));
  // The requests name no incarnation, an earlier one, and a later one.
  w.resolve("a", 5);
  w.pass(1s);
  const auto before = w.order();
  CHECK(before.what.incarnation == 5);
  w.resolve("a", 9);
  w.answer(before.fetch, expired);
  CHECK(w.answers() == codes{errc::expired});
  const auto later = w.order();
  CHECK(later.what.incarnation == 9);
  w.answer(later.fetch, found_as(9));
  CHECK(w.answers() == codes{errc::ok, errc::ok});

  w.resolve("b");
  w.answer(w.order().fetch, failed_as(errc::not_found));
  w.answer(w.order().fetch, failed_as(errc::not_found));
  w.resolve("b", 5);
  w.pass(1s);
  w.answer(w.order().fetch, expired);
  CHECK(w.answers() == codes{errc::expired});
  const auto any = w.order();
  CHECK(any.what.incarnation == 0);
  w.answer(any.fetch, found_as(7));
  CHECK(w.answers() == codes{errc::ok});
}

TEST_CASE("handshake client: a restarted peer is never used with its earlier metadata", "[handshake]") {
  world w;
  w.resolve("a");
  w.answer(w.order().fetch, found_as(7));
  w.answers();
  // A request names the next incarnation.
  CHECK_FALSE(w.resolve("a", 8).has_value());
  auto order = w.order();
  CHECK(order.what.incarnation == 8);
  // The directory knows only the one before.
  w.answer(order.fetch, found_as(7));
  CHECK(w.answers().empty());
  w.pass(100ms);
  w.answer(w.order().fetch, found_as(8));
  CHECK(w.answers() == codes{errc::ok});
  // A request names the one before, whose memory is freed.
  const auto late = w.resolve("a", 7);
  REQUIRE(late.has_value());
  CHECK(late->error().code == errc::expired);
  // A newer incarnation is noted.
  w.state.note("a", 8, true, w.now);
  CHECK(w.resolve("a").has_value());
  w.state.note("a", 9, true, w.now);
  CHECK_FALSE(w.resolve("a").has_value());
  w.answer(w.order().fetch, found_as(9));
  w.answers();
  w.state.note("a", 9, false, w.now);
  CHECK_FALSE(w.resolve("a").has_value());
}

TEST_CASE("handshake client: a fetch answer from before a restart of the engine is discarded", "[handshake]") {
  world w;
  w.resolve("a");
  const auto order = w.order();
  w.state.note("a", 8, true, w.now);
  w.answer(order.fetch, found_as(7));
  CHECK(w.answers().empty());
  w.pass(100ms);
  w.answer(w.order().fetch, found_as(8));
  CHECK(w.answers() == codes{errc::ok});
}

TEST_CASE("handshake client: a cancelled request is answered as cancelled, and its fetch is not continued",
          "[handshake]") {
  client_options options;
  options.parallel_max = 1;
  world w(options);
  w.resolve("a");
  w.resolve("b");
  const auto order = w.order();
  w.state.cancel(1, w.now);
  CHECK(w.answers() == codes{errc::cancelled});
  CHECK(w.order().what.engine == "b");
  w.answer(order.fetch, found_as(7));
  w.state.cancel(1, w.now);
  CHECK(w.answers().empty());
  w.state.stop({errc::shutting_down, "stopping"});
  CHECK(w.answers() == codes{errc::shutting_down});
}

TEST_CASE("handshake client: limits are enforced", "[handshake]") {
  client_options options;
  options.waiting_max = 1;
  options.cached_max = 1;
  options.cache_for = 10s;
  world w(options);
  w.resolve("a");
  CHECK(w.resolve("b")->error().code == errc::limit_exceeded);
  w.answer(w.order().fetch, found_as(1));
  w.resolve("b");
  w.answer(w.order().fetch, found_as(1));
  CHECK(w.resolve("b").has_value());
  CHECK_FALSE(w.resolve("a").has_value());
  w.answer(w.order().fetch, found_as(1));
  w.pass(10s);
  CHECK_FALSE(w.resolve("a").has_value());
}

TEST_CASE("handshake client: requests for the same ranks of an engine share one fetch, others have their own",
          "[handshake]") {
  world w;
  const auto mine = wanted_ranks::peers_of(1, 2);
  CHECK_FALSE(w.resolve_ranks("a", mine).has_value());
  CHECK_FALSE(w.resolve_ranks("a", mine).has_value());
  const auto first = w.order();
  CHECK(first.what.scope == handshake_scope::peers);
  CHECK(first.what.rank == handshake_rank{0, 0, 1});
  CHECK(first.what.own_tp_size == 2);
  CHECK(first.what.complete);
  CHECK_FALSE(w.resolve_ranks("a", wanted_ranks::row(1)).has_value());
  const auto second = w.order();
  CHECK(second.what.scope == handshake_scope::row);
  CHECK(second.what.rank == handshake_rank{1, 0, 0});
  CHECK_FALSE(w.resolve_ranks("a", wanted_ranks::one({0, 1, 2})).has_value());
  CHECK(w.order().what.rank == handshake_rank{0, 1, 2});
  w.answer(first.fetch, found_as(7));
  CHECK(w.answers() == codes(2, errc::ok));
  CHECK(w.resolve_ranks("a", mine).has_value());
  // A part does not answer requests for the whole or for other parts.
  CHECK_FALSE(w.resolve_ranks("a", wanted_ranks::peers_of(0, 2)).has_value());
  CHECK_FALSE(w.resolve("a").has_value());
  CHECK(w.state.take_orders().size() == 2);
  w.state.forget("a");
  CHECK_FALSE(w.resolve_ranks("a", mine).has_value());
}

TEST_CASE("handshake client: cached metadata of a whole engine answers requests for a part", "[handshake]") {
  world w;
  w.resolve("a");
  w.answer(w.order().fetch, whole_as(7, {2, 2, 4}));
  w.answers();
  CHECK(ranks_of(w.resolve_ranks("a", wanted_ranks::peers_of(1, 2))) ==
        std::vector<handshake_rank>{{0, 0, 2}, {0, 0, 3}, {0, 1, 2}, {0, 1, 3}});
  CHECK(ranks_of(w.resolve_ranks("a", wanted_ranks::peers_of(7, 8, 1))) ==
        std::vector<handshake_rank>{{1, 0, 3}, {1, 1, 3}});
  CHECK(ranks_of(w.resolve_ranks("a", wanted_ranks::row(1))).size() == 8);
  CHECK(ranks_of(w.resolve_ranks("a", wanted_ranks::one({1, 0, 2}))) == std::vector<handshake_rank>{{1, 0, 2}});
  CHECK(w.resolve_ranks("a", wanted_ranks::peers_of(0, 3))->error().code == errc::invalid_argument);
  CHECK(w.resolve_ranks("a", wanted_ranks::peers_of(2, 2))->error().code == errc::invalid_argument);
  CHECK(w.state.take_orders().empty());
  // It is shared from then on, and its tag is not that of the whole.
  const auto once = w.resolve_ranks("a", wanted_ranks::row(1));
  CHECK((**once).get() == (**w.resolve_ranks("a", wanted_ranks::row(1))).get());
  CHECK((**once)->etag.empty());
  // Another start may have it.
  CHECK_FALSE(w.resolve_ranks("a", wanted_ranks::row(2)).has_value());
}

TEST_CASE("handshake client: all parts of an engine belong to one incarnation", "[handshake]") {
  world w;
  const auto mine = wanted_ranks::peers_of(0, 2);
  w.resolve_ranks("a", mine);
  w.answer(w.order().fetch, found_as(7));
  w.resolve_ranks("a", wanted_ranks::row(0));
  w.resolve_ranks("a", wanted_ranks::row(1));
  auto orders = w.state.take_orders();
  REQUIRE(orders.size() == 2);
  w.answers();
  // One part has a later incarnation, so the others are expired.
  w.answer(orders[0].fetch, found_as(8));
  CHECK_FALSE(w.resolve_ranks("a", mine).has_value());
  CHECK(w.resolve_ranks("a", mine, 7)->error().code == errc::expired);
  w.order();
  // A late answer to an earlier request is ignored.
  w.answer(orders[1].fetch, found_as(7));
  CHECK(w.answers() == codes{errc::ok});
  w.state.note("a", 9, true, w.now);
  CHECK_FALSE(w.resolve_ranks("a", wanted_ranks::row(0)).has_value());
  // A request names a later one.
  w.state.take_orders();
  CHECK_FALSE(w.resolve_ranks("b", mine).has_value());
  w.answer(w.order().fetch, found_as(3));
  CHECK_FALSE(w.resolve_ranks("b", wanted_ranks::row(0), 4).has_value());
  CHECK_FALSE(w.resolve_ranks("b", mine).has_value());
}

TEST_CASE("handshake client: it reports the fetches that it no longer waits for", "[handshake]") {
  world w;
  w.resolve("a");
  const auto cancelled = w.order().fetch;
  CHECK(w.state.is_under_way(cancelled));
  w.state.cancel(1, w.now);
  CHECK(w.state.take_abandoned() == std::vector<client_state::number>{cancelled});
  CHECK_FALSE(w.state.is_under_way(cancelled));
  w.resolve("a", 0, 60s);
  const auto late = w.order().fetch;
  w.pass(15s);
  CHECK(w.state.take_abandoned() == std::vector<client_state::number>{late});
  w.pass(100ms);
  const auto last = w.order().fetch;
  w.state.stop({errc::shutting_down, "stopping"});
  CHECK(w.state.take_abandoned() == std::vector<client_state::number>{last});
  w.resolve("b");
  w.answer(w.order().fetch, found_as(1));
  CHECK(w.state.take_abandoned().empty());
}

} // namespace handshake_client_test
