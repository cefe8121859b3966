#include "actors/node/memory/memory_broker_state.hpp"
#include "tests/catch.hpp"

#include <chrono>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace memory_broker_state_test {

namespace {

using namespace troupe;
using std::chrono::seconds;

using broker = memory_broker_state;
using orders = std::vector<broker::order>;
using assignments = std::vector<broker::assignment>;

memory_broker_options rules() {
  memory_broker_options out;
  out.extent_bytes = 100;
  return out;
}

struct harness {
  explicit harness(int holders) {
    for (int i = 1; i <= holders; ++i)
      state.add(static_cast<broker::holder>(i));
  }

  broker state{rules()};
  timestamp now{std::chrono::hours(1)};

  /// `age`: of its oldest page.
  void has(broker::holder who, std::uint32_t extents, duration age, bool wants = false, std::uint64_t free = 0) {
    state.notified(who, {wants, extents, free, now - age}, now);
    CHECK(state.check() == "");
  }
  void wants_first(broker::holder who) {
    state.notified(who, {true, 0, 0, std::nullopt}, now);
    CHECK(state.check() == "");
  }
  void pass(duration x) { now += x; }
  /// All ranks have had their extents for a long time.
  void rest() { pass(seconds(100)); }
};

} // namespace

TEST_CASE("broker: the rank with the clearly oldest page gives an extent", "[memory]") {
  harness d(4);
  for (broker::holder x = 1; x <= 4; ++x)
    d.has(x, 4, seconds(0));
  d.rest();
  d.has(1, 4, seconds(30));
  d.has(2, 4, seconds(50));
  d.has(3, 4, seconds(10));
  d.has(4, 4, seconds(10), true);
  REQUIRE(d.state.take_orders() == orders{{2, false}});
  // It gets no second extent, and 2 is not asked for another.
  d.has(4, 4, seconds(10), true);
  d.has(3, 4, seconds(10), true);
  CHECK(d.state.take_orders() == orders{{1, false}});
  d.state.given_back(2, 7, d.now);
  CHECK(d.state.take_assignments() == assignments{{4, 7}});
  CHECK(d.state.take_returns().empty());
  d.state.accepted({4, 7}, true, d.now);
  CHECK(d.state.moved() == 1);
  CHECK(d.state.check() == "");
}

TEST_CASE("broker: ranks with similar use take nothing from each other", "[memory]") {
  harness d(2);
  d.has(1, 4, seconds(0));
  d.has(2, 4, seconds(0));
  d.rest();
  d.has(1, 4, seconds(19));
  d.has(2, 4, seconds(10), true);
  CHECK(d.state.take_orders().empty());
  // Twice as old, but not for much.
  d.has(1, 4, std::chrono::milliseconds(900));
  d.has(2, 4, std::chrono::milliseconds(100), true);
  CHECK(d.state.take_orders().empty());
  d.has(1, 4, seconds(20));
  d.has(2, 4, seconds(10), true);
  CHECK(d.state.take_orders().size() == 1);
}

TEST_CASE("broker: unused memory is reassigned first, but not right after it was assigned", "[memory]") {
  harness d(3);
  d.has(1, 4, seconds(0));
  d.rest();
  d.has(1, 4, seconds(80));
  d.has(2, 1, seconds(1), false, 100);
  d.has(3, 2, seconds(1), true);
  CHECK(d.state.take_orders() == orders{{1, false}});
  d.state.refused(1, d.now);
  CHECK(d.state.take_orders().empty());
  d.pass(seconds(3));
  d.has(3, 2, seconds(1), true);
  CHECK(d.state.take_orders() == orders{{2, false}});
}

