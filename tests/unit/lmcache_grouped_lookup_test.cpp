#include "actors/lmcache/grouped_lookup.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <span>
#include <variant>
#include <vector>

namespace lmcache_grouped_lookup_test {

/// One lookup of several groups; the test acts as the node's shards and as the other nodes.

using namespace troupe;
using namespace troupe::lmcache;

namespace {

constexpr timestamp t0{std::chrono::hours(1)};
constexpr std::uint32_t shards = 3;

key_digest key_of(std::uint32_t chunk) {
  return hash_key(std::as_bytes(std::span(&chunk, 1)));
}

struct lookup_world {
  std::vector<group_needs> groups{{}, {2, false}, {1, true}};
  std::uint32_t chunks = 6;
  std::uint32_t begin = 0;
  bool has_peers = false;
  /// By group.
  std::vector<std::set<key_digest>> here = std::vector<std::set<key_digest>>(3);
  std::vector<std::set<key_digest>> there = std::vector<std::set<key_digest>>(3);
  std::map<ticket, std::set<key_digest>> held;
  /// What other nodes hold.
  std::set<std::uint64_t> searches;
  std::size_t asked = 0;
  std::size_t fetched = 0;
  /// Fetches bring nothing of this key, which is evicted there.
  std::optional<key_digest> lost;
  std::deque<grouped_lookup::effect> open;
  std::uint64_t last = 0;
  std::optional<grouped_lookup> lookup;

