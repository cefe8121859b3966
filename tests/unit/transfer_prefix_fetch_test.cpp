#include "actors/support/prefix_fetch.hpp"
#include "actors/support/shard_batches.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace transfer_prefix_fetch_test {

/// A lookup that asks peers, for any caller.

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

namespace {

constexpr duration hold = std::chrono::seconds(30);

std::vector<key_digest> keys_of(std::uint32_t count) {
  return test_task(count).keys.items;
}

/// The shards of a node with their leases, and one lookup.
struct fetch_world {
  explicit fetch_world(std::uint32_t count, std::uint32_t shard_count = 1, bool has_peers = true,
                       timestamp deadline = timestamp::max(), duration peers_limit = duration::max())
      : keys(keys_of(count)), shards(shard_count),
        lookup({test_namespace, shard_count, hold, false, has_peers, deadline, peers_limit}, keys) {}

  ticket new_lease() { return {77, ++last_lease}; }
  void start(timestamp now = t0) {
    lookup.start(new_lease(), now);
    take();
  }
  /// The effects in order; releases are carried out.
  void take() {
    for (auto& x : lookup.take_outbox()) {
      if (auto* match = std::get_if<prefix_fetch::match>(&x))
        matches.push_back(std::move(*match));
      else if (auto* wanted_prefix = std::get_if<prefix_fetch::wanted_prefix>(&x))
        prefix_fetches.push_back(std::move(*wanted_prefix));
      else
        release(std::get<prefix_fetch::release>(x));
    }
  }
  /// Trims a lease like a shard: keys of its part after the first `keep` ones are released.
  void release(const prefix_fetch::release& x) {
    const auto i = held.find({x.shard, x.request.lease});
    if (i == held.end())
      return;
    if (x.request.keep < i->second.size())
      i->second.resize(x.request.keep);
    if (i->second.empty())
      held.erase(i);
  }
  /// Leases the leading keys of a part that are here.
  match_reply lease(const prefix_fetch::match& x) {
    std::uint32_t count = 0;
    while (count < x.request.keys.size() && here.contains(x.request.keys[count]))
      ++count;
    if (count > 0)
      held[{x.shard, x.request.lease}].assign(x.request.keys.begin(), x.request.keys.begin() + count);
    return match_reply{count};
  }
  /// Answers all matches.
  void match_all(timestamp now = t0) {
    for (const auto& x : std::exchange(matches, {}))
      lookup.on_match(x.part, lease(x), now);
    take();
  }
  void wanted_prefix(std::uint32_t count) {
    REQUIRE(prefix_fetches.size() == 1);
    prefix_fetches.clear();
    lookup.on_prefix_fetch(prefix_fetch_reply{count}, new_lease());
    take();
  }
  void add(std::uint32_t from, std::uint32_t to) { here.insert(keys.begin() + from, keys.begin() + to); }
  std::uint32_t leading() const {
    std::uint32_t out = 0;
    while (out < keys.size() && here.contains(keys[out]))
      ++out;
    return out;
  }
  /// Checks that exactly the first `count` keys are held under this lease, and none under another one.
  void check_held(const ticket& under, std::uint32_t count) const {
    std::set<key_digest> all;
    for (const auto& [where, some] : held) {
      CHECK(where.second == under);
      all.insert(some.begin(), some.end());
    }
    CHECK(all == std::set<key_digest>(keys.begin(), keys.begin() + count));
  }
  const prefix_fetch::finding& found() const {
    REQUIRE(lookup.outcome());
    REQUIRE(lookup.outcome()->has_value());
    return **lookup.outcome();
  }

  std::vector<key_digest> keys;
  std::uint32_t shards;
  prefix_fetch lookup;
  std::uint64_t last_lease = 0;
  std::set<key_digest> here;
  std::map<std::pair<std::uint32_t, ticket>, std::vector<key_digest>> held;
  std::vector<prefix_fetch::match> matches;
  std::vector<prefix_fetch::wanted_prefix> prefix_fetches;
};

} // namespace

TEST_CASE("prefix fetch: found keys stay leased while peers are asked and until they are matched again", "[bringing]") {
  fetch_world s(20, 4);
  s.add(0, 7);
  s.start();
  s.match_all();
  CHECK(s.lookup.is_asking());
  s.check_held({77, 1}, 7);
  REQUIRE(s.prefix_fetches.size() == 1);
  CHECK(s.prefix_fetches[0].request.parent == s.keys[6]);
  CHECK(s.prefix_fetches[0].request.keys.items == std::vector<key_digest>(s.keys.begin() + 7, s.keys.end()));
  s.add(7, 12);
  s.wanted_prefix(5);
  CHECK_FALSE(s.lookup.is_asking());
  s.match_all();
  CHECK(s.found().matched == 12);
  CHECK(s.found().lease == ticket{77, 2});
  s.check_held({77, 2}, 12);
}

