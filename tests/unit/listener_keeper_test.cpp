#include "actors/node/supervisor/listener_keeper.hpp"
#include "tests/catch.hpp"

namespace listener_keeper_test {

using namespace troupe;

namespace {

/// Two files that a test removes, and whether they can be made again.
struct kept {
  struct state {
    bool there = true;
    bool can_be_made = true;
    int made = 0;
  };

  listener_keeper::file file(const char* name, state& of) {
    return {name, [&of] { return of.there; },
            [&of]() -> result<void> {
              if (!of.can_be_made)
                return fail(errc::busy, "something else is there");
              of.there = true;
              ++of.made;
              return {};
            }};
  }

  std::shared_ptr<node_condition> condition = std::make_shared<node_condition>();
  state socket;
  state lock;
  listener_keeper keeper{condition, {file("the socket /x/s", socket), file("the lock of /x", lock)}};
};

} // namespace

TEST_CASE("listener keeper: a removed socket is created again, once, with a warning", "[listener_keeper]") {
  kept x;
  CHECK(x.keeper.look().empty());
  x.socket.there = false;
  const auto said = x.keeper.look();
  REQUIRE(said.size() == 1);
  for (const auto* part : {"the socket /x/s", "recreated", "systemd-tmpfiles"})
    CHECK(said[0].find(part) != std::string::npos);
  CHECK(x.socket.made == 1);
  CHECK(x.lock.made == 0);
  CHECK_FALSE(x.condition->has(trouble::socket_lost));
  CHECK(x.keeper.look().empty());
}

TEST_CASE("listener keeper: while a socket cannot be created the node reports it, retries, and reports the recovery",
          "[listener_keeper]") {
  kept x;
  x.socket.there = x.lock.there = false;
  x.socket.can_be_made = x.lock.can_be_made = false;
  CHECK(x.keeper.look().size() == 2);
  CHECK(x.condition->has(trouble::socket_lost));
  CHECK(x.condition->ready()); // it serves connected clients
  REQUIRE(x.condition->degradations().size() == 2);
  CHECK(x.condition->degradations()[0].find("something else is there") != std::string::npos);
  CHECK(x.keeper.look().empty()); // reported once
  x.lock.can_be_made = true;
  CHECK(x.keeper.look().size() == 1);
  CHECK(x.condition->degradations().size() == 1);
  // Another process put it back.
  x.socket.there = true;
  CHECK(x.keeper.look().size() == 1);
  CHECK_FALSE(x.condition->has(trouble::socket_lost));
  CHECK(x.keeper.look().empty());
}

} // namespace listener_keeper_test