  void have(std::vector<std::set<key_digest>>& where, std::uint32_t group, const std::vector<std::uint32_t>& which) {
    for (const auto chunk : which)
      where[group].insert(key_of(chunk));
  }
  void begin_lookup() {
    grouped_lookup::terms how;
    for (std::uint32_t g = 0; g < groups.size(); ++g) {
      namespace_id ns;
      ns.lo = g + 1;
      how.groups.push_back({ns, groups[g], shards});
    }
    how.begin = begin;
    how.lease_for = std::chrono::minutes(1);
    how.has_peers = has_peers;
    how.peers_limit = std::chrono::seconds(2);
    std::vector<key_digest> keys;
    for (std::uint32_t i = 0; i < chunks; ++i)
      keys.push_back(key_of(i));
    lookup.emplace(std::move(how), std::move(keys), [this](std::uint32_t) { return ticket{7, ++last}; });
    lookup->start(t0);
    take();
  }
  void take() {
    for (auto& x : lookup->take_outbox())
      open.push_back(std::move(x));
  }
  void carry_out(const grouped_lookup::match& x) {
    match_reply out;
    for (const auto& key : x.request.keys.items) {
      const bool found = here[x.group].contains(key);
      out.found.items.push_back(found ? 1 : 0);
      out.matched += found ? 1 : 0;
      if (found)
        held[x.request.lease].insert(key);
    }
    CHECK(x.request.each);
    lookup->on_match(x.lookup, x.part, std::move(out), t0);
  }
  void carry_out(const grouped_lookup::release& x) {
    const auto known = held.find(x.request.lease);
    if (known == held.end())
      return;
    const auto& kept = x.request.retained.items;
    std::erase_if(known->second, [&](const key_digest& key) {
      return shard_of(key, shards) == x.shard && std::ranges::find(kept, key) == kept.end();
    });
    if (known->second.empty())
      held.erase(known);
  }
  void carry_out(const grouped_lookup::search& x) {
    ++asked;
    search_peers_reply out;
    for (const auto& key : x.request.keys.items)
      out.found.items.push_back(there[x.group].contains(key) ? 1 : 0);
    if (std::ranges::count(out.found.items, 1) > 0)
      searches.insert(out.search = ++last);
    lookup->on_search(x.group, out);
  }
  void carry_out(const grouped_lookup::fetch& x) {
    CHECK(searches.erase(x.request.search) == 1);
    if (x.request.keys.empty())
      return;
    CHECK((x.request.parents.size() == x.request.keys.size()) == (x.group == 0));
    for (const auto& key : x.request.keys.items) {
      CHECK(there[x.group].contains(key));
      ++fetched;
      if (key != lost)
        here[x.group].insert(key);
      else
        there[x.group].erase(key);
    }
    lookup->on_fetch(x.group, t0);
  }
  void step() {
    const auto x = std::move(open.front());
    open.pop_front();
    std::visit([this](const auto& y) { carry_out(y); }, x);
    take();
  }
  std::uint32_t run() {
    begin_lookup();
    while (!open.empty())
      step();
    REQUIRE(lookup->outcome());
    return lookup->outcome()->hit;
  }
  bool is_hit(std::uint32_t hit, bool with_peers) const {
    for (std::uint32_t g = 0; g < groups.size(); ++g)
      for (auto i = first_needed(groups[g], begin, hit); i < hit; ++i)
        if (!here[g].contains(key_of(i)) && !(with_peers && there[g].contains(key_of(i))))
          return false;
    return true;
  }
  std::uint32_t longest(bool with_peers) const {
    auto hit = chunks;
    while (hit > begin && !is_hit(hit, with_peers))
      --hit;
    return hit;
  }
  /// Exactly what a hit needs is leased, and other nodes hold nothing.
  void check_leases(std::uint32_t hit) const {
    std::multiset<key_digest> all;
    for (const auto& [lease, keys] : held)
      all.insert(keys.begin(), keys.end());
    std::multiset<key_digest> needed;
    for (const auto& group : groups)
      for (auto i = first_needed(group, begin, hit); i < hit; ++i)
        needed.insert(key_of(i));
    CHECK(all == needed);
    CHECK(searches.empty());
  }
};

} // namespace

TEST_CASE_METHOD(lookup_world, "lmcache grouped lookup: one answer for all groups, and leases on what it needs alone",
                 "[lmcache]") {
  have(here, 0, {0, 1, 2, 3, 4, 5});
  have(here, 1, {0, 1, 2, 4, 5});
  have(here, 2, {0, 2, 3});
  CHECK(run() == 3);
  check_leases(3);
  CHECK(lookup->outcome()->expires == t0 + std::chrono::minutes(1));
  lookup->give_back();
  take();
  while (!open.empty())
    step();
  check_leases(0);
}

TEST_CASE_METHOD(lookup_world, "lmcache grouped lookup: without one group nothing is found or leased", "[lmcache]") {
  const auto missing = GENERATE(0U, 1U, 2U);
  for (std::uint32_t g = 0; g < 3; ++g)
    if (g != missing)
      have(here, g, {0, 1, 2, 3, 4, 5});
  CHECK(run() == 0);
  check_leases(0);
}

TEST_CASE_METHOD(lookup_world, "lmcache grouped lookup: other nodes bring exactly what the longest hit lacks",
                 "[lmcache]") {
  has_peers = true;
  have(here, 0, {0, 1, 2});
  have(here, 1, {1, 2});
  have(here, 2, {2});
  have(there, 0, {3, 4, 5});
  have(there, 1, {0, 3, 4});
  have(there, 2, {3, 4});
  SECTION("all of it") {
    CHECK(run() == 5);
    CHECK(fetched == 2 + 2 + 1);
    CHECK(asked == 3);
  }
  SECTION("a state is lost on the way: a shorter hit is fetched") {
    lost = key_of(4);
    CHECK(run() == 4);
    CHECK(asked == 6);
  }
  check_leases(lookup->outcome()->hit);
}

TEST_CASE_METHOD(lookup_world, "lmcache grouped lookup: it ends in time, and leaves nothing at other nodes",
                 "[lmcache]") {
  has_peers = true;
  have(here, 0, {0, 1, 2, 3});
  have(here, 1, {0, 1, 2, 3});
  have(here, 2, {1});
  have(there, 2, {2, 3});
  have(there, 1, {4});
  const auto when = GENERATE(range(3, 14));
  const bool cancels = GENERATE(true, false);
  begin_lookup();
  for (int i = 0; i < when && !open.empty(); ++i)
    step();
  if (cancels) {
    lookup->cancel();
  } else {
    lookup->on_tick(t0 + std::chrono::seconds(2));
    lookup->on_tick(t0 + std::chrono::seconds(2));
  }
  take();
  while (!open.empty())
    step();
  REQUIRE(lookup->outcome());
  const auto hit = lookup->outcome()->hit;
  CHECK((hit == 0 || is_hit(hit, false)));
  CHECK((hit == 4 || hit == 2 || (cancels && hit == 0)));
  check_leases(hit);
}

TEST_CASE_METHOD(lookup_world, "lmcache grouped lookup: a shard that does not answer makes it find nothing",
                 "[lmcache]") {
  for (std::uint32_t g = 0; g < 3; ++g)
    have(here, g, {0, 1, 2, 3, 4, 5});
  begin_lookup();
  const auto x = std::get<grouped_lookup::match>(open.front());
  open.pop_front();
  while (!open.empty())
    step();
  lookup->on_match(x.lookup, x.part, fail(errc::unreachable, "down"), t0);
  take();
  while (!open.empty())
    step();
  REQUIRE(lookup->outcome());
  CHECK(lookup->outcome()->hit == 0);
  check_leases(0);
}

TEST_CASE_METHOD(lookup_world, "lmcache grouped lookup: whatever is here and there, the longest hit is found",
                 "[lmcache]") {
  std::mt19937 random{20261130};
  for (int round = 0; round < 400; ++round) {
    INFO("round " << round);
    held.clear();
    has_peers = random() % 2 == 0;
    chunks = 1 + static_cast<std::uint32_t>(random() % 8);
    begin = static_cast<std::uint32_t>(random() % (chunks + 1));
    for (auto* where : {&here, &there})
      for (auto& keys : *where) {
        keys.clear();
        const auto share = random() % 4;
        for (std::uint32_t i = 0; i < chunks; ++i)
          if (random() % 4 <= share)
            keys.insert(key_of(i));
      }
    groups[1].window_chunks = 1 + static_cast<std::uint32_t>(random() % 3);
    const auto best = longest(has_peers);
    CHECK(run() == best);
    check_leases(best);
  }
}

} // namespace lmcache_grouped_lookup_test
