#include "handshake/directory_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/directory_world.hpp"

#include <chrono>
#include <string>
#include <vector>

/// Answers of the directory about changes that are not durable yet or exceed an update.

namespace handshake_durable_test {

using namespace troupe;
using namespace troupe::handshake;
using namespace troupe::handshake::test;
using namespace std::chrono_literals;

namespace {

using world = directory_world;

} // namespace

TEST_CASE("handshake directory: lists and deadlines contain only durable changes", "[handshake]") {
  directory_options options;
  options.hold_back = true;
  world w(options);
  const auto listed = [&] { return w.state.list({}, w.now).engines; };
  const auto written = [&] { w.state.durable(w.state.last_change(), w.now); };
  w.publish(rank_of("a", 0));
  CHECK(listed().empty());
  CHECK(w.state.list({"a"}, w.now).engines.empty());
  const auto first = w.state.last_change();
  w.publish(rank_of("a", 1));
  w.state.durable(first, w.now);
  CHECK(listed().at(0).ranks == 1);
  written();
  CHECK(listed().at(0).complete);
  // A later start, and the end of it, as well.
  w.publish(rank_of("a", 0, 8));
  CHECK(listed().at(0).incarnation == 7);
  written();
  CHECK(listed().at(0).incarnation == 8);
  w.state.withdraw({"a", 8}, w.now);
  CHECK(listed().at(0).incarnation == 8);
  written();
  CHECK(listed().empty());
  // A heartbeat moves the deadline when it is durable, and not before. Fetches do not wait for that.
  w.publish(rank_of("b", 0));
  written();
  w.pass(20s);
  w.state.heartbeat({"b", 7, {}}, w.now);
  CHECK(listed().at(0).expires_in == 10s);
  CHECK(w.get(fetch_of("b", 0)).expires_in == 10s);
  w.pass(15s);
  CHECK(listed().empty());
  CHECK(w.get(fetch_of("b", 0)).expires_in == 0s);
  written();
  CHECK(listed().at(0).expires_in == 15s);
  CHECK(w.get(fetch_of("b", 0)).expires_in == 15s);
}

TEST_CASE("handshake directory: a request waits for the disk for a bounded time", "[handshake]") {
  directory_options options;
  options.hold_back = true;
  options.disk_patience = 10s;
  world w(options);
  w.publish(rank_of("a", 0));
  CHECK_FALSE(w.fetch(fetch_of("a", 0)).has_value());
  w.pass(9s);
  CHECK(w.state.take_answers().empty());
  CHECK_FALSE(w.fetch(fetch_of("a", 0, 5s)).has_value());
  w.pass(1s);
  CHECK(code(w.answer().code) == errc::limit_exceeded);
  w.pass(4s);
  w.pass(9s);
  CHECK(w.state.take_answers().empty());
  w.pass(1s);
  CHECK(code(w.answer().code) == errc::limit_exceeded);
  CHECK(w.state.stats().refused_disk == 2);
  CHECK(w.state.stats().waiting == 0);
}

TEST_CASE("handshake directory: an entry that exceeds the update size is sent without its payloads", "[handshake]") {
  world w;
  auto large = rank_of("a", 0);
  large.payload.assign(5000, 'x');
  w.publish(large);
  for (const auto* name : {"b", "c", "d"})
    w.publish(rank_of(name, 0));
  REQUIRE(w.state.watch("", 1, w.now, 2500).has_value());
  std::vector<std::string> notified;
  for (int i = 0; i < 3; ++i) {
    const auto news = w.state.take_updates(w.now).notified;
    std::uint64_t bytes = 0;
    for (const auto& [who, update] : news)
      for (const auto& change : update.changes) {
        notified.push_back(change.engine);
        bytes += message_bytes(change.now);
        CHECK(code(change.now.code) == (change.engine == "a" ? errc::out_of_range : errc::ok));
        CHECK(is_there(change.now));
        CHECK(change.now.incarnation == 7);
        CHECK(change.now.entries.empty() == (change.engine == "a"));
      }
    CHECK(bytes <= 2500);
    w.state.seen(1);
  }
  CHECK(notified == std::vector<std::string>{"a", "b", "c", "d"});
}

TEST_CASE("handshake directory: an update that could not be sent is sent again", "[handshake]") {
  world w;
  w.publish(rank_of("a", 0));
  REQUIRE(w.state.watch("", 1, w.now).has_value());
  CHECK(w.state.take_updates(w.now, [](auto) { return false; }).notified.empty());
  const auto news = w.state.take_updates(w.now).notified;
  REQUIRE(news.size() == 1);
  w.state.put_back(1, news[0].second);
  w.publish(rank_of("b", 0));
  CHECK(w.state.take_updates(w.now).notified.at(0).second.changes.size() == 2);
  // An update that was not sent does not count as slowness of the watcher.
  w.state.seen(1);
  w.publish(rank_of("c", 0));
  w.state.put_back(1, w.state.take_updates(w.now).notified.at(0).second);
  w.pass(2min);
  CHECK(w.state.take_updates(w.now).dropped.empty());
}

TEST_CASE("handshake directory: all answers share the payload memory", "[handshake]") {
  world w;
  w.publish(rank_of("a", 0));
  const auto one = w.get(fetch_of("a", 0));
  const auto other = w.get(fetch_of("a", 0));
  CHECK(one.entries.at(0).payload.view().data() == other.entries.at(0).payload.view().data());
}

} // namespace handshake_durable_test
