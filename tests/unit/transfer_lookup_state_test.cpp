#include "actors/client/transfer/lookup_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace transfer_lookup_state_test {

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

constexpr duration time_limit = std::chrono::seconds(3);
constexpr duration hold = std::chrono::seconds(30);

struct finder {
  explicit finder(std::uint32_t shards = 1, std::uint32_t lookups_max = 8,
                  duration lease_max = std::chrono::seconds(60))
      : state(lookups_max, time_limit), effects(state) {
    lookup_state::binding node;
    node.owner = 77;
    node.ticket_stream = 2;
    node.ns = test_namespace;
    node.shard_count = shards;
    node.batch_keys_max = 512;
    node.lease_max = lease_max;
    state.bind(node);
  }

  lookup_state state;
  effects_of<lookup_state, lookup_effect> effects;

  template <class T>
  std::vector<T> take() {
    return effects.take<T>();
  }
  template <class T>
  T one() {
    return effects.one<T>();
  }
  void matched(const lookup_match& x, std::uint32_t count, timestamp now = t0) {
    state.on_match(x.call, match_reply{count}, now);
  }
};

lookup_task find(std::uint32_t count, duration lease_for = hold) {
  return {test_task(count).keys, lease_for};
}

} // namespace

TEST_CASE("lookup: each shard is asked for its own keys only", "[lookup_state]") {
  finder s(3);
  s.state.start(find(12), t0);
  std::map<std::uint32_t, std::vector<key_digest>> asked;
  for (const auto& x : s.take<lookup_match>()) {
    asked[x.shard] = x.request.keys.items;
    s.matched(x, static_cast<std::uint32_t>(x.request.keys.size()));
  }
  const auto lease = s.one<lookup_finished>().answer->lease;
  std::vector<key_digest> too_many(513, key(1));
  CHECK(s.state.release(lease, t0, too_many).error().code == errc::limit_exceeded);
  auto kept = test_task(12).keys.items;
  kept.erase(kept.begin() + 4);
  REQUIRE(s.state.release(lease, t0, kept));
  std::size_t notified = 0;
  for (const auto& x : s.take<lookup_release>()) {
    CHECK(x.request.lease == lease);
    auto expected = asked.at(x.shard);
    std::erase(expected, key(4));
    CHECK(x.request.kept_there.items == expected);
    notified += x.request.kept_there.size();
  }
  CHECK(notified == 11);
}

TEST_CASE("lookup: one shard answers, and the lease is released once", "[lookup_state]") {
  finder s;
  const auto id = s.state.start(find(5), t0);
  REQUIRE(id);
  const auto match = s.one<lookup_match>();
  CHECK(match.request.ns == test_namespace);
  CHECK(match.request.lease_for == hold);
  CHECK(match.request.keys == test_task(5).keys);
  s.matched(match, 3);
  const auto done = s.one<lookup_finished>();
  CHECK(done.lookup == *id);
  REQUIRE(done.answer);
  CHECK(done.answer->matched == 3);
  CHECK(done.answer->lease == match.request.lease);
  CHECK(s.take<lookup_release>().empty());
  CHECK(s.state.under_way() == 0);
  CHECK(s.state.held() == 1);

  REQUIRE(s.state.release(done.answer->lease, t0));
  const auto release = s.one<lookup_release>();
  CHECK(release.request.lease == done.answer->lease);
  CHECK(release.request.keep == 0);
  CHECK(s.state.held() == 0);
  const auto again = s.state.release(done.answer->lease, t0);
  REQUIRE_FALSE(again);
  CHECK(again.error().code == errc::not_found);
  CHECK(s.effects.left() == 0);
}

