#include "tests/unit/allocator_rules.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <vector>

/// Slots that are there as far as there is memory for their pages.

namespace allocator_elastic_test {

using namespace troupe;
using namespace troupe::test::allocator_rules;

namespace {

/// Ten slots may be there, at first none.
allocator_state ten() {
  return allocator_state({.slots = 10, .elastic = true});
}

} // namespace

TEST_CASE("allocator elastic: memory is requested before any slot is evicted", "[allocator]") {
  auto state = ten();
  CHECK(state.stats().total == 0);
  state.take(1, 3, at(500), at(0));
  auto out = state.take_outbox();
  CHECK(out.grow > 0);
  CHECK(out.evict == 0);
  CHECK(out.answers.empty());
  state.take(2, 1, at(500), at(1));
  CHECK(state.take_outbox().empty()); // the answer is in progress
  state.resize(2);
  CHECK(state.take_outbox().grow > 0); // not enough yet
  state.resize(4);
  out = state.take_outbox();
  REQUIRE(out.answers.size() == 2);
  CHECK(out.answers[0].reply.slots.size() == 3);
  CHECK(out.answers[1].reply.slots.size() == 1);
  CHECK(out.grow == 0);
  CHECK(state.stats().total == 4);
  CHECK(state.stats().free == 0);
  check_sum(state);
}

TEST_CASE("allocator elastic: without free memory the allocator evicts slots and later requests memory again",
          "[allocator]") {
  auto state = ten();
  state.take(1, 2, at(500), at(0));
  state.take_outbox();
  state.resize(2);
  const auto mine = answer(state);
  state.publish(mine);
  state.take(2, 1, at(500), at(10));
  CHECK(state.take_outbox().grow > 0);
  state.resize(2);
  auto out = state.take_outbox();
  CHECK(out.grow == 0);
  CHECK(out.evict == 1);
  SECTION("evicted slots are handed out") {
    state.release(std::span(mine).first(1));
    state.eviction_done(1, false);
    out = state.take_outbox();
    state.fenced(out.fence);
    CHECK(answer(state).size() == 1);
    // More memory is not requested again at once.
    state.take(3, 1, at(700), at(600));
    out = state.take_outbox();
    CHECK(out.grow == 0);
    CHECK(out.evict == 1);
    state.eviction_done(0, true);
    state.tick(at(1200));
    CHECK(state.take_outbox().answers.size() == 1);
    state.take(4, 1, at(2500), at(1300));
    CHECK(state.take_outbox().grow > 0);
  }
  SECTION("nothing can be evicted: waiting requests are answered full") {
    state.eviction_done(0, false);
    out = state.take_outbox();
    REQUIRE(out.answers.size() == 1);
    CHECK(out.answers[0].code == errc::full);
    CHECK(out.answers[0].reply.slots.empty());
  }
  check_sum(state);
}

TEST_CASE("allocator elastic: a request for more than the maximum gets all existing slots", "[allocator]") {
  auto state = ten();
  state.take(1, 20, at(500), at(0));
  CHECK(state.take_outbox().grow > 0);
  state.resize(5);
  CHECK(state.take_outbox().grow > 0);
  state.resize(10);
  auto out = state.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].code == errc::full);
  CHECK(out.answers[0].reply.slots.size() == 10);
  // An allocator without any slot answers too.
  auto none = ten();
  none.take(1, 1, at(500), at(0));
  none.take_outbox();
  none.resize(0);
  CHECK(none.take_outbox().answers.at(0).code == errc::full);
}

TEST_CASE("allocator elastic: revoked slots are evicted and counted while they are in use", "[allocator]") {
  auto state = ten();
  state.take(1, 8, at(500), at(0));
  state.take_outbox();
  state.resize(8);
  const auto mine = answer(state);
  state.publish(mine);
  state.resize(5);
  auto out = state.take_outbox();
  CHECK(out.evict == 3);
  CHECK(out.grow == 0);
  CHECK(state.stats().total == 8);
  CHECK(state.stats().free == 0);
  check_sum(state);
  state.release(std::span(mine).first(3));
  state.eviction_done(3, true);
  out = state.take_outbox();
  CHECK(out.evict == 0);
  state.fenced(out.fence);
  CHECK(state.stats().total == 5);
  CHECK(state.stats().free == 0);
  check_sum(state);
}

