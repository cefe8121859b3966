// The requirements of every eviction policy, whatever its order. They are tested on the shipped policies and on one
// with a hand, with ghosts, and with hashes of keys. A whole shard is tested with the latter.

#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"
#include "tests/unit/sieve_policy.hpp"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace eviction_policy_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using entries_t = std::vector<entry_index>;

std::vector<eviction_factory> all_policies() {
  auto out = policies();
  out.push_back(make_sieve_policy);
  return out;
}

/// Key n has entry n.
std::unique_ptr<eviction_policy> made(eviction_factory factory) {
  return factory([](entry_index i) { return std::uint64_t{i} * 0x9e3779b97f4a7c15U; });
}

std::set<entry_index> all_of(const eviction_policy& policy) {
  std::set<entry_index> out;
  policy.for_each([&](entry_index i) { REQUIRE(out.insert(i).second); });
  return out;
}

entries_t proposed(eviction_policy& policy, std::size_t most) {
  entries_t out(most);
  out.resize(policy.propose(out));
  return out;
}

entries_t up_to(entry_index n) {
  entries_t out;
  for (entry_index i = 0; i < n; ++i)
    out.push_back(i);
  return out;
}

} // namespace

TEST_CASE("eviction policy: a policy tracks each entry from its first page to its last and proposes no other",
          "[registry]") {
  const auto policy = made(GENERATE(from_range(all_policies())));
  const auto seed = GENERATE(1U, 2U, 3U);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::set<entry_index> members;
  for (int step = 0; step < 400; ++step) {
    entries_t fresh;
    entries_t known;
    for (auto n = random() % 40; n > 0; --n) {
      const auto entry = static_cast<entry_index>(random() % 200);
      (members.insert(entry).second ? fresh : known).push_back(entry);
    }
    if (step % 3 == 0)
      policy->announced(fresh, {.missing = fresh.size()});
    policy->inserted(fresh);
    policy->touched(known, {.missing = fresh.size(), .again = step % 5 == 0});
    const auto victims = proposed(*policy, random() % 50);
    REQUIRE(std::set(victims.begin(), victims.end()).size() == victims.size());
    REQUIRE(std::ranges::all_of(victims, [&](entry_index i) { return members.contains(i); }));
    // Those at the end get no answer.
    for (std::size_t i = 0; i < victims.size() - std::min<std::size_t>(victims.size(), random() % 4); ++i) {
      if (random() % 3 == 0) {
        policy->kept(victims[i]);
        continue;
      }
      policy->left(victims[i], leave_reason::evicted);
      members.erase(victims[i]);
    }
    if (!members.empty() && random() % 2 == 0) {
      policy->left(*members.begin(), leave_reason::erased);
      members.erase(members.begin());
    }
    REQUIRE(policy->size() == members.size());
    REQUIRE(all_of(*policy) == members);
  }
}

TEST_CASE("eviction policy: a policy proposes all entries once before it repeats a kept one", "[registry]") {
  const auto policy = made(GENERATE(from_range(all_policies())));
  const auto at_once = GENERATE(std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{1000});
  policy->inserted(up_to(100));
  policy->touched(entries_t{3, 50, 51, 52, 99}, {});
  for (int round = 0; round < 3; ++round) {
    std::set<entry_index> seen;
    while (seen.size() < 100) {
      const auto victims = proposed(*policy, std::min(at_once, 100 - seen.size()));
      REQUIRE_FALSE(victims.empty());
      for (const auto entry : victims) {
        REQUIRE(seen.insert(entry).second);
        policy->kept(entry);
      }
    }
  }
}

TEST_CASE("eviction policy: a policy proposes all entries in the end", "[registry]") {
  const auto policy = made(GENERATE(from_range(all_policies())));
  policy->inserted(up_to(100));
  policy->touched(up_to(100), {});
  for (std::size_t left = 100; left > 0;) {
    const auto victims = proposed(*policy, 16);
    REQUIRE_FALSE(victims.empty());
    for (const auto entry : victims)
      policy->left(entry, leave_reason::evicted);
    left -= victims.size();
    REQUIRE(policy->size() == left);
  }
  CHECK(proposed(*policy, 16).empty());
}