TEST_CASE("lookup: the storage tier is reported in the order of the keys, or not at all", "[lookup_state]") {
  finder s{3};
  auto wanted = find(30);
  wanted.report_on_disk = true;
  const bool one_does_not_know = GENERATE(false, true);
  REQUIRE(s.state.start(wanted, t0));
  const auto parts = s.take<lookup_match>();
  REQUIRE(parts.size() == 3);
  const auto is_on_disk = [](const key_digest& key) { return key.lo % 3 == 1; };
  for (const auto& x : parts) {
    CHECK(x.request.report_on_disk);
    match_reply reply{static_cast<std::uint32_t>(x.request.keys.size())};
    for (const auto& key : x.request.keys)
      reply.on_disk.items.push_back(is_on_disk(key) ? 1 : 0);
    if (one_does_not_know && x.shard == 1)
      reply.on_disk.items.pop_back();
    s.state.on_match(x.call, reply, t0);
  }
  const auto done = s.one<lookup_finished>();
  REQUIRE(done.answer);
  CHECK(done.answer->matched == 30);
  REQUIRE(done.answer->on_disk.size() == (one_does_not_know ? 0 : 30));
  for (std::size_t i = 0; i < done.answer->on_disk.size(); ++i)
    CHECK((done.answer->on_disk[i] != 0) == is_on_disk(wanted.keys[i]));
}

TEST_CASE("lookup: no match holds nothing", "[lookup_state]") {
  finder s{3};
  REQUIRE(s.state.start(find(30), t0));
  for (const auto& x : s.take<lookup_match>())
    s.matched(x, 0);
  const auto done = s.one<lookup_finished>();
  REQUIRE(done.answer);
  CHECK(done.answer->matched == 0);
  CHECK(done.answer->lease == ticket{});
  CHECK(s.state.held() == 0);
  CHECK(s.effects.left() == 0);
}

TEST_CASE("lookup: no keys give an empty result at once", "[lookup_state]") {
  finder s{3};
  REQUIRE(s.state.start(find(0), t0));
  CHECK(s.one<lookup_finished>().answer->matched == 0);
  CHECK(s.state.under_way() == 0);
  CHECK(s.effects.left() == 0);
}

TEST_CASE("lookup: the prefix ends at the first key that any shard misses, and the rest is trimmed", "[lookup_state]") {
  const auto seed = GENERATE(range(1U, 41U));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto shards = std::uniform_int_distribution<std::uint32_t>(1, 9)(random);
  const auto count = std::uniform_int_distribution<std::uint32_t>(1, 60)(random);
  finder s{shards};
  REQUIRE(s.state.start(find(count), t0));
  auto matches = s.take<lookup_match>();
  std::shuffle(matches.begin(), matches.end(), random);

  // The model has the complete keys and the number of its leading keys that each shard then leases.
  const auto keys = test_task(count).keys;
  std::vector<bool> complete(count);
  for (std::uint32_t i = 0; i < count; ++i)
    complete[i] = std::uniform_int_distribution<int>(0, 19)(random) != 0;
  const auto expected =
      static_cast<std::uint32_t>(std::find(complete.begin(), complete.end(), false) - complete.begin());
  std::map<std::uint32_t, std::vector<std::uint32_t>> leased; // positions, by shard
  for (const auto& x : matches) {
    std::uint32_t matched = 0;
    for (const auto& k : x.request.keys) {
      const auto at = static_cast<std::uint32_t>(std::find(keys.begin(), keys.end(), k) - keys.begin());
      REQUIRE(at < count);
      if (!complete[at])
        break;
      leased[x.shard].push_back(at);
      ++matched;
    }
    s.matched(x, matched);
  }
  const auto done = s.one<lookup_finished>();
  REQUIRE(done.answer);
  CHECK(done.answer->matched == expected);
  for (const auto& x : s.take<lookup_release>())
    leased[x.shard].resize(x.request.keep);
  std::set<std::uint32_t> held;
  for (const auto& [shard, positions] : leased)
    held.insert(positions.begin(), positions.end());
  std::set<std::uint32_t> wanted;
  for (std::uint32_t i = 0; i < expected; ++i)
    wanted.insert(i);
  CHECK(held == wanted);

  if (expected > 0) {
    REQUIRE(s.state.release(done.answer->lease, t0));
    std::set<std::uint32_t> released;
    for (const auto& x : s.take<lookup_release>()) {
      CHECK(x.request.keep == 0);
      CHECK(released.insert(x.shard).second);
    }
    for (const auto& [shard, positions] : leased)
      CHECK(released.contains(shard) == !positions.empty());
  }
  CHECK(s.state.held() == 0);
}

