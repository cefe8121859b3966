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

struct world {
  explicit world(const client_options& options = {}) : state(options) {}
  ~world() { CHECK(state.find_inconsistency() == ""); }
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  std::optional<result<resolution>> resolve(const std::string& engine, incarnation_number incarnation = 0,
                                            duration deadline = 30s) {
    return state.resolve({engine, incarnation, deadline}, ++last, now);
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

TEST_CASE("handshake client: many who wait for an engine have one fetch", "[handshake]") {
  client_options options;
  options.compat = "abc";
  world w(options);
  for (int i = 0; i < 5; ++i)
    CHECK_FALSE(w.resolve("a").has_value());
  const auto order = w.order();
  CHECK(order.what.engine == "a");
  CHECK(order.what.compat == "abc");
  CHECK(order.what.complete);
  CHECK(order.what.wait == 10s);
  w.answer(order.fetch, found_as(7));
  CHECK(w.answers() == codes(5, errc::ok));
  // And who comes later needs none.
  const auto known = w.resolve("a");
  REQUIRE(known.has_value());
  CHECK((**known)->incarnation == 7);
  CHECK(w.state.take_orders().empty());
}

TEST_CASE("handshake client: one peer that is away costs the others nothing", "[handshake]") {
  client_options options;
  options.parallel_max = 2;
  world w(options);
  w.resolve("away");
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

TEST_CASE("handshake client: every wait ends by its deadline, whatever the directory does", "[handshake]") {
  world w;
  w.resolve("a", 0, 8s);
  const auto order = w.order();
  CHECK(order.what.wait == 8s);
  w.pass(8s);
  CHECK(w.answers() == codes{errc::timeout});
  CHECK(w.state.under_way() == 0);
  // The answer that comes then is nobody's.
  w.answer(order.fetch, found_as(7));
  CHECK(w.answers().empty());
  CHECK_FALSE(w.resolve("a").has_value());
}

TEST_CASE("handshake client: what may pass is tried again, later each time", "[handshake]") {
  world w;
  w.resolve("a");
  duration pause = 100ms;
  for (int i = 0; i < 4; ++i) {
    w.answer(w.order().fetch, fail(errc::unreachable, "away"));
    w.pass(pause - 1ms);
    CHECK(w.state.take_orders().empty());
    CHECK(w.state.next_deadline() == w.now + 1ms);
    w.pass(1ms);
    pause *= 2;
  }
  w.answer(w.order().fetch, found_as(7));
  CHECK(w.answers() == codes{errc::ok});
}

TEST_CASE("handshake client: an order without an answer is given up and repeated", "[handshake]") {
  world w;
  w.resolve("a", 0, 60s);
  const auto lost = w.order();
  CHECK(lost.deadline == w.now + 15s);
  w.pass(15s);
  w.pass(100ms);
  const auto again = w.order();
  CHECK(again.fetch != lost.fetch);
  w.answer(lost.fetch, found_as(6));
  CHECK(w.answers().empty());
  w.answer(again.fetch, found_as(7));
  CHECK(w.answers() == codes{errc::ok});
}

TEST_CASE("handshake client: what another attempt cannot change ends the wait", "[handshake]") {
  world w;
  for (const auto code : {errc::identity_mismatch, errc::expired, errc::not_owner}) {
    w.resolve("a");
    w.resolve("a");
    w.answer(w.order().fetch, failed_as(code));
    CHECK(w.answers() == codes(2, code));
  }
}

TEST_CASE("handshake client: a restarted peer is never used with what was known of it before", "[handshake]") {
  world w;
  w.resolve("a");
  w.answer(w.order().fetch, found_as(7));
  w.answers();
  // Somebody means the next start.
  CHECK_FALSE(w.resolve("a", 8).has_value());
  auto order = w.order();
  CHECK(order.what.incarnation == 8);
  // The directory has only heard of the one before.
  w.answer(order.fetch, found_as(7));
  CHECK(w.answers().empty());
  w.pass(100ms);
  w.answer(w.order().fetch, found_as(8));
  CHECK(w.answers() == codes{errc::ok});
  // Somebody means the one before, whose memory is gone.
  const auto late = w.resolve("a", 7);
  REQUIRE(late.has_value());
  CHECK(late->error().code == errc::expired);
  // Somebody says that there is another one.
  w.state.note("a", 8, true, w.now);
  CHECK(w.resolve("a").has_value());
  w.state.note("a", 9, true, w.now);
  CHECK_FALSE(w.resolve("a").has_value());
  w.answer(w.order().fetch, found_as(9));
  w.answers();
  w.state.note("a", 9, false, w.now);
  CHECK_FALSE(w.resolve("a").has_value());
}

TEST_CASE("handshake client: an answer that was on its way when the engine started again is none", "[handshake]") {
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

TEST_CASE("handshake client: who gives up is told so, and nobody is fetched for", "[handshake]") {
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

TEST_CASE("handshake client: limits", "[handshake]") {
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

} // namespace handshake_client_test
