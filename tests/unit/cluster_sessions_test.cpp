#include "actors/cluster/pages/session_rules.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

#include <map>
#include <string>
#include <vector>

namespace cluster_sessions_test {

namespace {

using namespace troupe;
using namespace troupe::cluster;
using test::ms;
using test::t0;
using test::test_namespace;

constexpr auto pause = 100 * ms;
constexpr namespace_id other_namespace{44, 44};

/// A node with two peers, whose replies the test defines.
struct connected_node {
  connected_node()
      : peers({{"ours", "here", 1}, 10 * ms, 10 * ms, 40 * ms, 1}, {"first", "second"}),
        pages({50 * ms, 200 * ms, 1000 * ms, 4, 8, 16,
               [](const namespace_id&) { return std::vector<peer_number>{0}; }}) {}

  void says(peer_number peer, std::uint64_t incarnation, std::vector<cluster_namespace> namespaces) {
    now += 20 * ms;
    peers.on_time(now);
    for (const auto& effect : peers.take_outbox())
      if (const auto* const hello = std::get_if<say_hello>(&effect))
        peers.on_answer(hello->peer, hello->number,
                        hello->peer == peer ? result<cluster_welcome>({{"ours", "peer", incarnation}, namespaces})
                                            : fail(errc::unreachable, "nobody"),
                        now);
  }
  std::vector<std::string> follow() {
    rules.follow(here, peers, pages, now);
    std::vector<std::string> out;
    for (const auto& effect : rules.take_outbox())
      if (const auto* const x = std::get_if<open_namespace>(&effect))
        out.push_back("open " + x->name);
      else if (const auto* const y = std::get_if<open_session>(&effect))
        out.push_back("tie to " + y->name);
      else if (const auto* const z = std::get_if<leave_session>(&effect))
        out.push_back("leave tie to " + std::to_string(z->session.first));
      else
        out.emplace_back("leave");
    return out;
  }
  void open_here() {
    pages.add_namespace(test_namespace, 4096, 1, 8);
    rules.on_namespace_opened(test_namespace, true, now);
  }
  /// Opens the namespace with a session to the first peer.
  void open_all() {
    says(0, 5, {{test_namespace, "there"}});
    CHECK(follow() == names{"open mine"});
    open_here();
    CHECK(follow() == names{"tie to there"});
    rules.on_session_opened(session, {}, now);
  }