TEST_CASE("lookup: a shard that reports more than it was asked for is not believed", "[lookup_state]") {
  finder s;
  REQUIRE(s.state.start(find(4), t0));
  s.matched(s.one<lookup_match>(), 0xffffffff);
  CHECK(s.one<lookup_finished>().answer->matched == 4);
}

TEST_CASE("lookup: an invalid lookup is refused", "[lookup_state]") {
  finder s{1, 2};
  const auto refused = [&](const lookup_task& work) {
    const auto id = s.state.start(work, t0);
    REQUIRE_FALSE(id);
    CHECK_FALSE(id.error().text.empty());
    CHECK(s.effects.left() == 0);
    return id.error().code;
  };
  CHECK(refused(find(1, duration::zero())) == errc::invalid_argument);
  CHECK(refused(find(1, duration::min())) == errc::invalid_argument);
  REQUIRE(s.state.start(find(1), t0));
  REQUIRE(s.state.start(find(1), t0));
  s.take<lookup_match>();
  CHECK(refused(find(1)) == errc::limit_exceeded);
  s.state.unbind(errc::unreachable);
  CHECK(s.take<lookup_finished>().size() == 2);
  CHECK(refused(find(1)) == errc::unreachable);
}

TEST_CASE("lookup: a node that returns with lower limits gets requests within them", "[lookup_state]") {
  finder s;
  s.state.unbind(errc::unreachable);
  lookup_state::binding node;
  node.owner = 78;
  node.ns = test_namespace;
  node.shard_count = 1;
  node.batch_keys_max = 4;
  node.lease_max = std::chrono::seconds(5);
  s.state.bind(node);
  REQUIRE(s.state.start(find(6), t0));
  const auto match = s.one<lookup_match>();
  CHECK(match.request.keys.items == test_task(4).keys.items);
  CHECK(match.request.lease_for == node.lease_max);
  s.matched(match, 4);
  const auto found = s.one<lookup_finished>();
  REQUIRE(found.answer);
  CHECK(found.answer->matched == 4);
  CHECK(found.answer->lease_for == node.lease_max);
  CHECK(s.state.held() == 1);
  s.state.on_tick(t0 + node.lease_max);
  CHECK(s.state.held() == 0);
  // A shorter requested time is granted.
  REQUIRE(s.state.start(find(3, std::chrono::seconds(2)), t0));
  s.matched(s.one<lookup_match>(), 3);
  CHECK(s.one<lookup_finished>().answer->lease_for == std::chrono::seconds(2));
}

TEST_CASE("lookup: a lost answer is requested again under the same lease until the time has passed", "[lookup_state]") {
  finder s;
  REQUIRE(s.state.start(find(4), t0));
  const auto first = s.one<lookup_match>();
  s.state.on_match(first.call, no_answer(), t0 + 1000 * ms);
  const auto second = s.one<lookup_match>();
  CHECK(second.request.lease == first.request.lease);
  CHECK(second.request.keys == first.request.keys);
  SECTION("it arrives") {
    s.matched(first, 1); // too late
    CHECK(s.take<lookup_finished>().empty());
    s.matched(second, 4);
    CHECK(s.one<lookup_finished>().answer->matched == 4);
  }
  SECTION("it does not arrive") {
    s.state.on_match(second.call, no_answer(), t0 + time_limit);
    CHECK(s.take<lookup_match>().empty());
    const auto done = s.one<lookup_finished>();
    REQUIRE_FALSE(done.answer);
    CHECK(done.answer.error().code == errc::timeout);
    // It is unknown what the shard leased.
    const auto release = s.one<lookup_release>();
    CHECK(release.request.lease == first.request.lease);
    CHECK(release.request.keep == 0);
    CHECK(s.state.held() == 0);
  }
}

TEST_CASE("lookup: a shard that fails fails the lookup once, and everything is released", "[lookup_state]") {
  finder s{3};
  REQUIRE(s.state.start(find(30), t0));
  const auto matches = s.take<lookup_match>();
  REQUIRE(matches.size() == 3);
  s.matched(matches[0], 2);
  s.state.on_match(matches[1].call, fail(errc::limit_exceeded, "too many leases"), t0);
  CHECK(s.take<lookup_finished>().empty());
  s.matched(matches[2], 5);
  const auto done = s.one<lookup_finished>();
  REQUIRE_FALSE(done.answer);
  CHECK(done.answer.error().code == errc::limit_exceeded);
  CHECK(done.answer.error().text == "too many leases");
  CHECK(s.take<lookup_release>().size() == 3);
  CHECK(s.state.under_way() == 0);
  CHECK(s.state.held() == 0);
}

