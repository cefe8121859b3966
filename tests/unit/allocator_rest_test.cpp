// Slots of slab files that engines write themselves: they are not fenced, and some of them rest.

#include "actors/node/allocator/allocator_state.hpp"
#include "tests/catch.hpp"

#include <chrono>
#include <optional>
#include <span>
#include <vector>

namespace allocator_rest_test {

using namespace troupe;

namespace {

using codes_t = std::vector<errc>;
using slots_t = std::vector<slot_ref>;
using slot_state = allocator_state::slot_state;

constexpr bool rests = true;
constexpr bool at_once = false;

timestamp at(std::int64_t seconds) {
  return timestamp{std::chrono::seconds(1000 + seconds)};
}

/// An allocator without an io worker; slots rest for three seconds.
struct unfenced {
  explicit unfenced(std::uint32_t slots)
      : state(
            {.slots = slots, .fenced = false, .closed_for = std::chrono::seconds(5), .rest = std::chrono::seconds(3)}) {
  }

  /// Waits for two seconds at most. Nothing if there is no answer yet.
  std::optional<take_answer> take(std::uint32_t count, std::int64_t now) {
    state.take(++request, count, at(now + 2), at(now));
    return answer();
  }

  std::optional<take_answer> answer() {
    auto out = state.take_outbox();
    CHECK(out.fence.empty());
    wanted = out.evict;
    if (out.answers.empty())
      return std::nullopt;
    return out.answers[0];
  }

  slots_t taken(std::uint32_t count, std::int64_t now) {
    const auto given = take(count, now);
    REQUIRE(given.has_value());
    REQUIRE(given->code == errc::ok);
    return given->reply.slots.items;
  }

  slots_t live(std::uint32_t count) {
    auto slots = taken(count, 0);
    REQUIRE(state.publish(slots) == codes_t(count, errc::ok));
    return slots;
  }

  allocator_state state;
  std::uint64_t request = 0;
  std::uint32_t wanted = 0;
};

} // namespace

TEST_CASE("allocator rest: a request is answered full at once while all slots are resting", "[allocator]") {
  unfenced a(4);
  a.state.close(at(0));
  const auto none = a.take(2, 0);
  REQUIRE(none);
  CHECK(none->code == errc::full);
  CHECK(none->reply.slots.items.empty());
  CHECK(a.wanted == 0);
  const auto closed = a.state.stats();
  CHECK(closed.total == 4);
  CHECK(closed.quarantined == 4);
  CHECK(closed.free == 0);
  CHECK(a.state.next_deadline() == at(5));
  a.state.tick(at(4));
  CHECK(a.take(1, 4)->code == errc::full);
  a.state.tick(at(5));
  CHECK(a.state.stats().free == 4);
  CHECK(a.taken(4, 5).size() == 4);
  CHECK(a.state.check_invariants().empty());
}

TEST_CASE("allocator rest: slots are handed out from the configured first slot on and wrap around", "[allocator]") {
  for (const slot_number first : {0U, 1U, 3U, 4U}) {
    allocator_state a({.slots = 4, .fenced = false, .first_slot = first, .rest = std::chrono::seconds(3)});
    CHECK(a.check_invariants().empty());
    a.take(1, 4, at(2), at(0));
    const auto given = a.take_outbox().answers.at(0).reply.slots.items;
    REQUIRE(given.size() == 4);
    for (slot_number i = 0; i < 4; ++i)
      CHECK(given[i].slot == (first + i) % 4);
    CHECK(a.check_invariants().empty());
  }
}

TEST_CASE("allocator rest: a slot that needs no rest is free at once and others are free after the rest time",
          "[allocator]") {
  unfenced a(4);
  const auto reserved = a.taken(2, 0);
  const auto live = a.live(2);
  CHECK(a.state.release(std::span(live).first(1), at_once, at(0)) == codes_t{errc::ok});
  CHECK(a.state.release(std::span(live).last(1), rests, at(1)) == codes_t{errc::ok});
  CHECK(a.state.abort(std::span(reserved).first(1), at_once, at(1)) == codes_t{errc::ok});
  CHECK(a.state.abort(std::span(reserved).last(1), rests, at(2)) == codes_t{errc::ok});
  CHECK(a.state.state_of(live[0].slot) == slot_state::free);
  CHECK(a.state.state_of(reserved[0].slot) == slot_state::free);
  CHECK(a.state.stats().quarantined == 2);
  CHECK(a.state.next_deadline() == at(4));
  a.state.tick(at(3));
  CHECK(a.state.stats().quarantined == 2);
  a.state.tick(at(4));
  CHECK(a.state.state_of(live[1].slot) == slot_state::free);
  CHECK(a.state.stats().quarantined == 1);
  a.state.tick(at(5));
  CHECK(a.state.stats().free == 4);
  CHECK_FALSE(a.state.next_deadline().has_value());
  CHECK(a.state.check_invariants().empty());
}

TEST_CASE("allocator rest: a slot is released once, resting or not", "[allocator]") {
  unfenced a(2);
  const auto live = a.live(2);
  const slots_t twice{live[0], live[0]};
  CHECK(a.state.release(twice, at_once, at(0)) == codes_t{errc::ok, errc::stale});
  CHECK(a.state.release(twice, rests, at(0)) == codes_t{errc::stale, errc::stale});
  CHECK(a.state.release(std::span(live).last(1), rests, at(0)) == codes_t{errc::ok});
  CHECK(a.state.release(std::span(live).last(1), at_once, at(0)) == codes_t{errc::stale});
  CHECK(a.state.fenced(std::span(live).first(1)) == codes_t{errc::stale});
  CHECK(a.state.stats().refused == 5);
  CHECK(a.state.check_invariants().empty());
}

TEST_CASE("allocator rest: a small full pool accepts as much as it evicts without waiting", "[allocator]") {
  constexpr std::uint32_t slots = 8;
  unfenced a(slots);
  auto live = a.live(slots);
  for (int round = 0; round < 1000; ++round) {
    REQUIRE_FALSE(a.take(slots, 0).has_value());
    REQUIRE(a.wanted == slots);
    REQUIRE(a.state.release(live, at_once, at(0)) == codes_t(slots, errc::ok));
    a.state.eviction_done(slots, true);
    const auto given = a.answer();
    REQUIRE(given.has_value());
    live = given->reply.slots.items;
    REQUIRE(a.state.publish(live) == codes_t(slots, errc::ok));
  }
  CHECK(a.state.check_invariants().empty());
}

TEST_CASE("allocator rest: requests do not wait for slots whose rest ends after their deadline", "[allocator]") {
  unfenced a(4);
  const auto reserved = a.taken(2, 0);
  const auto live = a.live(2);
  a.state.abort(reserved, rests, at(0));
  SECTION("other slots are evicted instead") {
    CHECK_FALSE(a.take(2, 0).has_value());
    CHECK(a.wanted == 2);
    a.state.release(live, at_once, at(0));
    a.state.eviction_done(2, false);
    CHECK(a.answer()->code == errc::ok);
  }
  SECTION("the answer comes at once if none can be evicted") {
    CHECK_FALSE(a.take(2, 0).has_value());
    a.state.eviction_done(0, false);
    CHECK(a.answer()->code == errc::full);
  }
  SECTION("it waits for slots whose rest ends in time") {
    CHECK_FALSE(a.take(2, 1).has_value());
    CHECK(a.wanted == 0);
    a.state.tick(at(3));
    CHECK(a.answer()->code == errc::ok);
  }
  CHECK(a.state.check_invariants().empty());
}

} // namespace allocator_rest_test
