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

struct desk {
  explicit desk(std::vector<std::uint64_t> numbers = {}) : drawn(std::move(numbers)) {}

  node_state::options options() {
    node_state::options out;
    out.spaces = {spec("small"), spec("other")};
    out.protocol = 4;
    out.max_clients = 3;
    out.draw = [this] { return next < drawn.size() ? drawn[next++] : 1000 + next++; };
    return out;
  }

  result<node_state::arrival> attach(node_state::link_number link, const std::string& space = "") {
    return rules.attach({4, "client " + std::to_string(link), space}, link);
  }

  std::vector<owner_id> departed() {
    std::vector<owner_id> out;
    for (const auto& x : rules.take_departures())
      out.push_back(x.owner);
    return out;
  }

  std::vector<std::uint64_t> drawn;
  std::size_t next = 0;
  node_state rules{options()};
};

} // namespace

TEST_CASE("node: a client gets the namespace it names, or the first", "[node_state]") {
  desk w;
  CHECK(w.attach(1)->space == 0);
  CHECK(w.attach(2, "other")->space == 1);
  const auto refused = w.attach(3, "tiny");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unknown_namespace);
  for (const auto* name : {"tiny", "small", "other"})
    CHECK(refused.error().text.find(name) != std::string::npos);
  CHECK(w.rules.attach({3, "old", ""}, 4).error().code == errc::unsupported);
  CHECK(w.rules.clients() == 2);
}

TEST_CASE("node: an owner id is never 0 and never somebody else's", "[node_state]") {
  desk w({7, 0, 7, 0, 8});
  CHECK(w.attach(1)->owner == 7);
  CHECK(w.attach(2)->owner == 8);
}

TEST_CASE("node: a link that attaches again replaces itself, whatever the limit", "[node_state]") {
  desk w;
  for (node_state::link_number link = 1; link <= 3; ++link)
    REQUIRE(w.attach(link));
  CHECK(w.attach(4).error().code == errc::limit_exceeded);
  CHECK(w.departed().empty());
  const auto second = w.attach(2);
  REQUIRE(second);
  const auto gone = w.rules.take_departures();
  REQUIRE(gone.size() == 1);
  CHECK(gone[0].name == "client 2");
  CHECK(gone[0].owner != second->owner);
  CHECK(w.rules.take_departures().empty());
  CHECK(w.rules.clients() == 3);
}

TEST_CASE("node: a client leaves by its own link only, and once", "[node_state]") {
  desk w;
  const auto owner = w.attach(1)->owner;
  REQUIRE(w.attach(2));
  CHECK(w.rules.leave(owner, 2).error().code == errc::not_found);
  CHECK(w.rules.leave(owner + 1000, 1).error().code == errc::not_found);
  CHECK(w.departed().empty());
  CHECK(w.rules.leave(owner, 1));
  CHECK(w.departed() == std::vector{owner});
  CHECK(w.rules.leave(owner, 1).error().code == errc::not_found);
  w.rules.link_gone(1);
  CHECK(w.departed().empty());
}

TEST_CASE("node: a drain is over when the last part is at rest, and nobody attaches meanwhile", "[node_state]") {
  desk w;
  const auto owner = w.attach(1)->owner;
  CHECK_FALSE(w.rules.at_rest());
  CHECK(w.rules.drain(2));
  CHECK_FALSE(w.rules.drain(2));
  CHECK(w.attach(2).error().code == errc::shutting_down);
  w.rules.part_at_rest();
  CHECK_FALSE(w.rules.at_rest());
  w.rules.part_at_rest();
  CHECK(w.rules.at_rest());
  // Whoever was attached still leaves.
  CHECK(w.rules.leave(owner, 1));
  desk empty;
  CHECK(empty.rules.drain(0));
  CHECK(empty.rules.at_rest());
}

TEST_CASE("node: whoever attached has departed or is there, and no owner id comes twice", "[node_state]") {
  std::mt19937 random(GENERATE(range(1U, 11U)));
  desk w;
  std::map<node_state::link_number, owner_id> attached;
  std::set<owner_id> ever;
  for (int step = 0; step < 500; ++step) {
    const node_state::link_number link = 1 + random() % 5;
    const auto before = attached.find(link);
    std::vector<owner_id> expected;
    if (before != attached.end())
      expected.push_back(before->second);
    switch (random() % 3) {
    case 0:
      attached.erase(link);
      if (const auto x = w.attach(link)) {
        CHECK(ever.insert(x->owner).second);
        attached.emplace(link, x->owner);
      } else {
        CHECK(attached.size() == 3);
      }
      break;
    case 1:
      w.rules.link_gone(link);
      attached.erase(link);
      break;
    default:
      CHECK(w.rules.leave(expected.empty() ? 1 : expected[0], link).has_value() == !expected.empty());
      attached.erase(link);
    }
    CHECK(w.departed() == expected);
    CHECK(w.rules.clients() == attached.size());
  }
}

} // namespace node_state_test
