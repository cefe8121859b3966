#include "handshake/directory_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/directory_world.hpp"

#include <chrono>
#include <string>

/// What readers of the directory are told, and when.

namespace handshake_durable_test {

using namespace troupe;
using namespace troupe::handshake;
using namespace troupe::handshake::test;
using namespace std::chrono_literals;

using world = directory_world;

TEST_CASE("handshake directory: readers are told of a change when it is durable, and not before", "[handshake]") {
  directory_options options;
  options.hold_back = true;
  world w(options);
  w.publish(rank_of("a", 0));
  const auto first = w.state.last_change();
  // Who would not wait waits for the disk, whatever its deadline.
  CHECK_FALSE(w.fetch(fetch_of("a", 0)).has_value());
  CHECK_FALSE(w.fetch(fetch_of("a", 0, 5s)).has_value());
  REQUIRE(w.state.watch("", 1, w.now).has_value());
  w.pass(6s);
  CHECK(w.state.take_answers().empty());
  CHECK(w.state.take_updates(w.now).told.empty());
  // Others are none of it.
  CHECK(code(w.get(fetch_of("b", 0)).code) == errc::not_found);
  w.publish(rank_of("a", 0, 8));
  w.state.durable(first, w.now);
  CHECK(w.state.take_answers().empty());
  w.state.durable(w.state.last_change(), w.now);
  const auto answers = w.state.take_answers();
  REQUIRE(answers.size() == 2);
  for (const auto& [who, answer] : answers)
    CHECK(answer.incarnation == 8);
  CHECK(w.state.take_updates(w.now).told.size() == 1);
  CHECK(w.get(fetch_of("a", 0)).incarnation == 8);
  // A sign of life is no change for them; an end is.
  w.state.heartbeat({"a", 8, {}}, w.now);
  CHECK(w.get(fetch_of("a", 0)).incarnation == 8);
  w.state.withdraw({"a", 8}, w.now);
  CHECK_FALSE(w.fetch(fetch_of("a", 0)).has_value());
  w.state.durable(w.state.last_change(), w.now);
  CHECK(code(w.answer().code) == errc::not_found);
}

TEST_CASE("handshake directory: who waits for what is written down takes a place, and may go", "[handshake]") {
  directory_options options;
  options.hold_back = true;
  options.waiting_max = 1;
  world w(options);
  w.publish(rank_of("a", 0));
  CHECK_FALSE(w.fetch(fetch_of("a", 0)).has_value());
  CHECK(code(w.get(fetch_of("a", 0)).code) == errc::limit_exceeded);
  CHECK(w.state.stats().waits == 0);
  w.state.give_up(1);
  w.state.durable(w.state.last_change(), w.now);
  CHECK(w.state.take_answers().empty());
  CHECK_FALSE(w.state.next_deadline() == w.now);
}

TEST_CASE("handshake directory: many who wait for the same have their answers one after the other", "[handshake]") {
  world w;
  for (int i = 0; i < 100; ++i)
    CHECK_FALSE(w.fetch(fetch_of("a", 0, 5s)).has_value());
  w.publish(rank_of("a", 0));
  // They are made when they are asked for: who goes meanwhile has none.
  REQUIRE(w.state.next_answer().has_value());
  for (directory_state::number who = 50; who <= 100; ++who)
    w.state.give_up(who);
  CHECK(w.state.stats().waiting == 48);
  CHECK(w.state.take_answers().size() == 48);
  CHECK_FALSE(w.state.next_answer().has_value());
}

TEST_CASE("handshake directory: one may have several tags, or any", "[handshake]") {
  world w;
  w.publish(rank_of("a", 0));
  const auto tag = w.get(fetch_of("a", 0)).etag;
  const auto asked_with = [&](const std::string& tags, const std::string& engine = "a") {
    auto x = fetch_of(engine, 0);
    x.etag = tags;
    return w.get(x);
  };
  CHECK(asked_with(tag).not_modified);
  CHECK(asked_with("other," + tag).not_modified);
  CHECK(asked_with(tag + ",other").not_modified);
  CHECK(asked_with("*").not_modified);
  CHECK_FALSE(asked_with("other").not_modified);
  CHECK_FALSE(asked_with(tag.substr(1)).not_modified);
  CHECK(code(asked_with("*", "b").code) == errc::not_found);
}

} // namespace handshake_durable_test
