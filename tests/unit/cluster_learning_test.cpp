#include "actors/cluster/learning/shared_learning.hpp"
#include "tests/catch.hpp"

#include <chrono>
#include <map>
#include <set>
#include <variant>

namespace cluster_learning_test {

using namespace troupe;
using namespace troupe::cluster;

namespace {

constexpr timestamp t0{std::chrono::seconds(100)};
constexpr auto ms = std::chrono::milliseconds(1);
const namespace_id ns{1, 2};

reuse_counts counts(float n, std::uint64_t age = 1024) {
  reuse_counts out;
  out.ended[0][reuse_counts::step_of(age)] = n;
  return out;
}

reuse_reply reply(std::uint64_t clock, const reuse_counts& seen) {
  return {clock, {seen.numbers()}};
}

struct harness {
  shared_learning state;
  std::vector<ask_shard> asked;
  std::vector<teach_shard> taught;
  std::set<reuse_call> cancelled;

  explicit harness(learning_options how = {}) : state(how) {}

  void take() {
    for (auto& effect : state.take_outbox()) {
      if (const auto* const ask = std::get_if<ask_shard>(&effect))
        asked.push_back(*ask);
      else if (const auto* const call = std::get_if<cancel_shard>(&effect))
        cancelled.insert(call->call);
      else
        taught.push_back(std::get<teach_shard>(effect));
    }
  }
  void tick(timestamp now) {
    state.on_time(now);
    take();
  }
  /// Answers all questions, also those that follow; a shard that is not listed does not answer.
  void answer(const std::map<learning_shard, reuse_reply>& with) {
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const auto found = with.find(asked[i].who);
      if (found != with.end())
        state.on_notified(asked[i].call, found->second);
      else
        state.on_notified(asked[i].call, fail(errc::unreachable, "nobody"));
      take();
    }
    asked.clear();
  }
  float taught_to(std::uint32_t shard, std::uint64_t age = 1024) const {
    float out = -1;
    for (const auto& x : taught)
      if (x.shard == shard)
        out = x.counts.ended[0][reuse_counts::step_of(age)];
    return out;
  }
};

constexpr learning_shard own0{std::nullopt, 0};
constexpr learning_shard own1{std::nullopt, 1};
constexpr learning_shard peer0{peer_number{4}, 0};

} // namespace

TEST_CASE("learning: each local shard receives the counts of all others and not its own", "[cluster]") {
  harness x;
  x.state.follow(ns, 2, {{4, 1, 1}});
  CHECK(x.state.next_event() <= t0);
  x.tick(t0);
  REQUIRE(x.asked.size() == 3);
  x.answer({{own0, reply(10, counts(1))}, {own1, reply(10, counts(20))}, {peer0, reply(10, counts(300))}});
  CHECK(x.taught.size() == 2);
  CHECK(x.taught_to(0) == 320);
  CHECK(x.taught_to(1) == 301);
  CHECK(x.state.learned_from(4) == 300);
  CHECK(x.state.learned_from(5) == 0);
  // The next round starts after a pause.
  x.tick(t0 + 499 * ms);
  CHECK(x.asked.empty());
  CHECK(x.state.next_event() == t0 + 500 * ms);
  x.tick(t0 + 500 * ms);
  CHECK(x.asked.size() == 3);
}

TEST_CASE("learning: a node without peers requests nothing", "[cluster]") {
  harness x;
  x.state.follow(ns, 4, {});
  CHECK(x.state.next_event() == timestamp::max());
  x.tick(t0);
  CHECK(x.asked.empty());
}