TEST_CASE("broker: a rank without memory gets an extent in any case", "[memory]") {
  harness d(3);
  d.has(1, 2, seconds(1));
  d.has(2, 1, seconds(2));
  d.wants_first(3);
  // It is busy and got an extent a moment ago, but it has two.
  CHECK(d.state.take_orders() == orders{{1, true}});
  d.state.given_back(1, 5, d.now);
  CHECK(d.state.take_assignments() == assignments{{3, 5}});
  d.state.accepted({3, 5}, true, d.now);
  d.has(3, 1, seconds(0));
  // All have one now. They take turns, and none before it has had it for some time.
  d.state.add(4);
  d.wants_first(4);
  CHECK(d.state.take_orders().empty());
  d.pass(seconds(2));
  d.has(1, 1, seconds(1));
  d.has(2, 1, seconds(2));
  d.has(3, 1, seconds(1));
  d.wants_first(4);
  CHECK(d.state.take_orders() == orders{{2, true}});
}

TEST_CASE("broker: a rank without memory comes before one that wants more", "[memory]") {
  harness d(3);
  d.has(1, 3, seconds(0));
  d.rest();
  d.has(1, 3, seconds(50));
  d.has(2, 3, seconds(1), true);
  REQUIRE(d.state.take_orders() == orders{{1, false}});
  d.wants_first(3);
  // 2 must give, since 1 is giving already.
  REQUIRE(d.state.take_orders() == orders{{2, true}});
  // The extent is meant for 2, which no longer wants it.
  d.has(2, 3, seconds(1), false);
  d.state.given_back(1, 9, d.now);
  CHECK(d.state.take_assignments().empty());
  CHECK(d.state.take_returns() == std::vector<broker::extent_number>{9});
}

TEST_CASE("broker: after a refusal another rank is asked, and the first one later", "[memory]") {
  harness d(3);
  d.has(1, 3, seconds(0));
  d.has(2, 3, seconds(0));
  d.rest();
  d.has(1, 3, seconds(50));
  d.has(2, 3, seconds(40));
  d.has(3, 1, seconds(1), true);
  REQUIRE(d.state.take_orders() == orders{{1, false}});
  d.state.refused(1, d.now);
  REQUIRE(d.state.take_orders() == orders{{2, false}});
  d.state.refused(2, d.now);
  CHECK(d.state.take_orders().empty());
  d.pass(seconds(1));
  d.has(3, 1, seconds(1), true);
  CHECK(d.state.take_orders() == orders{{1, false}});
}

TEST_CASE("broker: a request that is not repeated expires", "[memory]") {
  harness d(2);
  d.has(1, 2, seconds(0));
  d.rest();
  d.has(1, 2, seconds(1));
  d.has(2, 1, seconds(1), true);
  CHECK(d.state.take_orders().empty());
  d.pass(seconds(60));
  d.has(1, 2, seconds(60));
  CHECK(d.state.take_orders().empty());
}

TEST_CASE("broker: ranks are added and removed", "[memory]") {
  harness d(3);
  d.has(1, 3, seconds(0));
  d.has(2, 3, seconds(0));
  d.rest();
  d.has(1, 3, seconds(50));
  d.has(2, 3, seconds(40));
  d.has(3, 1, seconds(1), true);
  REQUIRE(d.state.take_orders() == orders{{1, false}});
  SECTION("the giving rank is removed: another one is asked") {
    d.state.remove(1, d.now);
    CHECK(d.state.take_orders() == orders{{2, false}});
    // An extent that it still gave goes to the arena.
    d.state.given_back(1, 4, d.now);
    CHECK(d.state.take_returns() == std::vector<broker::extent_number>{4});
    d.state.refused(1, d.now);
  }
  SECTION("the receiving rank is removed: the arena gets the extent") {
    d.state.remove(3, d.now);
    d.state.given_back(1, 4, d.now);
    CHECK(d.state.take_assignments().empty());
    CHECK(d.state.take_returns() == std::vector<broker::extent_number>{4});
    d.has(2, 3, seconds(1), true);
    CHECK(d.state.take_orders().size() == 1); // 1 gives again
  }
  SECTION("the receiving rank does not accept: another one that wants it gets it") {
    d.has(2, 3, seconds(1), true);
    d.state.given_back(1, 4, d.now);
    REQUIRE(d.state.take_assignments() == assignments{{3, 4}});
    d.state.accepted({3, 4}, false, d.now);
    CHECK(d.state.take_orders().size() + d.state.take_assignments().size() == 1);
    CHECK(d.state.moved() == 0);
  }
  CHECK(d.state.check() == "");
  d.state.notified(17, {true, 0, 0, std::nullopt}, d.now); // of an unknown rank
  d.state.given_back(17, 6, d.now);
  CHECK(d.state.check() == "");
}

