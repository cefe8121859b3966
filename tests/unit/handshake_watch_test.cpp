#include "handshake/client_state.hpp"
#include "tests/catch.hpp"

#include <chrono>

/// The connection and the watch of a client, alone and together with its fetches.

namespace handshake_watch_test {

using namespace troupe;
using namespace troupe::handshake;
using namespace std::chrono_literals;

namespace {

struct world {
  void pass(duration x) {
    now += x;
    state.advance(now);
  }
  /// Takes the next order, which must be `what`.
  watch_state::number ordered(watch_state::step what) {
    const auto order = state.take_watch_order();
    REQUIRE(order.has_value());
    CHECK(order->what == what);
    return order->id;
  }
  watch_state::number open() {
    state.advance(now);
    const auto connection = ordered(watch_state::step::open);
    CHECK(state.connection_opened(connection, true, now));
    return connection;
  }
  void watch(watch_state::number number) { state.watched(ordered(watch_state::step::watch), number, now); }

  client_state state{{}};
  timestamp now{1000s};
};

} // namespace

TEST_CASE("handshake client: a watch is requested once there is a connection and renewed regularly", "[handshake]") {
  world w;
  w.open();
  w.watch(5);
  CHECK(w.state.is_watching());
  for (int i = 0; i < 3; ++i) {
    w.pass(15s - 1ms);
    CHECK_FALSE(w.state.take_watch_order().has_value());
    w.pass(1ms);
    w.watch(5);
  }
}

TEST_CASE("handshake client: a watch that is unknown to the directory is requested again at once", "[handshake]") {
  world w;
  w.open();
  w.watch(5);
  // Another one's end is none of this one.
  w.state.watch_lost(4, w.now);
  CHECK_FALSE(w.state.take_watch_order().has_value());
  w.state.watch_lost(5, w.now);
  CHECK_FALSE(w.state.is_watching());
  w.watch(6);
  CHECK(w.state.is_watching());
}

TEST_CASE("handshake client: too many watches keep the connection, and any other failure closes it", "[handshake]") {
  world w;
  const auto connection = w.open();
  duration pause = 100ms;
  for (int i = 0; i < 4; ++i) {
    w.state.watched(w.ordered(watch_state::step::watch), fail(errc::limit_exceeded, "too many"), w.now);
    CHECK(w.state.connection() == connection);
    w.pass(pause - 1ms);
    CHECK_FALSE(w.state.take_watch_order().has_value());
    w.pass(1ms);
    pause *= 2;
  }
  w.state.watched(w.ordered(watch_state::step::watch), fail(errc::unreachable, "gone"), w.now);
  CHECK(w.state.connection() == 0);
  w.pass(5s);
  w.ordered(watch_state::step::open);
}

TEST_CASE("handshake client: a silent directory counts as disconnected and is retried with growing pauses",
          "[handshake]") {
  world w;
  const auto silent = w.open();
  const auto late = w.ordered(watch_state::step::watch);
  w.pass(5s);
  CHECK(w.state.connection() == 0);
  w.state.watched(late, std::uint64_t{5}, w.now);
  CHECK_FALSE(w.state.is_watching());
  CHECK_FALSE(w.state.connection_lost(silent, w.now));
  for (const auto pause : {100ms, 200ms, 400ms}) {
    w.pass(pause);
    const auto attempt = w.ordered(watch_state::step::open);
    CHECK(w.state.connection_opened(attempt, false, w.now));
  }
  w.pass(800ms);
  const auto slow = w.ordered(watch_state::step::open);
  w.pass(5s);
  // A connection that opens after another one was requested is not used.
  CHECK_FALSE(w.state.connection_opened(slow, true, w.now));
}

TEST_CASE("handshake watch: the end of a connection is reported once, by what ends it", "[handshake]") {
  using step = watch_state::step;
  timestamp now{1000s};
  watch_state x{{}};
  const auto ordered = [&](step what) {
    const auto order = x.take_order();
    REQUIRE(order.has_value());
    CHECK(order->what == what);
    return order->id;
  };
  const auto open = [&] {
    CHECK_FALSE(x.advance(now));
    REQUIRE(x.opened(ordered(step::open), true, now));
    return ordered(step::watch);
  };
  const auto first = open();
  CHECK_FALSE(x.watched(first + 1, fail(errc::unreachable, "late"), now));
  CHECK(x.connection() != 0);
  CHECK(x.watched(first, fail(errc::unreachable, "disconnected"), now));
  CHECK(x.connection() == 0);
  CHECK_FALSE(x.watched(first, fail(errc::unreachable, "disconnected"), now));
  CHECK_FALSE(x.advance(now));
  now += 100ms;
  // One that does not answer: the connection is not used any more after the limit.
  open();
  CHECK_FALSE(x.advance(now));
  now += 5s;
  CHECK(x.advance(now));
  CHECK(x.connection() == 0);
  // One that cannot be opened: there was no connection.
  now += 200ms;
  CHECK_FALSE(x.advance(now));
  ordered(step::open);
  now += 5s;
  CHECK_FALSE(x.advance(now));
}

TEST_CASE("handshake client: after a disconnect waiting requests are fetched again over the next connection",
          "[handshake]") {
  world w;
  const auto connection = w.open();
  w.watch(5);
  CHECK_FALSE(w.state.resolve({"a", 0, 60s}, 1, w.now).has_value());
  const auto orders = w.state.take_orders();
  REQUIRE(orders.size() == 1);
  CHECK(w.state.connection_lost(connection, w.now));
  CHECK_FALSE(w.state.is_watching());
  CHECK(w.state.take_abandoned() == std::vector<client_state::number>{orders[0].fetch});
  CHECK(w.state.take_answers().empty());
  w.pass(100ms);
  w.state.take_orders();
  const auto next = w.ordered(watch_state::step::open);
  // Requests sent while disconnected have failed and would pause for a while.
  for (int i = 0; i < 6; ++i) {
    w.state.advance(w.now);
    for (const auto& order : w.state.take_orders())
      w.state.answered(order.fetch, fail(errc::unreachable, "nobody to ask"), w.now);
  }
  CHECK(w.state.connection_opened(next, true, w.now));
  CHECK(w.state.find_inconsistency() == "");
  w.pass(0ms);
  CHECK(w.state.under_way() == 1);
}

} // namespace handshake_watch_test
