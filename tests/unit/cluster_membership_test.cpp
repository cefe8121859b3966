#include "actors/cluster/peers/membership.hpp"
#include "actors/cluster/peers/seed_names.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

#include <string>
#include <vector>

namespace cluster_membership_test {

namespace {

using namespace troupe;
using namespace troupe::cluster;
using test::ms;
using test::t0;

constexpr duration hello_interval = 100 * ms;

struct circle {
  explicit circle(std::size_t peers = 2)
      : members({{"ours", "self", 1}, hello_interval, 10 * ms, 80 * ms, 7}, addresses(peers)), effects(members) {}

  static std::vector<std::string> addresses(std::size_t count) {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < count; ++i)
      out.push_back("host-" + std::to_string(i) + ":7000");
    return out;
  }

  /// The hello in progress to that peer.
  say_hello hello(peer_number peer, timestamp now) {
    members.on_time(now);
    for (const auto& x : effects.take<say_hello>())
      if (x.peer == peer)
        return x;
    FAIL("no hello");
    return {};
  }
  cluster_welcome welcome(const char* name, std::uint64_t incarnation, const char* of = "ours") {
    return {{of, name, incarnation}, {{namespace_id{1, 2}, "chat"}}};
  }
  std::string one_line() {
    const auto all = effects.take<peer_news>();
    REQUIRE(all.size() == 1);
    return all.front().text;
  }

  membership members;
  test::effects_of<membership, membership_effect> effects;
};

} // namespace

TEST_CASE("membership: hello is sent to all nodes at once, and those that answer are used", "[cluster]") {
  circle x;
  x.members.on_time(t0);
  const auto hellos = x.effects.take<say_hello>();
  REQUIRE(hellos.size() == 2);
  x.members.on_time(t0);
  CHECK(x.effects.take<say_hello>().empty());
  CHECK_FALSE(x.members.is_up(0));
  x.members.on_answer(0, hellos[0].number, x.welcome("a", 5), t0);
  CHECK(x.members.is_up(0));
  CHECK(x.members.is_usable(0));
  CHECK_FALSE(x.members.is_up(1));
  CHECK(x.effects.take<peer_came>().size() == 1);
  CHECK(x.one_line() == "peer connected: node 'a' at host-0:7000 is available");
  CHECK(x.members.next_event() == t0 + hello_interval);
  // An unchanged list changes nothing.
  const auto next = x.hello(0, t0 + hello_interval);
  x.members.on_answer(0, next.number, x.welcome("a", 5), t0 + hello_interval);
  CHECK(x.effects.take<peer_came>().empty());
  CHECK(x.effects.take<peer_news>().empty());
}

TEST_CASE("membership: the round-trip time of a hello is known while the peer is up", "[cluster]") {
  circle x;
  CHECK(x.members.lag(0) == duration::zero());
  const auto first = x.hello(0, t0);
  CHECK(x.members.lag(0) == duration::zero());
  x.members.on_answer(0, first.number, x.welcome("a", 5), t0 + 30 * ms);
  CHECK(x.members.lag(0) == 30 * ms);
  const auto second = x.hello(0, t0 + 130 * ms);
  CHECK(x.members.lag(0) == 30 * ms);
  x.members.on_answer(0, second.number, x.welcome("a", 5), t0 + 132 * ms);
  CHECK(x.members.lag(0) == 2 * ms);
  CHECK(x.members.lag(1) == duration::zero());
  x.members.on_lost(0, t0 + 140 * ms);
  CHECK(x.members.lag(0) == duration::zero());
}

TEST_CASE("membership: a node recognizes itself in its own list and does not connect to itself", "[cluster]") {
  circle x(1);
  x.members.on_answer(0, x.hello(0, t0).number, x.welcome("self", 1), t0);
  CHECK(x.members.is_self(0));
  CHECK_FALSE(x.members.is_usable(0));
  CHECK(x.one_line() == "host-0:7000 is this node's own address; it is not used as a peer");
  CHECK(x.members.next_event() == timestamp::max());
  // Another node of the same name is another one.
  circle y(1);
  y.members.on_answer(0, y.hello(0, t0).number, y.welcome("self", 2), t0);
  CHECK_FALSE(y.members.is_self(0));
  CHECK(y.members.is_usable(0));
}