TEST_CASE("lookup: the time limit ends a lookup, and late answers are ignored", "[lookup_state]") {
  finder s{2};
  const auto id = s.state.start(find(20), t0);
  const auto matches = s.take<lookup_match>();
  s.matched(matches[0], 3);
  s.state.on_tick(t0 + time_limit - 1 * ms);
  CHECK(s.effects.left() == 0);
  s.state.on_tick(t0 + time_limit);
  const auto done = s.one<lookup_finished>();
  CHECK(done.lookup == *id);
  CHECK(done.answer.error().code == errc::timeout);
  CHECK(s.take<lookup_release>().size() == 2);
  s.matched(matches[1], 3, t0 + time_limit);
  s.state.on_tick(t0 + 2 * time_limit);
  CHECK(s.effects.left() == 0);
  CHECK(s.state.under_way() == 0);
  CHECK(s.state.held() == 0);
}

TEST_CASE("lookup: an expired lease is dropped", "[lookup_state]") {
  finder s;
  REQUIRE(s.state.start(find(1), t0));
  s.matched(s.one<lookup_match>(), 1);
  const auto lease = s.one<lookup_finished>().answer->lease;
  s.state.on_tick(t0 + hold - 1 * ms);
  CHECK(s.state.held() == 1);
  s.state.on_tick(t0 + hold);
  CHECK(s.state.held() == 0);
  CHECK(s.state.release(lease, t0 + hold).error().code == errc::not_found);
  CHECK(s.effects.left() == 0);
}

TEST_CASE("lookup: the loss of the node ends lookups and drops leases", "[lookup_state]") {
  finder s{2};
  REQUIRE(s.state.start(find(20), t0));
  for (const auto& x : s.take<lookup_match>())
    s.matched(x, 20);
  const auto held = s.one<lookup_finished>().answer->lease;
  REQUIRE(s.state.start(find(20), t0));
  const auto matches = s.take<lookup_match>();
  s.matched(matches[0], 1);
  s.state.unbind(errc::unreachable);
  const auto done = s.one<lookup_finished>();
  CHECK(done.answer.error().code == errc::unreachable);
  CHECK(s.state.under_way() == 0);
  CHECK(s.state.held() == 0);
  CHECK_FALSE(s.state.bound());
  s.matched(matches[1], 1);
  CHECK(s.state.release(held, t0).error().code == errc::not_found);
  s.state.on_tick(t0 + std::chrono::hours(1));
  CHECK(s.effects.left() == 0);
}

TEST_CASE("lookup: a binding without limits on time does not overflow", "[lookup_state]") {
  finder s(1, 8, duration::max());
  REQUIRE(s.state.start(find(1, duration::max()), t0));
  s.matched(s.one<lookup_match>(), 1);
  CHECK(s.one<lookup_finished>().answer->matched == 1);
  s.state.on_tick(t0 + std::chrono::hours(1000));
  CHECK(s.state.held() == 1);
}

namespace {

lookup_task find_each(std::uint32_t count) {
  auto out = find(count);
  out.each = true;
  out.report_on_disk = true;
  return out;
}

/// Every key whose number `there` accepts is complete, every second one of these is on disk.
template <class F>
match_reply each_reply(const match_request& x, F there) {
  match_reply out;
  for (const auto& key : x.keys) {
    const bool is_there = there(key);
    out.found.items.push_back(is_there ? 1 : 0);
    if (is_there)
      out.on_disk.items.push_back(out.matched++ % 2 == 0 ? 1 : 0);
  }
  out.uses = out.matched > 0 ? 1 : 0;
  return out;
}

} // namespace