  using names = std::vector<std::string>;
  const session_name session{0, test_namespace};
  membership peers;
  fetching pages;
  session_rules rules{pause};
  std::map<namespace_id, std::string> here{{test_namespace, "mine"}};
  timestamp now = t0;
};

using names = connected_node::names;

} // namespace

TEST_CASE("peer sessions: a namespace that both nodes have is opened here first, then at the peer", "[cluster]") {
  connected_node x;
  CHECK(x.follow().empty());
  x.says(0, 5, {{other_namespace, "not here"}});
  CHECK(x.follow().empty());
  x.open_all();
  CHECK(x.rules.is_open(test_namespace));
  CHECK(x.rules.is_open(x.session));
  CHECK(x.rules.open_sessions(0) == 1);
  CHECK(x.rules.open_sessions(1) == 0);
  CHECK(x.rules.name_of(test_namespace) == "mine");
  CHECK(x.follow().empty());
}

TEST_CASE("peer sessions: a reply that does not match the local namespace opens no session", "[cluster]") {
  kv_geometry geometry;
  geometry.layers = 4;
  namespace_shape reply{test_namespace, geometry, {0, 1}};
  const auto code = [&] {
    const auto fits = check_session(reply, test_namespace, geometry, 2);
    return fits ? errc::ok : fits.error().code;
  };
  CHECK(code() == errc::ok);
  SECTION("fewer ranks") {
    reply.ranks.pop_back();
    CHECK(code() == errc::identity_mismatch);
  }
  SECTION("no ranks") {
    reply.ranks.clear();
    CHECK(code() == errc::identity_mismatch);
  }
  SECTION("more ranks") {
    reply.ranks.push_back(2);
    CHECK(code() == errc::identity_mismatch);
  }
  SECTION("other ranks") {
    reply.ranks[1] = 7;
    CHECK(code() == errc::identity_mismatch);
  }
  SECTION("one rank twice") {
    reply.ranks[1] = 0;
    CHECK(code() == errc::identity_mismatch);
  }
  SECTION("larger pages") {
    reply.geometry.layers = 1U << 30U;
    CHECK(code() == errc::identity_mismatch);
  }
  SECTION("another namespace") {
    reply.id = other_namespace;
    CHECK(code() == errc::identity_mismatch);
  }
}

TEST_CASE("peer sessions: a failed open is retried after a pause", "[cluster]") {
  connected_node x;
  x.says(0, 5, {{test_namespace, "there"}});
  CHECK(x.follow() == names{"open mine"});
  CHECK(x.follow().empty());
  x.rules.on_namespace_opened(test_namespace, false, x.now);
  CHECK(x.follow().empty());
  x.now += pause;
  CHECK(x.follow() == names{"open mine"});
  x.open_here();
  CHECK(x.follow() == names{"tie to there"});
  x.rules.on_session_opened(x.session, fail(errc::io_error, "its memory is not reached"), x.now);
  CHECK(x.follow().empty());
  CHECK_FALSE(x.rules.is_open(x.session));
  x.now += pause;
  CHECK(x.follow() == names{"tie to there"});
}

TEST_CASE("peer sessions: a peer of which no session can be opened is in trouble until one is, and that is new once",
          "[cluster]") {
  connected_node x;
  const auto failed = [&](const char* why) {
    return x.rules.on_session_opened(x.session, fail(errc::io_error, why), x.now);
  };
  x.open_all();
  CHECK(x.rules.trouble(0).empty());
  x.rules.on_answered(x.session, false, x.now);
  x.now += pause;
  CHECK(x.follow() == names{"leave tie to 0", "tie to there"});
  CHECK(failed("port 1 is not reached"));
  CHECK(x.rules.trouble(0) == "port 1 is not reached");
  CHECK(x.rules.trouble(1).empty());
  for (int i = 0; i < 3; ++i) {
    x.now += pause;
    CHECK(x.follow() == names{"tie to there"});
    CHECK(x.rules.trouble(0) == (i == 0 ? "port 1 is not reached" : "port 2 is not reached"));
    CHECK_FALSE(failed("port 2 is not reached"));
  }
  x.now += pause;
  x.follow();
  CHECK_FALSE(x.rules.on_session_opened(x.session, {}, x.now));
  CHECK(x.rules.trouble(0).empty());
  CHECK(x.rules.open_sessions(0) == 1);
}

TEST_CASE("peer sessions: one session that cannot be opened beside another one is no trouble of the peer",
          "[cluster]") {
  connected_node x;
  x.here = {{test_namespace, "mine"}, {other_namespace, "my other"}};
  x.says(0, 5, {{test_namespace, "one"}, {other_namespace, "two"}});
  x.follow();
  for (const auto& id : {test_namespace, other_namespace}) {
    x.pages.add_namespace(id, 4096, 1, 8);
    x.rules.on_namespace_opened(id, true, x.now);
  }
  x.follow();
  x.rules.on_session_opened({0, test_namespace}, {}, x.now);
  x.follow();
  CHECK(x.rules.on_session_opened({0, other_namespace}, fail(errc::identity_mismatch, "other pages"), x.now));
  CHECK(x.rules.trouble(0).empty());
  x.now += pause;
  x.follow();
  CHECK_FALSE(x.rules.on_session_opened({0, other_namespace}, fail(errc::identity_mismatch, "other pages"), x.now));
}

TEST_CASE("peer sessions: namespaces of a peer are opened one by one, and a failure pauses all of them", "[cluster]") {
  connected_node x;
  x.here = {{test_namespace, "mine"}, {other_namespace, "my other"}};
  const std::vector<cluster_namespace> both{{test_namespace, "one"}, {other_namespace, "two"}};
  x.says(0, 5, both);
  CHECK(x.follow().size() == 2);
  for (const auto& id : {test_namespace, other_namespace}) {
    x.pages.add_namespace(id, 4096, 1, 8);
    x.rules.on_namespace_opened(id, true, x.now);
  }
  CHECK(x.follow() == names{"tie to one"});
  CHECK(x.follow().empty());
  x.rules.on_session_opened({0, test_namespace}, fail(errc::io_error, "its memory is not reached"), x.now);
  CHECK(x.follow().empty());
  x.now += pause - ms;
  CHECK(x.follow().empty());
  // The one that was not tried yet comes first, since one that always fails would block it.
  x.now += ms;
  CHECK(x.follow() == names{"tie to two"});
  CHECK(x.follow().empty());
  x.rules.on_session_opened({0, other_namespace}, {}, x.now);
  CHECK(x.follow() == names{"tie to one"});
  x.rules.on_session_opened({0, test_namespace}, fail(errc::io_error, "its memory is not reached"), x.now);
  CHECK(x.follow().empty());
  // The pause is that of one run.
  x.says(0, 6, both);
  CHECK(x.follow() == names{"leave tie to 0", "tie to two"});
}

TEST_CASE("peer sessions: a peer that cannot be attached to does not affect other peers", "[cluster]") {
  connected_node x;
  x.open_all();
  x.rules.on_answered(x.session, false, x.now);
  x.now += pause;
  CHECK(x.follow() == names{"leave tie to 0", "tie to there"});
  x.rules.on_session_opened(x.session, fail(errc::io_error, "its memory is not reached"), x.now);
  x.says(1, 9, {{test_namespace, "at the second"}});
  CHECK(x.follow() == names{"tie to at the second"});
}

TEST_CASE("peer sessions: a session belongs to one run of a peer and ends when its namespace is removed there",
          "[cluster]") {
  connected_node x;
  x.open_all();
  x.says(0, 6, {{test_namespace, "there"}});
  CHECK(x.follow() == names{"leave tie to 0", "tie to there"});
  // The peer has restarted again during the opening.
  x.says(0, 7, {{test_namespace, "there"}});
  CHECK(x.follow().empty());
  x.rules.on_session_opened(x.session, {}, x.now);
  CHECK(x.follow() == names{"leave tie to 0", "tie to there"});
  x.rules.on_session_opened(x.session, {}, x.now);
  x.says(0, 7, {});
  CHECK(x.follow() == names{"leave tie to 0"});
  CHECK(x.rules.is_open(test_namespace));
}

TEST_CASE("peer sessions: a session without answers for a while is reopened, one that answers again is not",
          "[cluster]") {
  connected_node x;
  x.open_all();
  x.rules.on_answered(x.session, false, x.now);
  x.rules.on_answered(x.session, true, x.now);
  x.now += 2 * pause;
  CHECK(x.follow().empty());
  x.rules.on_answered(x.session, false, x.now);
  x.now += pause / 2;
  x.rules.on_answered(x.session, false, x.now);
  CHECK(x.follow().empty());
  x.now += pause / 2;
  CHECK(x.follow() == names{"leave tie to 0", "tie to there"});
}

TEST_CASE("peer sessions: a removed namespace is closed when no transfer in its memory is in progress", "[cluster]") {
  connected_node x;
  x.open_all();
  x.pages.wanted_prefix({test_namespace, {}, packed<key_digest>({{1, 2}})}, x.now);
  const auto asked = x.pages.take_outbox();
  REQUIRE(asked.size() == 1);
  x.here.clear();
  CHECK(x.follow() == names{"leave tie to 0"});
  CHECK(x.follow().empty());
  // It exists again before that: it is still closed and opened again.
  x.here = {{test_namespace, "mine"}};
  CHECK(x.follow().empty());
  x.pages.on_tick(x.now);
  CHECK_FALSE(x.pages.is_in_use(test_namespace));
  CHECK(x.follow() == names{"leave"});
  CHECK(x.follow() == names{"open mine"});
  x.open_here();
  CHECK(x.pages.is_in_use(test_namespace));
  CHECK(x.follow() == names{"tie to there"});
}

TEST_CASE("peer sessions: a client that was disconnected is opened again with its sessions", "[cluster]") {
  connected_node x;
  x.open_all();
  x.rules.on_namespace_lost(test_namespace);
  CHECK(x.follow() == names{"leave tie to 0", "leave"});
  CHECK(x.follow() == names{"open mine"});
  x.open_here();
  CHECK(x.follow() == names{"tie to there"});
}

TEST_CASE("peer sessions: a namespace of a dead node is opened here without any peer", "[cluster][adopted]") {
  connected_node x;
  CHECK(x.follow().empty());
  x.rules.follow(x.here, x.peers, x.pages, x.now, {test_namespace, other_namespace});
  const auto wanted = x.rules.take_outbox();
  REQUIRE(wanted.size() == 1);
  CHECK(std::get<open_namespace>(wanted[0]).ns == test_namespace);
  x.open_here();
  x.rules.follow(x.here, x.peers, x.pages, x.now, {test_namespace});
  CHECK(x.rules.take_outbox().empty());
  CHECK(x.rules.is_open(test_namespace));
  // Sessions that are open stay open.
  CHECK(x.follow().empty());
  CHECK(x.rules.is_open(test_namespace));
}

} // namespace cluster_sessions_test