TEST_CASE("membership: a node that does not answer is unreachable, is retried with growing pauses, and returns",
          "[cluster]") {
  circle x(1);
  x.members.on_answer(0, x.hello(0, t0).number, x.welcome("a", 5), t0);
  x.effects.take<peer_news>();
  auto now = t0 + hello_interval;
  x.members.on_answer(0, x.hello(0, now).number, fail(errc::timeout, "it is silent"), now);
  CHECK_FALSE(x.members.is_up(0));
  CHECK(x.effects.take<peer_went>().size() == 1);
  CHECK(x.one_line() ==
        "peer disconnected: node 'a' at host-0:7000 (it is silent); its pages are unavailable until it returns");
  CHECK(x.members.trouble(0) == "it is silent");
  duration longest{};
  for (int i = 0; i < 20; ++i) {
    const auto at = x.members.next_event();
    REQUIRE(at > now);
    REQUIRE(at - now <= 80 * ms);
    longest = std::max(longest, at - now);
    now = at;
    x.members.on_answer(0, x.hello(0, now).number, fail(errc::unreachable, "connection refused"), now);
  }
  CHECK(longest >= 40 * ms);
  CHECK(x.effects.take<peer_news>().empty());
  now = x.members.next_event();
  x.members.on_answer(0, x.hello(0, now).number, x.welcome("a", 5), now);
  CHECK(x.one_line() == "peer connected: node 'a' at host-0:7000 is available again");
  x.members.on_lost(0, now);
  x.effects.take<peer_news>();
  now = x.members.next_event();
  x.members.on_answer(0, x.hello(0, now).number, x.welcome("a", 6), now);
  CHECK(x.one_line() == "peer connected: node 'a' at host-0:7000 is available after a restart");
}

TEST_CASE("membership: a late node is unusable until it has answered a hello", "[cluster]") {
  circle x(1);
  x.members.on_answer(0, x.hello(0, t0).number, x.welcome("a", 5), t0);
  x.members.on_late(0);
  CHECK(x.members.is_up(0));
  CHECK_FALSE(x.members.is_usable(0));
  const auto now = t0 + hello_interval;
  x.members.on_answer(0, x.hello(0, now).number, x.welcome("a", 5), now);
  CHECK(x.members.is_usable(0));
}

TEST_CASE("membership: the answer to a hello from before the connection loss changes nothing", "[cluster]") {
  circle x(1);
  x.members.on_answer(0, x.hello(0, t0).number, x.welcome("a", 5), t0);
  const auto now = t0 + hello_interval;
  const auto old = x.hello(0, now);
  x.members.on_lost(0, now);
  x.members.on_answer(0, old.number, x.welcome("a", 5), now);
  CHECK_FALSE(x.members.is_up(0));
  const auto next = x.hello(0, x.members.next_event());
  x.members.on_answer(0, old.number, x.welcome("a", 5), now);
  CHECK_FALSE(x.members.is_up(0));
  x.members.on_answer(0, next.number, x.welcome("a", 5), now);
  CHECK(x.members.is_up(0));
}

TEST_CASE("membership: a node of another cluster, or one that refuses, is reported once and retried", "[cluster]") {
  circle x;
  x.members.on_time(t0);
  const auto hellos = x.effects.take<say_hello>();
  x.members.on_answer(0, hellos[0].number, x.welcome("a", 5, "theirs"), t0);
  CHECK(x.one_line().find("part of cluster 'theirs', and this node of 'ours'") != std::string::npos);
  x.members.on_answer(1, hellos[1].number, fail(errc::not_owner, "no node's certificate"), t0);
  CHECK(x.one_line() == "no node of this cluster at host-1:7000: no node's certificate");
  CHECK(x.members.next_event() == t0 + 80 * ms);
  const auto again = x.hello(1, t0 + 80 * ms);
  x.members.on_answer(1, again.number, fail(errc::not_owner, "no node's certificate"), t0 + 80 * ms);
  CHECK(x.effects.take<peer_news>().empty());
}