TEST_CASE("prefix fetch: peers are not asked where there are none, all keys are here, or none is wanted",
          "[bringing]") {
  fetch_world alone(9, 2, false);
  alone.add(0, 3);
  alone.start();
  alone.match_all();
  CHECK(alone.prefix_fetches.empty());
  CHECK(alone.found().matched == 3);

  fetch_world whole(9, 2);
  whole.add(0, 9);
  whole.start();
  whole.match_all();
  CHECK(whole.prefix_fetches.empty());
  CHECK(whole.found().matched == 9);

  fetch_world nothing(0, 2);
  nothing.start();
  CHECK(nothing.matches.empty());
  CHECK(nothing.prefix_fetches.empty());
  CHECK(nothing.found().matched == 0);
}

TEST_CASE("prefix fetch: peers that report more than was requested are not believed", "[bringing]") {
  fetch_world s(9);
  s.add(0, 2);
  s.start();
  s.match_all();
  s.add(2, 8);
  s.wanted_prefix(~std::uint32_t{0});
  s.match_all();
  CHECK(s.prefix_fetches.empty());
  CHECK(s.found().matched == 8);
}

TEST_CASE("prefix fetch: repeated, late and unknown answers are not counted", "[bringing]") {
  fetch_world s(40, 2);
  s.start();
  const auto first = s.matches;
  REQUIRE(first.size() == 2);
  s.lookup.on_prefix_fetch(prefix_fetch_reply{3}, s.new_lease());
  s.lookup.on_match(first[0].part, match_reply{0}, t0);
  s.lookup.on_match(first[0].part, match_reply{0}, t0);
  CHECK_FALSE(s.lookup.is_asking());
  s.lookup.on_match(first[1].part, match_reply{0}, t0);
  CHECK(s.lookup.is_asking());
  s.lookup.on_match(first[1].part, match_reply{1}, t0);
  s.lookup.on_prefix_fetch(prefix_fetch_reply{}, s.new_lease());
  CHECK(s.found().matched == 0);
  s.lookup.on_prefix_fetch(prefix_fetch_reply{4}, s.new_lease());
  s.lookup.on_match(first[1].part, match_reply{1}, t0);
  s.lookup.on_tick(timestamp::max());
  CHECK(s.found().matched == 0);
}

TEST_CASE("prefix fetch: the time of peers starts when they are first asked", "[bringing]") {
  fetch_world s(12, 2, true, timestamp::max(), 100 * ms);
  s.add(0, 2);
  s.start();
  // However long the shards take.
  s.lookup.on_tick(t0 + std::chrono::hours(1));
  CHECK_FALSE(s.lookup.outcome());
  const auto asked_at = t0 + std::chrono::hours(2);
  s.match_all(asked_at);
  CHECK(s.lookup.deadline() == asked_at + 100 * ms);
  s.add(2, 5);
  s.wanted_prefix(2);
  // The next keys were here: peers are asked again without more time.
  s.match_all(asked_at + 60 * ms);
  REQUIRE(s.lookup.is_asking());
  CHECK(s.prefix_fetches.at(0).request.waited == 60 * ms);
  s.lookup.on_tick(asked_at + 99 * ms);
  CHECK_FALSE(s.lookup.outcome());
  s.lookup.on_tick(asked_at + 100 * ms);
  s.take();
  CHECK(s.found().matched == 5);
  s.check_held({77, 2}, 5);
}

TEST_CASE("prefix fetch: a cancelled lookup holds nothing, in any phase", "[bringing]") {
  const auto when = GENERATE(range(0, 5));
  INFO("step " << when);
  fetch_world s(20, 4);
  s.add(0, 7);
  s.start();
  // Some shards have leased, and others have not answered.
  if (when == 1) {
    const auto x = s.matches.front();
    s.lookup.on_match(x.part, s.lease(x), t0);
    s.lease(s.matches.back());
  }
  if (when >= 2)
    s.match_all();
  if (when >= 3) {
    s.add(7, 9);
    s.wanted_prefix(2);
    for (const auto& x : s.matches)
      s.lease(x);
  }
  if (when == 4)
    s.match_all();
  s.lookup.cancel();
  s.take();
  if (when < 4) {
    CHECK(s.held.empty());
    REQUIRE(s.lookup.outcome());
    CHECK(s.lookup.outcome()->error().code == errc::cancelled);
  } else {
    // It had asked for the keys after the seven and found them: nothing is requested a second time.
    CHECK(s.found().matched == 9);
    s.check_held({77, 2}, 9);
  }
  s.lookup.cancel();
  s.lookup.on_prefix_fetch(prefix_fetch_reply{3}, s.new_lease());
  CHECK(s.lookup.take_outbox().empty());
}