TEST_CASE("eviction policy: a policy proposes a freed entry that was kept first", "[registry]") {
  const auto policy = made(GENERATE(from_range(all_policies())));
  policy->inserted(up_to(100));
  const auto stem = proposed(*policy, 1).front();
  policy->kept(stem);
  const auto child = proposed(*policy, 1).front();
  CHECK(child != stem);
  policy->left(child, leave_reason::evicted);
  policy->freed(stem);
  CHECK(proposed(*policy, 1) == entries_t{stem});
  // Used meanwhile, it is like others that were.
  policy->touched(entries_t{stem}, {});
  CHECK(proposed(*policy, 1) != entries_t{stem});
}

TEST_CASE(
    "eviction policy: evict-first entries are proposed before others, from the last one on, until they are touched",
    "[registry]") {
  // A policy with a hand shows how little a policy needs to know of it.
  const auto policy = made(GENERATE(from_range(policies())));
  policy->inserted(up_to(100));
  policy->touched(entries_t{40, 41, 42, 43}, {});
  policy->marked_evict_first(entries_t{40, 41, 42, 43});
  policy->marked_evict_first(entries_t{7, 8});
  CHECK(proposed(*policy, 4) == entries_t{43, 42, 41, 40});
  // Marking again moves it to the front.
  policy->marked_evict_first(entries_t{42});
  policy->touched(entries_t{41}, {});
  entries_t order;
  for (auto left = 5; left > 0; --left) {
    order.push_back(proposed(*policy, 1).front());
    policy->left(order.back(), leave_reason::evicted);
  }
  CHECK(entries_t(order.begin(), order.begin() + 4) == entries_t{43, 40, 8, 7});
  CHECK(order[4] == 42);
  CHECK(policy->size() == 95);
  CHECK(all_of(*policy).contains(41));
}

TEST_CASE("eviction policy: the sieve skips a used entry once, and ghosts recognize returning keys", "[registry]") {
  sieve_policy policy([](entry_index i) { return std::uint64_t{i} + 1000; });
  policy.inserted(up_to(4)); // the oldest is 3
  policy.touched(entries_t{3}, {});
  CHECK(proposed(policy, 1) == entries_t{2});
  policy.left(2, leave_reason::evicted);
  CHECK(proposed(policy, 1) == entries_t{1});
  policy.left(1, leave_reason::erased);
  CHECK(policy.ghosts() == 1);
  // 2 counts as used, since it was requested again; 1 was erased and has no ghost.
  policy.inserted(entries_t{2});
  policy.inserted(entries_t{1});
  CHECK(proposed(policy, 3) == entries_t{0, 1, 3});
}

TEST_CASE("eviction policy: a shard evicts in the order of its policy", "[registry]") {
  registry_options how;
  how.eviction = make_sieve_policy;
  one_registry r(1, how);
  for (std::uint64_t n = 1; n <= 40; ++n)
    r.save({key_of(n)});
  // Used long ago, which recency would have forgotten over the later ones; and one that a lease holds.
  CHECK(r.count({key_of(1)}) == 1);
  CHECK(r.match({7, 1}, {key_of(2)}) == 1);
  CHECK(r.evict(30).slots == 30);
  CHECK(r.info(key_of(1)).has_value());
  CHECK_FALSE(r.info(key_of(3)).has_value());
  CHECK(r.state.check_invariants() == "");
  // An evicted key that returns is kept longer than one that was never requested twice.
  r.save({key_of(3)});
  CHECK(r.evict(8).slots == 8);
  CHECK(r.info(key_of(3)).has_value());
  const auto rest = r.evict(100);
  CHECK(r.state.keys() == 1);
  CHECK_FALSE(rest.more);
  r.release({7, 1});
  CHECK(r.evict(1).slots == 1);
  CHECK(r.state.keys() == 0);
  CHECK(r.state.check_invariants() == "");
}

} // namespace eviction_policy_test
