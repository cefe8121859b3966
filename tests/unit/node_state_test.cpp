#include "actors/node/supervisor/node_state.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace node_state_test {

using namespace troupe;

namespace {

namespace_spec spec(const std::string& name) {
  namespace_spec out;
  out.name = name;
  return out;
}

struct harness {
  explicit harness(std::vector<std::uint64_t> numbers = {}) : drawn(std::move(numbers)) {}

  node_state::options options() {
    node_state::options out;
    out.namespaces = {spec("small"), spec("other")};
    out.protocol = 4;
    out.max_clients = 3;
    out.draw = [this] { return next < drawn.size() ? drawn[next++] : 1000 + next++; };
    out.end_asking = [this](owner_id x) {
      ended.push_back(x);
      return !silent;
    };
    return out;
  }

  result<node_state::arrival> attach(node_state::link_number link, const std::string& ns = "") {
    return rules.attach({4, "client " + std::to_string(link), ns}, link, now);
  }
  void link_disconnected(node_state::link_number link) { rules.link_disconnected(link, now); }
  result<void> leave(owner_id owner, node_state::link_number link) { return rules.leave(owner, link, now); }
  /// Quiesces all disconnected clients.
  void settle() {
    for (const auto owner : rules.disconnected())
      CHECK(rules.owner_quiesced(owner));
  }

  std::vector<owner_id> disconnected() {
    std::vector<owner_id> out;
    for (const auto& x : rules.take_disconnected())
      out.push_back(x.owner);
    return out;
  }

  std::vector<std::uint64_t> drawn;
  std::size_t next = 0;
  timestamp now{};
  /// Clients ask for nothing.
  bool silent = false;
  std::vector<owner_id> ended;
  node_state rules{options()};
};

} // namespace

TEST_CASE("node: a client gets the namespace it names or the first one", "[node_state]") {
  harness w;
  CHECK(w.attach(1)->ns == 0);
  CHECK(w.attach(2, "other")->ns == 1);
  const auto refused = w.attach(3, "tiny");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unknown_namespace);
  for (const auto* name : {"tiny", "small", "other"})
    CHECK(refused.error().text.find(name) != std::string::npos);
  CHECK(w.rules.attach({3, "old", ""}, 4, w.now).error().code == errc::unsupported);
  CHECK(w.rules.clients() == 2);
}

TEST_CASE("node: an owner id is never 0 and never in use by another client", "[node_state]") {
  harness w({7, 0, 7, 0, 8});
  CHECK(w.attach(1)->owner == 7);
  CHECK(w.attach(2)->owner == 8);
}

TEST_CASE("node: a link that attaches again replaces itself, whatever the limit", "[node_state]") {
  harness w;
  w.silent = true; // so it is quiesced at once
  for (node_state::link_number link = 1; link <= 3; ++link)
    REQUIRE(w.attach(link));
  CHECK(w.attach(4).error().code == errc::limit_exceeded);
  CHECK(w.disconnected().empty());
  const auto second = w.attach(2);
  REQUIRE(second);
  const auto gone = w.rules.take_disconnected();
  REQUIRE(gone.size() == 1);
  CHECK(gone[0].name == "client 2");
  CHECK(gone[0].owner != second->owner);
  CHECK(w.rules.take_disconnected().empty());
  CHECK(w.rules.clients() == 3);
}

TEST_CASE("node: a client detaches by its own link only, and once", "[node_state]") {
  harness w;
  const auto owner = w.attach(1)->owner;
  REQUIRE(w.attach(2));
  CHECK(w.leave(owner, 2).error().code == errc::not_found);
  CHECK(w.leave(owner + 1000, 1).error().code == errc::not_found);
  CHECK(w.disconnected().empty());
  CHECK(w.leave(owner, 1));
  CHECK(w.disconnected() == std::vector{owner});
  CHECK(w.leave(owner, 1).error().code == errc::not_found);
  w.link_disconnected(1);
  CHECK(w.disconnected().empty());
}

TEST_CASE("node: a client lingers if its process has not ended some seconds after it has detached", "[node_state]") {
  harness w;
  REQUIRE(w.attach(1));
  REQUIRE(w.attach(2));
  w.link_disconnected(1);
  CHECK(w.rules.disconnected_clients() == 1);
  CHECK(w.rules.lingering_clients(w.now) == 0);
  const auto end = w.now + node_state::linger_time;
  CHECK(w.rules.lingering_clients(end - duration{1}) == 0);
  CHECK(w.rules.lingering_clients(end) == 1);
  w.settle();
  CHECK(w.rules.lingering_clients(end) == 0);
}