TEST_CASE("membership: a node that is unreachable from the start is reported after several attempts", "[cluster]") {
  circle x(1);
  auto now = t0;
  std::size_t notified = 0;
  for (int i = 0; i < 10; ++i) {
    x.members.on_answer(0, x.hello(0, now).number, fail(errc::unreachable, "connection refused"), now);
    notified += x.effects.take<peer_news>().size();
    CHECK(notified == (i < 2 ? 0U : 1U));
    now = x.members.next_event();
  }
}

TEST_CASE("membership: a namespace that is created at a peer is seen", "[cluster]") {
  circle x(1);
  auto said = x.welcome("a", 5);
  x.members.on_answer(0, x.hello(0, t0).number, said, t0);
  x.effects.take<peer_came>();
  said.namespaces.push_back({namespace_id{3, 4}, "made"});
  const auto now = t0 + hello_interval;
  x.members.on_answer(0, x.hello(0, now).number, said, now);
  CHECK(x.effects.take<peer_came>().size() == 1);
  CHECK(x.members.namespaces(0).size() == 2);
}

TEST_CASE("membership: nodes of a list are added and removed, but a reachable node is not removed by the list",
          "[cluster]") {
  circle x(1);
  x.members.on_answer(0, x.hello(0, t0).number, x.welcome("seed", 3), t0);
  x.effects.take<peer_news>();
  // A node that is already known is not added twice.
  x.members.on_listed({"host-0:7000", "a:7000", "b:7000"}, t0);
  REQUIRE(x.members.numbers() == std::vector<peer_number>{0, 1, 2});
  CHECK(x.members.address(1) == "a:7000");
  x.members.on_time(t0);
  const auto hellos = x.effects.take<say_hello>();
  REQUIRE(hellos.size() == 2);
  x.members.on_answer(1, hellos[0].number, x.welcome("a", 5), t0);
  x.members.on_answer(2, hellos[1].number, fail(errc::unreachable, "connection refused"), t0);
  CHECK(x.members.is_usable(1));
  x.effects.take<peer_news>();
  // The list is lost: nodes that answer stay, and so do those of the config; others are removed.
  x.members.on_listed({}, t0);
  CHECK(x.members.numbers() == std::vector<peer_number>{0, 1});
  CHECK(x.members.is_usable(1));
  CHECK_FALSE(x.members.is_known(2));
  CHECK_FALSE(x.members.is_up(2));
  CHECK(x.members.address(2).empty());
  // Events of a removed node are ignored.
  x.members.on_answer(2, hellos[1].number, x.welcome("b", 6), t0);
  x.members.on_late(2);
  x.members.on_lost(2, t0);
  CHECK_FALSE(x.members.is_known(2));
  // A node that does not answer either is removed, and that is reported.
  x.members.on_lost(1, t0);
  CHECK_FALSE(x.members.is_known(1));
  const auto news = x.effects.take<peer_news>();
  REQUIRE(news.size() == 2);
  CHECK(news[1].text == "peer removed: node 'a' at a:7000 is not in the list of nodes any more and does not answer");
  // An unreachable seed is retried as long as the config names it.
  x.members.on_lost(0, t0);
  x.members.on_listed({}, t0);
  CHECK(x.members.is_known(0));
  // A node that comes back gets a new number.
  x.members.on_listed({"a:7000"}, t0);
  CHECK(x.members.numbers() == std::vector<peer_number>{0, 3});
}