TEST_CASE("prefix fetch: no more of the found keys is held than is needed", "[bringing]") {
  const auto needed = GENERATE(0U, 1U, 4U, 8U, 9U, 100U);
  fetch_world s(12, 3);
  s.add(0, 8);
  s.start();
  s.match_all();
  s.lookup.keep(2);
  s.wanted_prefix(0);
  CHECK(s.found().matched == 8);
  s.lookup.keep(needed);
  s.take();
  const auto left = std::min(needed, 8U);
  CHECK(s.found().matched == left);
  s.check_held(s.found().lease, left);
  CHECK((s.found().lease == ticket{}) == (left == 0));
  std::set<std::uint32_t> where;
  for (const auto& [name, some] : s.held)
    where.insert(name.first);
  CHECK(where == std::set<std::uint32_t>(s.found().shards.begin(), s.found().shards.end()));
}

TEST_CASE("prefix fetch: whatever peers, shards and time do, it ends and holds what it has found and no more",
          "[bringing]") {
  const auto seed = GENERATE(range(1U, 401U));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t limit) { return std::uniform_int_distribution(0U, limit - 1)(random); };
  const auto one_in = [&](std::uint32_t n) { return below(n) == 0; };
  const auto count = 1 + below(40);
  const auto limit = t0 + std::chrono::milliseconds(1 + below(60));
  fetch_world s(count, 1 + below(4), !one_in(5), limit);
  for (const auto& key : s.keys)
    if (!one_in(6))
      s.here.insert(key);
  auto time = t0;
  std::uint32_t asked = 0;
  std::uint32_t most = s.leading();
  s.start(time);
  for (std::uint32_t steps = 0; !s.lookup.outcome(); ++steps) {
    REQUIRE(steps < 1000);
    time += std::chrono::milliseconds(below(3));
    if (!s.matches.empty()) {
      const auto at = s.matches.begin() + below(static_cast<std::uint32_t>(s.matches.size()));
      const auto x = *at;
      s.matches.erase(at);
      // A lost request may have leased keys.
      const auto reply = s.lease(x);
      if (one_in(20))
        s.lookup.on_match(x.part, fail(one_in(2) ? errc::timeout : errc::shutting_down, "lost"), time);
      else
        s.lookup.on_match(x.part, reply, time);
    } else if (!s.prefix_fetches.empty()) {
      ++asked;
      const auto request = s.prefix_fetches.front().request;
      const auto from = count - static_cast<std::uint32_t>(request.keys.size());
      REQUIRE(from < count);
      CHECK(request.parent == (from > 0 ? s.keys[from - 1] : key_digest{}));
      CHECK(std::equal(request.keys.begin(), request.keys.end(), s.keys.begin() + from));
      // Exactly the keys before the request are held.
      s.check_held({77, s.last_lease}, from);
      const auto brought = below(4);
      s.add(from, std::min(from + brought, count));
      most = std::max(most, s.leading());
      s.prefix_fetches.clear();
      if (one_in(10))
        s.lookup.on_prefix_fetch(fail(errc::unreachable, "gone"), s.new_lease());
      else
        s.lookup.on_prefix_fetch(prefix_fetch_reply{brought}, s.new_lease());
    }
    s.take();
    if (one_in(3)) {
      s.lookup.on_tick(time);
      s.take();
    }
    if (one_in(60)) {
      s.lookup.cancel();
      s.take();
    }
  }
  const auto needed = below(count + 2);
  s.lookup.keep(needed);
  s.take();
  CHECK(asked <= prefix_fetch::prefix_fetches_max);
  if (const auto& outcome = *s.lookup.outcome(); outcome) {
    CHECK(outcome->matched <= std::min(most, needed));
    s.check_held(outcome->lease, outcome->matched);
    std::set<std::uint32_t> where;
    for (const auto& [name, some] : s.held)
      where.insert(name.first);
    CHECK(where == std::set<std::uint32_t>(outcome->shards.begin(), outcome->shards.end()));
    CHECK((outcome->lease == ticket{}) == (outcome->matched == 0));
  } else {
    CHECK(s.held.empty());
  }
}

} // namespace transfer_prefix_fetch_test