TEST_CASE("node: a disconnected client is listed until it is quiesced, and is quiesced once", "[node_state]") {
  harness w;
  const auto owner = w.attach(1)->owner;
  CHECK(w.rules.owner_quiesced(owner).error().code == errc::busy);
  CHECK(w.rules.disconnected().empty());
  w.link_disconnected(1);
  CHECK(w.ended == std::vector{owner});
  CHECK(w.rules.disconnected() == std::vector{owner});
  CHECK(w.rules.disconnected_clients() == 1);
  CHECK(w.rules.clients() == 0);
  CHECK(w.disconnected() == std::vector{owner});
  CHECK(w.rules.take_quiesced().empty());
  CHECK(w.rules.owner_quiesced(owner));
  CHECK(w.rules.disconnected_clients() == 0);
  CHECK(w.rules.take_quiesced() == std::vector{owner});
  CHECK(w.rules.owner_quiesced(owner));
  CHECK(w.rules.owner_quiesced(owner + 1000));
  CHECK(w.rules.take_quiesced().empty());
}

TEST_CASE("node: no client is quiesced before its disconnect is reported", "[node_state]") {
  harness w;
  const auto owner = w.attach(1)->owner;
  w.link_disconnected(1);
  CHECK(w.rules.owner_quiesced(owner));
  CHECK(w.rules.take_quiesced().empty());
  CHECK(w.disconnected() == std::vector{owner});
  CHECK(w.rules.take_quiesced() == std::vector{owner});
}

TEST_CASE("node: a client without any request is quiesced when it disconnects", "[node_state]") {
  harness w;
  w.silent = true;
  const auto owner = w.attach(1)->owner;
  w.link_disconnected(1);
  CHECK(w.rules.disconnected().empty());
  CHECK(w.disconnected() == std::vector{owner});
  CHECK(w.rules.take_quiesced() == std::vector{owner});
}

TEST_CASE("node: disconnected clients count towards the limit, and the error says so", "[node_state]") {
  harness w;
  for (node_state::link_number link = 1; link <= 3; ++link)
    REQUIRE(w.attach(link));
  w.link_disconnected(1);
  w.link_disconnected(2);
  const auto e = w.attach(4).error();
  CHECK(e.code == errc::limit_exceeded);
  for (const auto* part : {"1 clients are attached", "2 have disconnected", "io.max_clients"})
    CHECK(e.text.find(part) != std::string::npos);
  // Its own predecessor counts too: the link has to report first that it is quiesced.
  CHECK(w.attach(3).error().code == errc::limit_exceeded);
  CHECK(w.rules.disconnected_clients() == 3);
  w.settle();
  CHECK(w.attach(3));
  CHECK(w.attach(4));
}

TEST_CASE("node: the owner id of a client that is not quiesced is not reused", "[node_state]") {
  harness w({7, 7, 8});
  CHECK(w.attach(1)->owner == 7);
  w.link_disconnected(1);
  CHECK(w.attach(2)->owner == 8);
}

TEST_CASE("node: a client that does not quiesce is reported once", "[node_state]") {
  harness w;
  const auto owner = w.attach(1)->owner;
  w.now += std::chrono::hours(1);
  w.link_disconnected(1);
  CHECK(w.rules.take_overdue(w.now + node_state::quiesce_expected - duration(1)).empty());
  const auto overdue = w.rules.take_overdue(w.now + node_state::quiesce_expected);
  REQUIRE(overdue.size() == 1);
  CHECK(overdue[0].owner == owner);
  CHECK(overdue[0].name == "client 1");
  CHECK(w.rules.take_overdue(w.now + std::chrono::hours(1)).empty());
}

TEST_CASE("node: a drain ends when the last part is drained, and no client attaches meanwhile", "[node_state]") {
  harness w;
  const auto owner = w.attach(1)->owner;
  CHECK_FALSE(w.rules.quiesced());
  CHECK(w.rules.drain(2));
  CHECK_FALSE(w.rules.drain(2));
  CHECK(w.attach(2).error().code == errc::shutting_down);
  w.rules.part_quiesced();
  CHECK_FALSE(w.rules.quiesced());
  w.rules.part_quiesced();
  CHECK(w.rules.quiesced());
  // An attached client can still leave.
  CHECK(w.leave(owner, 1));
  harness empty;
  CHECK(empty.rules.drain(0));
  CHECK(empty.rules.quiesced());
}

