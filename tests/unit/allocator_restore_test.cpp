// Slots that an earlier run left live.

#include "actors/node/allocator/allocator_state.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace allocator_restore_test {

using namespace troupe;

namespace {

using codes_t = std::vector<errc>;
using slots_t = std::vector<slot_ref>;
using slot_state = allocator_state::slot_state;

const timestamp now{std::chrono::seconds(1)};

slots_t take(allocator_state& a, std::uint32_t n) {
  a.take(1, n, now + std::chrono::seconds(1), now);
  auto out = a.take_outbox();
  return out.answers.empty() ? slots_t{} : out.answers[0].reply.slots.items;
}

} // namespace

TEST_CASE("allocator restore: restored slots are live, all others free with fresh generations", "[allocator]") {
  allocator_state a({.slots = 6, .first_generation = 100});
  CHECK(a.restore(slots_t{{1, 7}, {4, 9}}) == codes_t{errc::ok, errc::ok});
  CHECK(a.restore(slots_t{{6, 1}, {2, 0}}) == codes_t{errc::out_of_range, errc::invalid_argument});
  CHECK(a.restored().empty());
  CHECK(a.stats().live == 2);
  CHECK(a.stats().free == 4);
  CHECK(a.check_invariants() == "");
  CHECK(take(a, 4) == slots_t{{0, 101}, {2, 101}, {3, 101}, {5, 101}});
  CHECK(a.release(slots_t{{1, 8}, {1, 7}}) == codes_t{errc::stale, errc::ok});
  CHECK(a.fenced(slots_t{{1, 7}}) == codes_t{errc::ok});
  CHECK(take(a, 1) == slots_t{{1, 8}});
  CHECK(a.check_invariants() == "");
}

TEST_CASE("allocator restore: a slot that is claimed more than once belongs to no key, whatever the generations",
          "[allocator]") {
  allocator_state a({.slots = 4, .first_generation = 100});
  CHECK(a.restore(slots_t{{0, 5}, {0, 6}, {0, 4}}) == codes_t{errc::ok, errc::stale, errc::stale});
  CHECK(a.restore(slots_t{{1, 5}, {1, 5}, {1, 5}, {1, 4}}) == codes_t{errc::ok, errc::stale, errc::stale, errc::stale});
  CHECK(a.restore(slots_t{{2, 200}, {2, 199}, {2, 201}}) == codes_t{errc::ok, errc::stale, errc::stale});
  CHECK(a.restore(slots_t{{3, 200}}) == codes_t{errc::ok});
  CHECK(a.restored() == slots_t{{0, 5}, {1, 5}, {2, 200}});
  CHECK(a.restored().empty());
  CHECK(a.stats().live == 1);
  CHECK(take(a, 3) == slots_t{{0, 101}, {1, 101}, {2, 202}}); // never again a generation that was claimed
  CHECK(a.check_invariants() == "");
}

TEST_CASE("allocator restore: no slots are handed out during a restore, and waiting requests are served afterwards",
          "[allocator]") {
  allocator_state a({.slots = 4, .low_watermark = 1, .high_watermark = 2, .first_generation = 0});
  CHECK(a.restore(slots_t{{0, 1}}) == codes_t{errc::ok});
  a.take(9, 2, now + std::chrono::seconds(5), now);
  CHECK(a.take_outbox().empty()); // no eviction is requested either
  CHECK(a.restore(slots_t{{1, 1}}) == codes_t{errc::ok});
  a.restored();
  const auto out = a.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].reply.slots.items == slots_t{{2, 1}, {3, 1}});
}

TEST_CASE("allocator restore: a restore requests no eviction before slots are requested", "[allocator]") {
  // The shards would evict keys whose slots on other ranks are not restored yet.
  allocator_state a({.slots = 4, .low_watermark = 2, .high_watermark = 3, .first_generation = 0});
  CHECK(a.restore(slots_t{{0, 1}, {1, 1}, {2, 1}}) == codes_t{errc::ok, errc::ok, errc::ok});
  a.restored();
  a.tick(now);
  CHECK(a.take_outbox().empty());
  a.take(1, 1, now + std::chrono::seconds(1), now);
  const auto out = a.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.evict == 3);
}

TEST_CASE("allocator restore: slots in use are not restored", "[allocator]") {
  SECTION("after restoring") {
    allocator_state a({.slots = 2});
    a.restored();
    CHECK(a.restore(slots_t{{0, 1}}) == codes_t{errc::invalid_argument});
    CHECK(take(a, 2).size() == 2);
  }
  SECTION("after slots were handed out") {
    allocator_state a({.slots = 2});
    CHECK(take(a, 1).size() == 1);
    CHECK(a.restore(slots_t{{1, 1}}) == codes_t{errc::invalid_argument});
    CHECK(a.check_invariants() == "");
  }
}

TEST_CASE("allocator restore: claims in any order leave the same slots", "[allocator]") {
  const auto seed = GENERATE(range(0U, 20U));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  constexpr std::uint32_t n = 30;
  slots_t claims;
  for (int i = 0; i < 60; ++i)
    claims.push_back({static_cast<slot_number>(random() % n), 1 + static_cast<generation_number>(random() % 4)});
  std::map<slot_number, slots_t> wanted;
  for (const auto& c : claims)
    wanted[c.slot].push_back(c);
  allocator_state a({.slots = n, .first_generation = 10});
  const auto results = a.restore(claims);
  std::multiset<slot_ref> held;
  for (std::size_t i = 0; i < claims.size(); ++i)
    if (results[i] == errc::ok)
      held.insert(claims[i]);
  for (const auto& lost : a.restored())
    REQUIRE(held.erase(lost) == 1);
  for (slot_number slot = 0; slot < n; ++slot) {
    INFO("slot " << slot);
    const auto found = wanted.find(slot);
    const bool live = found != wanted.end() && found->second.size() == 1;
    REQUIRE((a.state_of(slot) == slot_state::live) == live);
    if (live) {
      REQUIRE(a.generation_of(slot) == found->second[0].generation);
      REQUIRE(held.count({slot, a.generation_of(slot)}) == 1);
      held.erase({slot, a.generation_of(slot)});
    }
  }
  REQUIRE(held.empty()); // all successful claims that were not lost are live
  REQUIRE(a.check_invariants() == "");
}

} // namespace allocator_restore_test