TEST_CASE("allocator elastic: watermarks are shares of the slots that exist", "[allocator]") {
  allocator_state state({.slots = 100, .low_watermark = 10, .high_watermark = 20, .elastic = true});
  state.take(1, 45, at(500), at(0));
  state.take_outbox();
  state.resize(50);
  const auto mine = answer(state);
  CHECK(state.take_outbox().empty());
  state.take(2, 1, at(500), at(1));
  auto out = state.take_outbox();
  CHECK(out.answers.size() == 1);
  CHECK(out.grow > 0);
  state.resize(50);
  CHECK(state.take_outbox().evict == 6);
}

TEST_CASE("allocator elastic: random operations on an elastic allocator keep its accounting and answer every request",
          "[allocator]") {
  const auto seed = GENERATE(range(1U, 9U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](std::uint32_t below) { return static_cast<std::uint32_t>(random() % below); };
  enum class kind : std::uint8_t { memory, file, sparse_file };
  const auto of = GENERATE(kind::memory, kind::file, kind::sparse_file);
  CAPTURE(static_cast<int>(of));
  const bool in_file = of != kind::memory;
  allocator_options how{.slots = 60, .low_watermark = 4, .high_watermark = 8, .elastic = true};
  if (in_file)
    how.there = 0;
  std::uint32_t granted = 0;
  std::uint32_t within_room = 0;
  allocator_state state(how);
  std::vector<slot_ref> reserved;
  std::vector<slot_ref> live;
  std::vector<slot_ref> fencing;
  std::map<std::uint64_t, timestamp> waiting;
  std::uint32_t limit = 0;
  bool grow = false;
  std::uint32_t evict = 0;
  std::uint64_t last = 0;
  std::uint64_t given = 0;
  std::int64_t now = 0;
  const auto flush = [&] {
    auto out = state.take_outbox();
    for (const auto& x : out.answers) {
      REQUIRE(waiting.erase(x.request) == 1);
      const auto& got = x.reply.slots.items;
      for (const auto& slot : got)
        REQUIRE((!in_file || slot.slot < limit));
      reserved.insert(reserved.end(), got.begin(), got.end());
      given += got.size();
    }
    fencing.insert(fencing.end(), out.fence.begin(), out.fence.end());
    CHECK_FALSE((grow && out.grow > 0));
    grow = grow || out.grow > 0;
    within_room = out.grow > 0 ? out.grow_within_room : within_room;
    evict += out.evict;
    // The number of free slots exceeds the limit only by slots that were in use when it was lowered.
    REQUIRE(state.stats().free <= limit);
    check_sum(state);
  };
  for (int i = 0; i < 3000; ++i) {
    switch (draw(8)) {
    case 0:
    case 1:
      waiting[++last] = at(now + 400);
      state.take(last, 1 + draw(7), at(now + 400), at(now));
      break;
    case 2: {
      const auto x = some_of(reserved, random);
      state.publish(x);
      live.insert(live.end(), x.begin(), x.end());
      break;
    }
    case 3:
      state.abort(some_of(reserved, random));
      break;
    case 4:
      if (evict > 0) {
        const auto x = some_of(live, random);
        state.release(x);
        state.eviction_done(x.size(), draw(2) == 0);
        evict = 0;
      }
      break;
    case 5:
      if (of == kind::sparse_file && std::exchange(grow, false)) {
        const auto more = within_room > 0 ? within_room : std::min(60U - limit, draw(2) == 0 ? 5U : 0U);
        limit += more;
        granted += within_room > 0 ? 0 : more;
        state.grown(limit, granted);
      } else if (of == kind::sparse_file) {
        state.set_room(granted + draw(1 + granted / 3));
      } else if (std::exchange(grow, false)) {
        limit = std::min(60U, limit + (draw(2) == 0 ? 12U : 0U));
        state.resize(limit);
      } else if (!in_file && limit > 12 && draw(12) == 0) {
        limit -= 12;
        state.resize(limit);
      }
      break;
    case 6:
      state.fenced(some_of(fencing, random));
      break;
    default:
      now += draw(200);
      state.tick(at(now));
    }
    flush();
    for (const auto& [request, deadline] : waiting)
      REQUIRE(deadline > at(now - 1));
  }
  CHECK(given > 300);
}

TEST_CASE("allocator elastic: slots whose memory is revoked are evicted as soon as they can be", "[allocator]") {
  auto state = ten();
  state.take(1, 8, at(500), at(0));
  state.resize(8);
  state.take_outbox();
  const auto slots = [&] {
    slots_t out;
    for (slot_number slot = 0; slot < 8; ++slot)
      out.push_back({slot, state.generation_of(slot)});
    return out;
  }();
  state.publish(slots);
  state.set_limit(4);
  CHECK(state.take_outbox().evict == 4);
  state.eviction_done(0, false);
  CHECK(state.take_outbox().evict == 0);
  // The request is repeated when leases may have ended.
  state.set_limit(8);
  CHECK(state.take_outbox().evict == 0);
  state.set_limit(4);
  CHECK(state.take_outbox().evict == 4);
  state.release(std::span(slots).first(4));
  state.eviction_done(4, true);
  state.fenced(std::span(slots).first(4));
  CHECK(state.take_outbox().evict == 0);
  CHECK(state.stats().free == 0);
  // Additional slots serve waiting requests although the answer to an earlier request is still pending.
  state.take(2, 2, at(500), at(10));
  const auto out = state.take_outbox();
  CHECK(out.grow > 0);
  state.set_limit(6);
  CHECK(answer(state).size() == 2);
  state.resize(6);
}

TEST_CASE("allocator elastic: new slots of a growing file are handed out once they exist", "[allocator]") {
  allocator_state state({.slots = 10, .elastic = true, .there = 2});
  CHECK(state.stats().total == 2);
  CHECK(state.stats().free == 2);
  state.take(1, 2, at(500), at(0));
  auto mine = answer(state);
  REQUIRE(mine.size() == 2);
  CHECK(mine[0].slot == 0);
  CHECK(mine[1].slot == 1);
  state.publish(mine);
  // A released slot is given out before a new one of the file.
  state.release(std::span(mine).first(1));
  state.fenced(state.take_outbox().fence);
  state.take(2, 1, at(500), at(0));
  auto again = answer(state);
  REQUIRE(again.size() == 1);
  CHECK(again[0].slot == 0);
  state.take(3, 3, at(500), at(1));
  CHECK(state.take_outbox().grow == 3);
  CHECK(state.publish(slots_t{{5, 1}}) == std::vector{errc::out_of_range});
  state.resize(6);
  auto more = answer(state);
  REQUIRE(more.size() == 3);
  CHECK(more[0].slot == 2);
  CHECK(more[2].slot == 4);
  CHECK(state.stats().total == 6);
  check_sum(state);
  // It never has fewer.
  state.resize(1);
  CHECK(state.stats().total == 6);
  CHECK(state.stats().free == 1);
  check_sum(state);
}

TEST_CASE("allocator elastic: slots are evicted for waiting requests while a file is slow to grow", "[allocator]") {
  allocator_state state({.slots = 10, .elastic = true, .there = 2});
  state.take(1, 2, at(5000), at(0));
  const auto mine = answer(state);
  state.publish(mine);
  state.take(2, 1, at(5000), at(0));
  auto out = state.take_outbox();
  CHECK(out.grow == 1);
  CHECK(out.evict == 0);
  state.tick(at(499));
  CHECK(state.take_outbox().empty());
  state.tick(at(500));
  out = state.take_outbox();
  CHECK(out.evict == 1);
  CHECK(out.grow == 0);
  state.release(std::span(mine).first(1));
  state.fenced(state.take_outbox().fence);
  state.eviction_done(1, true);
  CHECK(answer(state).size() == 1);
  // The delayed answer arrives.
  state.resize(6);
  CHECK(state.stats().total == 6);
  CHECK(state.stats().free == 4);
  check_sum(state);
}

TEST_CASE("allocator elastic: claims on slots that the file does not have are refused", "[allocator]") {
  allocator_state state({.slots = 10, .elastic = true, .there = 3});
  CHECK(state.restore(slots_t{{2, 7}, {3, 7}}) == std::vector{errc::ok, errc::out_of_range});
  state.take(1, 3, at(500), at(0));
  CHECK(state.take_outbox().empty());
  CHECK(state.restored().empty());
  CHECK(state.take_outbox().grow == 1);
  state.resize(3);
  CHECK(state.take_outbox().evict == 1);
  CHECK(state.stats().live == 1);
  check_sum(state);
}

TEST_CASE("allocator elastic: a sparse file has more slots than whole pages, as far as there is room", "[allocator]") {
  allocator_state state({.slots = 13, .elastic = true, .there = 4, .granted = 4});
  CHECK(state.stats().total == 4);
  state.set_room(6);
  state.take(1, 5, at(500), at(0));
  // What needs no disk space comes first.
  auto out = state.take_outbox();
  CHECK(out.grow == 1);
  CHECK(out.grow_within_room == 1);
  state.grown(5, 4);
  const auto mine = answer(state);
  REQUIRE(mine.size() == 5);
  state.publish(mine);
  state.take(2, 3, at(500), at(1));
  out = state.take_outbox();
  CHECK(out.grow == 3);
  CHECK(out.grow_within_room == 1);
  state.grown(6, 4);
  out = state.take_outbox();
  CHECK(out.grow == 2);
  CHECK(out.grow_within_room == 0);
  // With more disk space there is room for as many more at once, before the io worker has counted it.
  state.grown(8, 6);
  CHECK(answer(state).size() == 3);
  CHECK(state.file_slots() == 8);
  CHECK(state.granted() == 6);
  check_sum(state);
}

TEST_CASE("allocator elastic: where a sparse file has less room, slots are evicted and not granted again",
          "[allocator]") {
  allocator_state state({.slots = 8, .elastic = true, .there = 8, .granted = 6});
  state.take(1, 8, at(500), at(0));
  const auto mine = answer(state);
  REQUIRE(mine.size() == 8);
  state.publish(mine);
  state.set_room(7);
  CHECK(state.take_outbox().evict == 1);
  state.release(std::span(mine).first(1));
  state.eviction_done(1, true);
  state.fenced(state.take_outbox().fence);
  CHECK(state.stats().free == 0);
  check_sum(state);
  state.take(2, 1, at(500), at(1));
  CHECK(state.take_outbox().evict == 1);
  // It never has room for fewer pages than it has disk space for.
  state.set_room(1);
  state.release(std::span(mine).subspan(1, 1));
  state.eviction_done(1, true);
  auto out = state.take_outbox();
  state.fenced(out.fence);
  CHECK(out.answers.empty());
  CHECK(out.evict == 1);
  CHECK(state.take_outbox().answers.empty());
  state.set_room(7);
  CHECK(answer(state).size() == 1);
  check_sum(state);
}

TEST_CASE("allocator elastic: slots beyond the room are evicted when leases have ended, without another request",
          "[allocator]") {
  allocator_state state({.slots = 8, .elastic = true, .there = 8, .granted = 6});
  state.set_room(8);
  state.take(1, 8, at(500), at(0));
  const auto mine = answer(state);
  state.publish(mine);
  state.set_room(7);
  CHECK(state.take_outbox().evict == 1);
  state.eviction_done(0, false);
  state.tick(at(1));
  CHECK(state.take_outbox().evict == 1);
  state.eviction_done(0, false);
  state.tick(at(2));
  CHECK(state.take_outbox().evict == 0);
  state.tick(at(1002));
  CHECK(state.take_outbox().evict == 1);
}

TEST_CASE("allocator elastic: a room that is known before the first request evicts nothing", "[allocator]") {
  allocator_state state({.slots = 8, .elastic = true, .there = 4, .granted = 2});
  CHECK(state.restore(slots_t{{0, 7}, {1, 7}, {2, 7}, {3, 7}}).size() == 4);
  state.restored();
  state.set_room(3);
  CHECK(state.take_outbox().evict == 0);
  state.take(1, 1, at(500), at(0));
  CHECK(state.take_outbox().evict > 0);
}

TEST_CASE("allocator elastic: the free slots of a file can be listed after claims were restored", "[allocator]") {
  allocator_state state({.slots = 10, .first_generation = 5, .elastic = true, .there = 3, .granted = 2});
  CHECK(state.restore(slots_t{{1, 7}}) == std::vector{errc::ok});
  state.restored();
  CHECK(state.free_slots() == slots_t{{0, 5}, {2, 5}});
}

} // namespace allocator_elastic_test