TEST_CASE("membership: a listed unreachable node is retried until its lease has expired", "[cluster]") {
  circle x(0);
  x.members.on_listed({"a:7000"}, t0);
  x.members.on_answer(0, x.hello(0, t0).number, x.welcome("a", 5), t0);
  x.members.on_lost(0, t0);
  CHECK(x.members.is_known(0));
  CHECK_FALSE(x.members.trouble(0).empty());
  const auto now = x.members.next_event();
  x.members.on_answer(0, x.hello(0, now).number, x.welcome("a", 6), now);
  CHECK(x.members.is_usable(0));
  x.members.on_lost(0, now);
  x.members.on_listed({}, now);
  CHECK_FALSE(x.members.is_known(0));
  CHECK(x.members.next_event() == timestamp::max());
}

TEST_CASE("membership: a name with several addresses stands for as many nodes, and is resolved again", "[cluster]") {
  circle x(1);
  const std::string name = "host-0:7000";
  x.members.on_resolved(name, {"10.0.0.1:7000"}, t0);
  CHECK(x.members.numbers() == std::vector<peer_number>{0});
  x.members.on_resolved(name, {"10.0.0.1:7000", "10.0.0.2:7000"}, t0);
  CHECK(x.one_line() == "seed host-0:7000 has 2 addresses; each of them is used as a seed");
  CHECK(x.members.numbers() == std::vector<peer_number>{1, 2});
  CHECK_FALSE(x.members.is_known(0));
  // A node that finds itself among them goes on with the others.
  x.members.on_time(t0);
  const auto hellos = x.effects.take<say_hello>();
  REQUIRE(hellos.size() == 2);
  x.members.on_answer(1, hellos[0].number, x.welcome("self", 1), t0);
  CHECK(x.members.is_self(1));
  x.members.on_answer(2, hellos[1].number, x.welcome("other", 2), t0);
  CHECK(x.members.is_up(2));
  x.members.on_lost(2, t0);
  // Those of etcd's list are beside them, and a failure of the resolver changes nothing.
  x.members.on_listed({"10.0.0.9:7000"}, t0);
  x.members.on_resolved(name, {}, t0);
  CHECK(x.members.numbers() == std::vector<peer_number>{1, 2, 3});
  x.members.on_resolved(name, {"10.0.0.1:7000", "10.0.0.3:7000"}, t0);
  CHECK(x.members.numbers() == std::vector<peer_number>{1, 3, 4});
  x.effects.take<peer_news>();
  x.members.on_resolved(name, {"10.0.0.3:7000"}, t0);
  CHECK(x.members.address(5) == name);
  CHECK_FALSE(x.members.is_known(1));
}

TEST_CASE("membership: a name that gets a second address while its node is up is left, and is a peer once",
          "[cluster]") {
  circle x(1);
  const auto hello = x.hello(0, t0);
  x.members.on_answer(0, hello.number, x.welcome("other", 2), t0);
  REQUIRE(x.members.is_up(0));
  x.members.on_resolved("host-0:7000", {"10.0.0.1:7000", "10.0.0.2:7000"}, t0);
  CHECK(x.effects.take<peer_went>().size() == 1);
  CHECK(x.members.numbers() == std::vector<peer_number>{1, 2});
}

TEST_CASE("seeds: a host with an address of each family is one node", "[cluster]") {
  const auto addresses = [](const std::vector<std::string>& hosts) {
    std::vector<socket_address> out;
    for (const auto& x : hosts)
      out.push_back(resolve_host(x, 7000)->front());
    return nodes_of_name(out, 7000);
  };
  CHECK(addresses({"::1", "127.0.0.1"}) == std::vector<std::string>{"[::1]:7000"});
  CHECK(addresses({"127.0.0.1", "127.0.0.3", "::1"}) == std::vector<std::string>{"127.0.0.1:7000", "127.0.0.3:7000"});
  CHECK(addresses({"127.0.0.1", "127.0.0.1"}).size() == 1);
  CHECK(addresses({}).empty());
}

} // namespace cluster_membership_test