TEST_CASE("node: every client is attached or disconnected, and no owner id is reused", "[node_state]") {
  std::mt19937 random(GENERATE(range(1U, 11U)));
  harness w;
  std::map<node_state::link_number, owner_id> attached;
  std::set<owner_id> ever;
  std::set<owner_id> unquiesced;
  for (int step = 0; step < 500; ++step) {
    const node_state::link_number link = 1 + random() % 5;
    const auto before = attached.find(link);
    std::vector<owner_id> expected;
    if (before != attached.end())
      expected.push_back(before->second);
    switch (random() % 4) {
    case 0:
      attached.erase(link);
      if (const auto x = w.attach(link)) {
        CHECK(ever.insert(x->owner).second);
        attached.emplace(link, x->owner);
      } else {
        CHECK(attached.size() + unquiesced.size() + expected.size() == 3);
      }
      break;
    case 1:
      w.link_disconnected(link);
      attached.erase(link);
      break;
    case 2:
      if (!unquiesced.empty()) {
        CHECK(w.rules.owner_quiesced(*unquiesced.begin()));
        CHECK(w.rules.take_quiesced() == std::vector{*unquiesced.begin()});
        unquiesced.erase(unquiesced.begin());
      }
      expected.clear();
      break;
    default:
      CHECK(w.leave(expected.empty() ? 1 : expected[0], link).has_value() == !expected.empty());
      attached.erase(link);
    }
    CHECK(w.disconnected() == expected);
    unquiesced.insert(expected.begin(), expected.end());
    CHECK(w.rules.take_quiesced().empty());
    CHECK(w.rules.clients() == attached.size());
    const auto disconnected = w.rules.disconnected();
    CHECK(std::set<owner_id>(disconnected.begin(), disconnected.end()) == unquiesced);
  }
}

TEST_CASE("node: a client that specifies a whole namespace gets that one, whatever its name", "[node_state]") {
  harness w;
  const auto whole = [](const std::string& name, const std::string& model) {
    auto out = spec(name);
    out.model = model;
    return out;
  };
  const auto caller = [&](const namespace_spec& ns, bool make) {
    return node_state::caller{4, "client", "says nothing", ns, make};
  };
  const auto mine = whole("mine", "a model");
  CHECK_FALSE(w.rules.is_to_make(caller(mine, false)));
  CHECK(w.rules.is_to_make(caller(mine, true)));
  CHECK(w.rules.attach(caller(mine, true), 1, w.now).error().code == errc::unknown_namespace);
  auto old = caller(mine, true);
  old.protocol = 3;
  CHECK_FALSE(w.rules.is_to_make(old));
  CHECK(w.rules.add_namespace(mine) == 2);
  CHECK_FALSE(w.rules.is_to_make(caller(mine, true)));
  CHECK(w.rules.attach(caller(mine, true), 1, w.now)->ns == 2);
  CHECK(w.rules.attach(caller(whole("another name", "a model"), false), 2, w.now)->ns == 2);
  const auto other = w.rules.attach(caller(whole("mine", "another model"), true), 3, w.now);
  REQUIRE_FALSE(other);
  CHECK(other.error().code == errc::identity_mismatch);
  CHECK(other.error().text.find("differs in model;") != std::string::npos);
  CHECK_FALSE(w.rules.is_to_make(caller(whole("mine", "another model"), true)));
}

TEST_CASE("node: a namespace that clients created is closed, reopened and removed, and one in the config is not",
          "[node_state]") {
  harness w;
  auto mine = spec("mine");
  mine.model = "a model";
  w.rules.add_namespace(mine);
  const auto id = mine.id();
  CHECK(w.rules.close_namespace(spec("small").id(), true, w.now).error().code == errc::unknown_namespace);
  const auto owner = w.attach(1, "mine")->owner;
  CHECK(w.rules.close_namespace(id, false, w.now).error().code == errc::busy);
  CHECK(w.rules.clients() == 1);
  CHECK(w.rules.close_namespace(id, true, w.now));
  CHECK(w.disconnected() == std::vector<owner_id>{owner});
  CHECK(w.attach(2, "mine").error().code == errc::unknown_namespace);
  CHECK(w.rules.attach({4, "client", "", mine, true}, 2, w.now).error().code == errc::busy);
  w.rules.reopen_namespace(id);
  CHECK(w.attach(2, "mine")->ns == 2);
  w.link_disconnected(2);
  CHECK(w.rules.close_namespace(id, false, w.now));
  w.rules.remove_namespace(id);
  CHECK_FALSE(w.rules.index_of(id));
  CHECK(w.rules.is_to_make({4, "client", "", mine, true}));
  // Places are few, however often one is made and removed.
  for (int i = 0; i < 3; ++i) {
    CHECK(w.rules.add_namespace(mine) == 2);
    const auto last = w.attach(3, "mine");
    REQUIRE(last);
    CHECK(last->ns == 2);
    w.link_disconnected(3);
    CHECK(w.rules.owner_quiesced(last->owner));
    CHECK(w.rules.close_namespace(id, false, w.now));
    w.rules.remove_namespace(id);
  }
}

} // namespace node_state_test
