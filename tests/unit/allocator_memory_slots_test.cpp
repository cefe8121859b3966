#include "io/slab/beyond_slab.hpp"
#include "tests/unit/allocator_rules.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <utility>
#include <vector>

/// Slots beyond the slab file, for pages that are in memory only.

namespace allocator_memory_slots_test {

using namespace troupe;
using namespace troupe::test::allocator_rules;

namespace {

using numbers_t = std::vector<slot_number>;

numbers_t numbers(const slots_t& slots) {
  numbers_t out;
  for (const auto& x : slots)
    out.push_back(x.slot);
  return out;
}

slots_t take(allocator_state& state, std::uint32_t n, std::int64_t now = 0) {
  state.take(1, n, at(now + 500), at(now));
  auto out = answer(state);
  state.publish(out);
  return out;
}

void give_back(allocator_state& state, const slots_t& slots) {
  state.release(slots);
  state.fenced(state.take_outbox().fence);
}

/// Four slots in the slab, and up to 100 in memory; with 7 frames there are 4 of them.
allocator_state four_and_memory(std::uint32_t frames = 7) {
  allocator_state out({.slots = 4, .memory_slots = 100, .first_generation = 10});
  out.set_frames(frames);
  REQUIRE(out.stats().total == 4 + io::pages_beyond_slab(frames, 4));
  return out;
}

} // namespace

TEST_CASE("allocator memory slots: slots in memory are granted when the slab has none", "[allocator]") {
  auto state = four_and_memory();
  CHECK(state.stats().beyond_slab == 4);
  CHECK(numbers(take(state, 3)) == numbers_t{0, 1, 2});
  // The beginning of a prefix is in the slab, and survives a restart.
  CHECK(take(state, 2) == slots_t{{3, 11}, {4, 11}});
  CHECK(numbers(take(state, 3)) == numbers_t{5, 6, 7});
  CHECK(state.stats().free == 0);
  CHECK(state.check_invariants() == "");
}

TEST_CASE("allocator memory slots: slots in memory are reused as others are, and belong to one page at a time",
          "[allocator]") {
  auto state = four_and_memory();
  const auto in_slab = take(state, 4);
  const auto in_memory = take(state, 4);
  CHECK(state.publish(slots_t{{8, 11}}) == std::vector{errc::out_of_range});
  state.release(slots_t{in_memory[1]});
  CHECK(state.stats().quarantined == 1);
  CHECK(state.check_invariants() == "");
  state.take(1, 1, at(500), at(0));
  CHECK(state.take_outbox().answers.empty()); // it is not free before no transfer uses it
  state.fenced(slots_t{in_memory[1]});
  CHECK(answer(state) == slots_t{{5, 12}});
  give_back(state, {in_slab[2]});
  CHECK(take(state, 1) == slots_t{{2, 12}});
  CHECK(state.check_invariants() == "");
}

TEST_CASE("allocator memory slots: memory is requested before pages are evicted for want of slots", "[allocator]") {
  auto state = four_and_memory();
  take(state, 4);
  take(state, 4);
  state.take(1, 2, at(5000), at(0));
  auto out = state.take_outbox();
  CHECK(out.grow_frames == 2);
  CHECK(out.evict == 0);
  CHECK(out.answers.empty());
  state.frames_grown(12);
  CHECK(answer(state) == slots_t{{8, 11}, {9, 11}});
  // No memory is left.
  state.take(2, 5, at(5000), at(1));
  CHECK(state.take_outbox().grow_frames > 0);
  state.frames_grown(12);
  out = state.take_outbox();
  CHECK(out.grow_frames == 0);
  CHECK(out.evict == 3);
  // It is requested again after a while.
  state.eviction_done(0, true);
  state.take_outbox();
  state.tick(at(1500));
  CHECK(state.take_outbox().grow_frames > 0);
}

TEST_CASE("allocator memory slots: no slot is evicted for memory that is revoked", "[allocator]") {
  auto state = four_and_memory(16);
  take(state, 4);
  const auto in_memory = take(state, 12);
  state.set_frames(7);
  CHECK(state.take_outbox().evict == 0);
  CHECK(state.stats().total == 16);
  CHECK(state.stats().free == 0);
  CHECK(state.check_invariants() == "");
  // The io worker has dropped the pages that have no frame any more.
  give_back(state, {in_memory.begin(), in_memory.begin() + 8});
  CHECK(state.stats().total == 8);
  CHECK(state.stats().free == 0);
  give_back(state, {in_memory.begin() + 8, in_memory.begin() + 9});
  CHECK(state.stats().free == 1);
  CHECK(state.check_invariants() == "");
}

TEST_CASE("allocator memory slots: a file grows before slots in memory are granted", "[allocator]") {
  allocator_state state({.slots = 10, .memory_slots = 100, .elastic = true, .there = 2});
  state.set_frames(40);
  CHECK(state.stats().total == 32);
  take(state, 2);
  state.take(1, 2, at(5000), at(0));
  CHECK(state.take_outbox().grow == 2);
  state.resize(4);
  CHECK(numbers(answer(state)) == numbers_t{2, 3});
  // The disk is full.
  state.take(2, 2, at(5000), at(1));
  CHECK(state.take_outbox().grow == 2);
  state.resize(4);
  CHECK(numbers(answer(state)) == numbers_t{10, 11});
  CHECK(state.take_outbox().evict == 0);
  CHECK(state.check_invariants() == "");
}

TEST_CASE("allocator memory slots: slots in memory are granted while a file is slow to grow", "[allocator]") {
  allocator_state state({.slots = 10, .memory_slots = 100, .elastic = true, .there = 2});
  state.set_frames(40);
  take(state, 2);
  state.take(1, 2, at(5000), at(0));
  CHECK(state.take_outbox().grow == 2);
  state.tick(at(499));
  CHECK(state.take_outbox().empty());
  state.tick(at(500));
  CHECK(numbers(answer(state)) == numbers_t{10, 11});
  state.resize(6);
  CHECK(numbers(take(state, 3, 600)) == numbers_t{2, 3, 4});
}

TEST_CASE("allocator memory slots: claims on slots in memory are refused, because their pages ended with the process",
          "[allocator]") {
  auto state = four_and_memory();
  CHECK(state.restore(slots_t{{3, 7}, {4, 7}}) == std::vector{errc::ok, errc::out_of_range});
  CHECK(state.restored().empty());
  CHECK(state.stats().live == 1);
  CHECK(numbers(take(state, 3)) == numbers_t{0, 1, 2});
  CHECK(numbers(take(state, 1)) == numbers_t{4});
  CHECK(state.check_invariants() == "");
}

TEST_CASE(
    "allocator memory slots: random operations with slots in memory keep their accounting and answer every request",
    "[allocator]") {
  const auto seed = GENERATE(range(1U, 13U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](std::uint32_t below) { return static_cast<std::uint32_t>(random() % below); };
  const bool grows = GENERATE(false, true);
  CAPTURE(grows);
  allocator_options how{.slots = 20, .memory_slots = 40, .low_watermark = 2, .high_watermark = 4};
  if (grows) {
    how.elastic = true;
    how.there = 0;
  }
  allocator_state state(how);
  std::vector<slot_ref> reserved;
  std::vector<slot_ref> live;
  std::vector<slot_ref> fencing;
  std::map<slot_number, generation_number> newest;
  std::map<std::uint64_t, timestamp> waiting;
  std::uint32_t file = grows ? 0 : 20;
  std::uint32_t frames = 0;
  bool grow = false;
  bool grow_frames = false;
  std::uint32_t evict = 0;
  std::uint64_t last = 0;
  std::uint64_t in_memory = 0;
  std::int64_t now = 0;
  const auto held_in_memory = [&] {
    std::size_t n = 0;
    for (const auto* all : {&reserved, &live, &fencing})
      n += static_cast<std::size_t>(std::ranges::count_if(*all, [](const slot_ref& x) { return x.slot >= 20; }));
    return n;
  };
  const auto flush = [&] {
    auto out = state.take_outbox();
    for (const auto& x : out.answers) {
      REQUIRE(waiting.erase(x.request) == 1);
      for (const auto& slot : x.reply.slots.items) {
        REQUIRE((slot.slot >= 20 || slot.slot < file));
        REQUIRE(slot.generation > newest[slot.slot]);
        newest[slot.slot] = slot.generation;
        reserved.push_back(slot);
        in_memory += slot.slot >= 20 ? 1 : 0;
        // Granted only as far as there is memory.
        REQUIRE((slot.slot < 20 || held_in_memory() <= io::pages_beyond_slab(frames, 20)));
      }
    }
    fencing.insert(fencing.end(), out.fence.begin(), out.fence.end());
    REQUIRE_FALSE((grow && out.grow > 0));
    REQUIRE_FALSE((grow_frames && out.grow_frames > 0));
    grow = grow || out.grow > 0;
    grow_frames = grow_frames || out.grow_frames > 0;
    evict += out.evict;
    check_sum(state);
  };
  for (int i = 0; i < 3000; ++i) {
    switch (draw(9)) {
    case 0:
    case 1:
      waiting[++last] = at(now + 400);
      state.take(last, 1 + draw(7), at(now + 400), at(now));
      break;
    case 2: {
      const auto x = some_of(reserved, random);
      REQUIRE(std::ranges::all_of(state.publish(x), [](errc code) { return code == errc::ok; }));
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
      if (std::exchange(grow, false)) {
        file = std::min(20U, file + (draw(2) == 0 ? 6U : 0U));
        state.resize(file);
      }
      break;
    case 6:
      if (std::exchange(grow_frames, false)) {
        frames = std::min(40U, frames + (draw(2) == 0 ? 8U : 0U));
        state.frames_grown(frames);
      } else if (frames > 8 && draw(8) == 0) {
        frames -= 8;
        state.set_frames(frames);
      }
      break;
    case 7:
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
  CHECK(in_memory > 50);
}

} // namespace allocator_memory_slots_test