TEST_CASE("learning: ages are scaled by the rate at which keys arrive", "[cluster]") {
  harness x;
  x.state.follow(ns, 1, {{4, 1, 1}});
  x.tick(t0);
  x.answer({{own0, reply(1000, {})}, {peer0, reply(50'000, counts(8))}});
  // Nothing is known of their paces as yet.
  CHECK(x.taught_to(0, 1024) == 8);
  x.tick(t0 + std::chrono::seconds(1));
  x.answer({{own0, reply(3000, {})}, {peer0, reply(51'000, counts(8))}});
  // Twice as many keys arrived here: an age of 1,024 there is one of 2,048 here.
  CHECK(x.taught_to(0, 1024) == 0);
  CHECK(x.taught_to(0, 2048) == Approx(8));
  // A restarted node has its clock at the beginning.
  x.tick(t0 + std::chrono::seconds(2));
  x.answer({{own0, reply(5000, {})}, {peer0, reply(10, counts(8))}});
  CHECK(x.taught_to(0, 1024) == 8);
}

TEST_CASE("learning: a node that does not answer is left out until it does", "[cluster]") {
  harness x;
  x.state.follow(ns, 1, {{4, 1, 2}});
  x.tick(t0);
  x.answer({{own0, reply(1, {})}, {peer0, reply(1, counts(5))}, {{peer_number{4}, 1}, reply(1, counts(7))}});
  CHECK(x.taught_to(0) == 12);
  x.tick(t0 + std::chrono::seconds(1));
  x.answer({{own0, reply(2, {})}, {peer0, reply(2, counts(5))}});
  CHECK(x.taught_to(0) == 5);
  CHECK(x.state.learned_from(4) == 5);
  // This node's own shard does not either: it is taught nothing.
  const auto before = x.taught.size();
  x.tick(t0 + std::chrono::seconds(2));
  x.answer({{peer0, reply(3, counts(5))}});
  CHECK(x.taught.size() == before);
  // A node that never answers ends the round after a while; a late answer changes nothing.
  x.tick(t0 + std::chrono::seconds(3));
  REQUIRE(x.asked.size() == 3);
  const auto late = x.asked[1];
  x.state.on_notified(x.asked[0].call, reply(4, {}));
  x.asked.clear();
  CHECK(x.state.next_event() == t0 + std::chrono::seconds(13));
  x.tick(t0 + std::chrono::seconds(13));
  CHECK(x.taught.size() == before + 1);
  CHECK(x.taught_to(0) == 0);
  CHECK(x.asked.size() == 3);
  x.state.on_notified(late.call, reply(5, counts(1000)));
  x.asked.clear();
  x.tick(t0 + std::chrono::seconds(23));
  CHECK(x.taught_to(0) == 0);
}

TEST_CASE("learning: invalid answers are ignored", "[cluster]") {
  harness x;
  x.state.follow(ns, 1, {{4, 1, 1}});
  x.tick(t0);
  x.answer({{own0, reply(1, {})}, {peer0, {1, {{1, 2, 3}}}}});
  CHECK(x.taught_to(0) == 0);
  x.state.on_notified(4711, reply(1, counts(1)));
}

TEST_CASE("learning: the number of parallel requests is bounded, and each node is asked once", "[cluster]") {
  harness x;
  x.state.follow(ns, 16, {{4, 1, 16}, {5, 1, 16}});
  x.tick(t0);
  CHECK(x.asked.size() == 16);
  std::map<learning_shard, reuse_reply> all;
  for (const auto& peer : {std::optional<peer_number>{}, std::optional<peer_number>{4}, std::optional<peer_number>{5}})
    for (std::uint32_t i = 0; i < 16; ++i)
      all[{peer, i}] = reply(1, counts(1));
  std::set<learning_shard> seen;
  for (std::size_t i = 0; i < x.asked.size(); ++i) {
    const auto one = x.asked[i];
    CHECK(seen.insert(one.who).second);
    x.state.on_notified(one.call, all.at(one.who));
    x.take();
  }
  CHECK(seen.size() == 48);
  CHECK(x.taught.size() == 16);
  CHECK(x.taught_to(3) == 47);
  // 10 ms for each, which is less than the pause.
  CHECK(x.state.next_event() == t0 + 500 * ms);
  x.state.follow(ns, 16, {{4, 1, 64}});
  x.asked.clear();
  x.tick(t0 + 500 * ms);
  CHECK(x.asked.size() == 16);
  x.answer({});
  CHECK(x.state.next_event() == t0 + 1300 * ms);
}

TEST_CASE("learning: a removed peer is forgotten, and a restarted one is new", "[cluster]") {
  harness x;
  x.state.follow(ns, 1, {{4, 1, 1}, {5, 1, 1}});
  x.tick(t0);
  // The peer is removed during a request to it.
  x.state.follow(ns, 1, {{4, 1, 1}});
  x.answer({{own0, reply(1, {})}, {peer0, reply(1, counts(5))}, {{peer_number{5}, 0}, reply(1, counts(9))}});
  CHECK(x.taught_to(0) == 5);
  CHECK(x.state.learned_from(5) == 0);
  x.state.follow(ns, 1, {{4, 2, 1}});
  CHECK(x.state.learned_from(4) == 0);
  x.state.forget(ns);
  CHECK(x.state.next_event() == timestamp::max());
  x.tick(t0 + std::chrono::hours(1));
  CHECK(x.asked.empty());
}

TEST_CASE("learning: when the last peer of a namespace is removed, each local shard drops the learned counts",
          "[cluster]") {
  harness x;
  x.state.follow(ns, 2, {{4, 1, 1}});
  x.take();
  CHECK(x.taught.empty());
  x.tick(t0);
  x.answer({{own0, reply(10, counts(1))}, {own1, reply(10, counts(20))}, {peer0, reply(10, counts(300))}});
  CHECK(x.taught_to(0) == 320);
  // The peer is removed in the middle of a round, of which nothing is left.
  x.tick(t0 + std::chrono::seconds(1));
  REQUIRE(x.asked.size() == 3);
  x.state.follow(ns, 2, {});
  x.take();
  CHECK(x.taught_to(0) == 0);
  CHECK(x.taught_to(1) == 0);
  CHECK(x.cancelled == std::set<reuse_call>{x.asked[0].call, x.asked[1].call, x.asked[2].call});
  const auto before = x.taught.size();
  x.answer({{own0, reply(20, counts(1))}, {own1, reply(20, counts(20))}});
  x.state.follow(ns, 2, {});
  x.take();
  CHECK(x.taught.size() == before);
  CHECK(x.state.next_event() == timestamp::max());
}

TEST_CASE("learning: requests without an answer are abandoned at the end of the round", "[cluster]") {
  harness x;
  x.state.follow(ns, 1, {{4, 1, 2}});
  x.tick(t0);
  REQUIRE(x.asked.size() == 3);
  x.state.on_notified(x.asked[0].call, reply(1, {}));
  x.tick(t0 + std::chrono::seconds(9));
  CHECK(x.cancelled.empty());
  const std::set<reuse_call> open{x.asked[1].call, x.asked[2].call};
  x.tick(t0 + std::chrono::seconds(10));
  CHECK(x.cancelled == open);
  x.asked.erase(x.asked.begin(), x.asked.begin() + 3);
  REQUIRE(x.asked.size() == 3);
  x.state.forget(ns);
  x.take();
  CHECK(x.cancelled.size() == 5);
}

TEST_CASE("learning: a namespace whose local shards do not learn is not asked about again", "[cluster]") {
  harness x;
  x.state.follow(ns, 1, {{4, 1, 1}});
  x.tick(t0);
  REQUIRE(x.asked.size() == 2);
  x.state.on_notified(x.asked[0].call, fail(errc::unsupported, "lru"));
  x.take();
  CHECK(x.cancelled == std::set<reuse_call>{x.asked[1].call});
  CHECK(x.taught.empty());
  CHECK(x.state.next_event() == timestamp::max());
  x.asked.clear();
  x.state.follow(ns, 1, {{4, 1, 1}, {5, 1, 1}});
  x.tick(t0 + std::chrono::hours(1));
  CHECK(x.asked.empty());
  // A peer whose shards do not learn does not prevent requests to the others.
  harness y;
  y.state.follow(ns, 1, {{4, 1, 1}, {5, 1, 1}});
  y.tick(t0);
  REQUIRE(y.asked.size() == 3);
  y.state.on_notified(y.asked[1].call, fail(errc::unsupported, "lru"));
  y.take();
  CHECK(y.cancelled.empty());
  CHECK(y.state.next_event() == t0 + std::chrono::seconds(10));
}

} // namespace cluster_learning_test