TEST_CASE("broker: every extent has exactly one place, whatever happens", "[memory]") {
  const auto seed = GENERATE(range(1U, 9U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](std::uint32_t below) { return static_cast<std::uint32_t>(random() % below); };
  harness d(0);
  std::map<broker::holder, std::set<std::uint32_t>> has;
  std::set<std::uint32_t> free;
  for (std::uint32_t x = 0; x < 12; ++x)
    free.insert(x);
  std::set<broker::holder> asked;
  std::vector<broker::assignment> under_way;
  broker::holder last = 0;
  std::uint64_t first_ones = 0;
  for (int i = 0; i < 5000; ++i) {
    d.pass(std::chrono::milliseconds(draw(500)));
    const auto some = [&]() -> broker::holder {
      return has.empty() ? 0 : std::next(has.begin(), draw(static_cast<std::uint32_t>(has.size())))->first;
    };
    const auto who = some();
    const auto kind = draw(20);
    if (kind == 0 && has.size() < 6) {
      d.state.add(++last);
      has[last];
    } else if (kind == 1 && who != 0) {
      d.state.remove(who, d.now);
      free.merge(has.extract(who).mapped());
      if (asked.erase(who) > 0)
        d.state.refused(who, d.now);
    } else if (kind < 14 && who != 0) {
      if (!free.empty() && draw(4) == 0)
        has[who].insert(free.extract(free.begin()).value());
      d.has(who, static_cast<std::uint32_t>(has[who].size()), seconds(draw(60)), free.empty() && draw(2) == 0);
    } else if (kind < 17 && !asked.empty()) {
      const auto giver = *asked.begin();
      asked.erase(asked.begin());
      if (draw(3) == 0 || has[giver].empty()) {
        d.state.refused(giver, d.now);
      } else {
        const auto extent = has[giver].extract(has[giver].begin()).value();
        d.state.given_back(giver, extent, d.now);
        under_way.push_back({0, extent}); // until its destination is known
      }
    } else if (!under_way.empty() && under_way.front().to != 0) {
      const auto x = under_way.front();
      under_way.erase(under_way.begin());
      const bool taken = has.contains(x.to) && draw(5) != 0;
      if (taken) {
        first_ones += has[x.to].empty() ? 1 : 0;
        has[x.to].insert(x.extent);
      } else {
        under_way.push_back({0, x.extent});
      }
      d.state.accepted(x, taken, d.now);
    }
    for (const auto& x : d.state.take_orders()) {
      REQUIRE(has.contains(x.from));
      REQUIRE(asked.insert(x.from).second);
    }
    const auto named = [&](std::uint32_t extent) {
      const auto found = std::ranges::find(under_way, broker::assignment{0, extent});
      REQUIRE(found != under_way.end());
      under_way.erase(found);
    };
    for (const auto& x : d.state.take_assignments()) {
      named(x.extent);
      for (const auto& other : under_way)
        REQUIRE(other.to != x.to);
      under_way.push_back(x);
    }
    for (const auto extent : d.state.take_returns()) {
      named(extent);
      REQUIRE(free.insert(extent).second);
    }
    REQUIRE(std::ranges::none_of(under_way, [](const auto& x) { return x.to == 0; }));
    REQUIRE(d.state.check() == "");
  }
  CHECK(d.state.moved() > 20);
  CHECK(first_ones > 0);
}

} // namespace memory_broker_state_test