TEST_CASE("lookup of each key: answers of all shards are joined by position, and the rest is given back",
          "[lookup_state]") {
  finder s(3);
  const auto keys = test_task(12).keys.items;
  const auto there = [&](const key_digest& x) { return x == keys[2] || x == keys[3] || x == keys[11]; };
  s.state.start(find_each(12), t0);
  for (const auto& x : s.take<lookup_match>()) {
    CHECK(x.request.each);
    s.state.on_match(x.call, each_reply(x.request, there), t0);
  }
  const auto found = *s.one<lookup_finished>().answer;
  CHECK(found.matched == 3);
  REQUIRE(found.found.size() == 12);
  for (std::size_t i = 0; i < 12; ++i)
    CHECK(found.found[i] == (there(keys[i]) ? 1 : 0));
  CHECK(found.on_disk.size() == 12);
  REQUIRE(s.state.retain(found.lease, {keys[3], keys[11]}));
  std::vector<key_digest> retained;
  for (const auto& x : s.take<lookup_release>()) {
    CHECK(x.request.lease == found.lease);
    CHECK(x.request.keep == 0);
    retained.insert(retained.end(), x.request.retained.begin(), x.request.retained.end());
  }
  CHECK(retained.size() == 2);
  CHECK(s.state.held() == 1);
  REQUIRE(s.state.release(found.lease, t0));
  for (const auto& x : s.take<lookup_release>())
    CHECK(x.request.retained.empty());
  CHECK(s.state.held() == 0);
  CHECK(s.state.retain(found.lease, {keys[3]}).error().code == errc::not_found);
}

TEST_CASE("lookup of each key: nothing kept means nothing held", "[lookup_state]") {
  finder s(2);
  s.state.start(find_each(6), t0);
  for (const auto& x : s.take<lookup_match>())
    s.state.on_match(x.call, each_reply(x.request, [](const key_digest&) { return true; }), t0);
  const auto found = *s.one<lookup_finished>().answer;
  CHECK(found.matched == 6);
  REQUIRE(s.state.retain(found.lease, {}));
  CHECK(s.take<lookup_release>().size() == 2);
  CHECK(s.state.held() == 0);
}

TEST_CASE("lookup of each key: a shard that fails, is silent or answers without marks ends it, and leaves no lease",
          "[lookup_state]") {
  finder s(3);
  s.state.start(find_each(12), t0);
  const auto asked = s.take<lookup_match>();
  REQUIRE(asked.size() == 3);
  s.state.on_match(asked[0].call, each_reply(asked[0].request, [](const key_digest&) { return true; }), t0);
  SECTION("an error") {
    s.state.on_match(asked[1].call, fail(errc::shutting_down, "ends"), t0);
    s.state.on_match(asked[2].call, match_reply{}, t0);
    CHECK(s.one<lookup_finished>().answer.error().code == errc::shutting_down);
  }
  SECTION("no marks") {
    s.state.on_match(asked[1].call, match_reply{4}, t0);
    s.state.on_match(asked[2].call, match_reply{}, t0);
    CHECK(s.one<lookup_finished>().answer.error().code == errc::internal);
  }
  SECTION("silence, after the request was repeated under the same lease") {
    s.state.on_match(asked[1].call, fail(errc::timeout, "late"), t0);
    const auto again = s.one<lookup_match>();
    CHECK(again.request.lease == asked[1].request.lease);
    CHECK(again.request.each);
    s.state.on_tick(t0 + time_limit);
    CHECK(s.one<lookup_finished>().answer.error().code == errc::timeout);
  }
  CHECK(s.take<lookup_release>().size() == 3);
  CHECK(s.state.held() == 0);
  CHECK(s.state.under_way() == 0);
}

TEST_CASE("lookup of each key: peers are not asked", "[lookup_state]") {
  finder s(1);
  lookup_state::binding node{.owner = 77,
                             .ticket_stream = 2,
                             .ns = test_namespace,
                             .shard_count = 1,
                             .batch_keys_max = 512,
                             .lease_max = std::chrono::seconds(60),
                             .has_peers = true};
  s.state.bind(node);
  s.state.start(find_each(4), t0);
  const auto asked = s.one<lookup_match>();
  s.state.on_match(asked.call, each_reply(asked.request, [](const key_digest&) { return false; }), t0);
  CHECK(s.take<lookup_prefix_fetch>().empty());
  CHECK(s.one<lookup_finished>().answer->matched == 0);
}

} // namespace transfer_lookup_state_test
