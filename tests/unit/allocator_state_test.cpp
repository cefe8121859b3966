#include "actors/node/allocator/allocator_state.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <unistd.h>
#include <vector>

namespace allocator_state_test {

using namespace troupe;

namespace {

using slots_t = std::vector<slot_ref>;
using codes_t = std::vector<errc>;
using slot_state = allocator_state::slot_state;

timestamp at(std::int64_t seconds) {
  return timestamp{std::chrono::seconds(100 + seconds)};
}

slots_t take_now(allocator_state& state, std::uint32_t count, std::uint64_t request = 1) {
  state.take(request, count, at(10), at(0));
  auto out = state.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].request == request);
  return out.answers[0].reply.slots.items;
}

void check_sum(const allocator_state& state) {
  const auto s = state.stats();
  REQUIRE(s.free + s.reserved + s.live + s.quarantined == s.total);
  REQUIRE(state.check_invariants() == "");
}

} // namespace

TEST_CASE("allocator state: a slot goes through free, reserved, live, quarantined and free again with a new generation",
          "[allocator]") {
  allocator_state state({.slots = 4});
  const auto slots = take_now(state, 2);
  CHECK(slots == slots_t{{0, 1}, {1, 1}});
  CHECK(state.publish(slots) == codes_t{errc::ok, errc::ok});
  CHECK(state.stats().live == 2);
  CHECK(state.release(std::span(slots).first(1)) == codes_t{errc::ok});
  CHECK(state.state_of(0) == slot_state::quarantined);
  auto out = state.take_outbox();
  CHECK(out.fence == slots_t{{0, 1}});
  CHECK(state.take_outbox().empty());
  CHECK(state.fenced(out.fence) == codes_t{errc::ok});
  check_sum(state);
  // First in, first out: the two that were never used come before.
  CHECK(take_now(state, 3) == slots_t{{2, 1}, {3, 1}, {0, 2}});
  check_sum(state);
}

TEST_CASE("allocator state: a rank with many slots allocates memory as slots are used and hands them out in order",
          "[allocator]") {
  const auto resident = [] {
    std::ifstream in("/proc/self/statm");
    std::uint64_t total = 0;
    std::uint64_t pages = 0;
    in >> total >> pages;
    return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  };
  constexpr std::uint32_t many = 1U << 26U;
  const auto before = resident();
  allocator_state state({.slots = many, .first_generation = 0xfffffffe});
#ifndef __SANITIZE_THREAD__                             // the sanitizer needs memory for each allocation
  CHECK(resident() < before + std::uint64_t{2} * many); // of nine bytes for each
#else
  CHECK(resident() > before);
#endif
  CHECK(state.stats().free == many);
  const auto slots = take_now(state, 3);
  CHECK(slots == slots_t{{0, 0xffffffff}, {1, 0xffffffff}, {2, 0xffffffff}});
  state.abort(slots);
  state.fenced(state.take_outbox().fence);
  CHECK(take_now(state, 2) == slots_t{{3, 0xffffffff}, {4, 0xffffffff}});
  CHECK(state.stats().free == many - 2);
}

TEST_CASE("allocator state: an aborted slot is quarantined and not free before the fence", "[allocator]") {
  allocator_state state({.slots = 1});
  const auto slots = take_now(state, 1);
  CHECK(state.abort(slots) == codes_t{errc::ok});
  CHECK(state.stats().quarantined == 1);
  state.take(2, 1, at(10), at(0));
  auto out = state.take_outbox();
  CHECK(out.answers.empty());
  CHECK(out.evict == 0); // the eviction in progress is enough
  state.fenced(out.fence);
  out = state.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].reply.slots.items == slots_t{{0, 2}});
}

TEST_CASE("allocator state: operations that do not match the slot state are refused, counted and change nothing",
          "[allocator]") {
  allocator_state state({.slots = 3});
  const auto slots = take_now(state, 2);
  const slots_t foreign{{2, 1}, {3, 1}, {0, 2}, {0, 0}, {0xffffffff, 1}};
  const codes_t refused{errc::stale, errc::out_of_range, errc::stale, errc::stale, errc::out_of_range};
  CHECK(state.publish(foreign) == refused);
  CHECK(state.abort(foreign) == refused);
  CHECK(state.release(foreign) == refused);
  CHECK(state.fenced(foreign) == refused);
  CHECK(state.stats().refused == 20);
  CHECK(state.release(slots) == codes_t{errc::stale, errc::stale}); // not live
  CHECK(state.fenced(slots) == codes_t{errc::stale, errc::stale});  // not quarantined
  state.publish(slots);
  CHECK(state.publish(slots) == codes_t{errc::stale, errc::stale});
  CHECK(state.abort(slots) == codes_t{errc::stale, errc::stale}); // published
  const slots_t twice{slots[0], slots[0]};
  CHECK(state.release(twice) == codes_t{errc::ok, errc::stale});
  CHECK(state.fenced(twice) == codes_t{errc::ok, errc::stale});
  CHECK(state.stats().refused == 20 + 2 + 2 + 2 + 2 + 1 + 1);
  check_sum(state);
}

TEST_CASE("allocator state: a generation is never 0, even after it wraps around", "[allocator]") {
  allocator_state state({.slots = 1, .first_generation = 0xfffffffe});
  auto slots = take_now(state, 1);
  CHECK(slots[0].generation == 0xffffffff);
  state.abort(slots);
  state.fenced(slots);
  slots = take_now(state, 1);
  CHECK(slots[0].generation == 1);
  check_sum(state);
}

TEST_CASE("allocator state: requests that cannot be served wait and are served in order", "[allocator]") {
  allocator_state state({.slots = 4});
  const auto held = take_now(state, 4);
  state.publish(held);
  state.take(10, 3, at(10), at(0));
  state.take(11, 1, at(10), at(0));
  auto out = state.take_outbox();
  CHECK(out.answers.empty());
  CHECK(out.evict == 3); // for the first; one request at a time
  CHECK(state.parked() == 2);

  // Two come free: enough for the second, which still waits behind the first.
  state.release(std::span(held).first(2));
  state.fenced(std::span(held).first(2));
  CHECK(state.take_outbox().answers.empty());
  state.release(std::span(held).subspan(2, 1));
  state.fenced(std::span(held).subspan(2, 1));
  out = state.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].request == 10);
  CHECK(out.answers[0].reply.slots.size() == 3);
  CHECK(out.evict == 0);

  // A newcomer does not overtake.
  state.release(std::span(held).subspan(3, 1));
  state.take(12, 1, at(10), at(0));
  state.fenced(std::span(held).subspan(3, 1));
  out = state.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].request == 11);
  check_sum(state);
}

TEST_CASE("allocator state: a waiting request is answered at its deadline with the slots that are free",
          "[allocator]") {
  allocator_state state({.slots = 4});
  const auto held = take_now(state, 3);
  state.publish(held);
  state.take(10, 3, at(5), at(0));
  state.take(11, 2, at(3), at(0));
  CHECK(state.next_deadline() == at(3));
  state.tick(at(2));
  CHECK(state.take_outbox().answers.empty());
  state.tick(at(3));
  auto out = state.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].request == 11);
  CHECK(out.answers[0].code == errc::timeout);
  CHECK(out.answers[0].reply.slots.size() == 1);
  state.tick(at(6));
  out = state.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].request == 10);
  CHECK(out.answers[0].reply.slots.empty());
  CHECK_FALSE(state.next_deadline().has_value());

  // It is already late when it arrives and is not parked for ever.
  state.take(12, 1, at(6), at(6));
  CHECK(state.take_outbox().answers.size() == 1);
  CHECK(state.parked() == 0);
}

TEST_CASE("allocator state: without evictable keys waiting requests get the remaining slots after the quarantine",
          "[allocator]") {
  allocator_state state({.slots = 4});
  const auto held = take_now(state, 4);
  state.publish(held);
  state.take(10, 4, at(10), at(0));
  CHECK(state.take_outbox().evict == 4);
  state.release(std::span(held).first(1));
  state.eviction_done(1, false);
  auto out = state.take_outbox();
  CHECK(out.answers.empty());
  CHECK(out.evict == 3); // something was freed: the next try may find its parents
  state.eviction_done(0, false);
  out = state.take_outbox();
  CHECK(out.answers.empty()); // one is still in quarantine
  CHECK(out.evict == 0);
  state.fenced(std::span(held).first(1));
  out = state.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].code == errc::full);
  CHECK(out.answers[0].reply.slots.items == slots_t{{0, 2}});

  // After another request, eviction is requested again.
  state.take(11, 1, at(10), at(0));
  out = state.take_outbox();
  CHECK(out.answers.empty());
  CHECK(out.evict == 1);
  state.eviction_done(0, true); // there may be more: ask on
  CHECK(state.take_outbox().evict == 1);
  state.eviction_done(0, false);
  out = state.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].reply.slots.empty());
}

TEST_CASE("allocator state: a large pool keeps no more slots free than eviction needs", "[allocator]") {
  const auto few = options_for_slots(1000, 0.01, 0.02);
  CHECK(few.low_watermark == 10);
  CHECK(few.high_watermark == 20);
  const auto many = options_for_slots(10'000'000, 0.01, 0.02);
  CHECK(many.slots == 10'000'000);
  CHECK(many.low_watermark == 1024);
  CHECK(many.high_watermark == 2048);
  CHECK(options_for_slots(1000, 0, 0).high_watermark == 0);
}

TEST_CASE("allocator state: eviction is requested below the low watermark, up to the high watermark", "[allocator]") {
  allocator_state state({.slots = 10, .low_watermark = 3, .high_watermark = 6});
  const auto held = take_now(state, 7);
  CHECK(state.stats().free == 3);
  CHECK(state.take_outbox().evict == 0);
  state.publish(held);
  state.take(2, 1, at(10), at(0));
  auto out = state.take_outbox();
  CHECK(out.answers.size() == 1); // the asker does not wait for it
  CHECK(out.evict == 4);
  state.take(3, 1, at(10), at(0));
  CHECK(state.take_outbox().evict == 0); // at most one outstanding
  state.release(std::span(held).first(4));
  state.eviction_done(4, true);
  CHECK(state.take_outbox().evict == 1); // one was taken meanwhile
  state.release(std::span(held).subspan(4, 1));
  state.eviction_done(1, true);
  out = state.take_outbox();
  CHECK(out.evict == 0);
  // Between the watermarks nothing is requested.
  state.fenced(held);
  state.take(4, 3, at(10), at(0));
  out = state.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.evict == 0);
  state.take(5, 1, at(10), at(0));
  CHECK(state.take_outbox().evict == 4);
  check_sum(state);
}

TEST_CASE("allocator state: a late request may take the pool below the low watermark", "[allocator]") {
  allocator_state state({.slots = 4, .low_watermark = 3, .high_watermark = 3});
  const auto held = take_now(state, 3);
  state.publish(held);
  state.release(std::span(held).first(2));
  state.eviction_done(2, true); // requested when they were taken
  state.take(10, 3, at(5), at(0));
  CHECK(state.take_outbox().evict == 0); // one is free, two are being evicted
  state.tick(at(5));
  const auto out = state.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].reply.slots.size() == 1);
  CHECK(out.evict == 1);
}

TEST_CASE("allocator state: requests beyond the limit of waiting requests are refused", "[allocator]") {
  allocator_state state({.slots = 2, .max_parked = 2});
  const auto held = take_now(state, 1);
  state.take(10, 2, at(10), at(0));
  state.take(11, 1, at(10), at(0));
  CHECK(state.take_outbox().answers.empty());
  state.take(12, 1, at(10), at(0));
  auto out = state.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].request == 12);
  CHECK(out.answers[0].code == errc::limit_exceeded);
  CHECK(out.answers[0].reply.slots.empty());
  state.abort(held);
  check_sum(state);
}

TEST_CASE("allocator state: requests for more slots than exist, for none, and in an empty pool", "[allocator]") {
  allocator_state state({.slots = 3});
  state.take(1, 5, at(10), at(0));
  auto out = state.take_outbox();
  REQUIRE(out.answers.size() == 1);
  CHECK(out.answers[0].reply.slots.size() == 3);
  CHECK(out.answers[0].code == errc::full);
  CHECK(take_now(state, 0).empty());
  allocator_state none({.slots = 0});
  CHECK(take_now(none, 1).empty());
}

TEST_CASE("allocator state: random operations on an allocator keep its accounting", "[allocator]") {
  const auto seed = GENERATE(range(0U, 40U));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto total = static_cast<std::uint32_t>(1 + random() % 40);
  const auto low = static_cast<std::uint32_t>(random() % (total + 1));
  allocator_state state({.slots = total, .low_watermark = low, .high_watermark = low + 5, .max_parked = 5});
  std::map<slot_number, std::pair<slot_state, generation_number>> model;
  std::map<std::uint64_t, std::uint32_t> waiting;
  slots_t fencing;
  std::uint64_t next_request = 1;
  std::int64_t now = 0;
  bool evicting = false;

  const auto drain = [&] {
    auto out = state.take_outbox();
    for (const auto& answer : out.answers) {
      REQUIRE(waiting.count(answer.request) == 1);
      REQUIRE(answer.reply.slots.size() <= waiting[answer.request]);
      REQUIRE((answer.code == errc::ok) == (answer.reply.slots.size() == waiting[answer.request]));
      waiting.erase(answer.request);
      for (const auto& where : answer.reply.slots) {
        auto& [s, generation] = model[where.slot];
        REQUIRE(s == slot_state::free);
        REQUIRE(where.generation == generation + 1);
        s = slot_state::reserved;
        generation = where.generation;
      }
    }
    for (const auto& where : out.fence)
      fencing.push_back(where);
    if (out.evict > 0) {
      REQUIRE_FALSE(evicting);
      evicting = true;
    }
  };
  const auto some = [&](slot_state wanted) {
    slots_t out;
    for (const auto& [slot, known] : model)
      if (known.first == wanted && random() % 2 == 0)
        out.push_back({slot, known.second});
    return out;
  };
  const auto all_ok = [](const codes_t& codes) {
    return std::all_of(codes.begin(), codes.end(), [](errc code) { return code == errc::ok; });
  };
  const auto set = [&](const slots_t& slots, slot_state to) {
    for (const auto& where : slots)
      model[where.slot].first = to;
  };

  for (int step = 0; step < 600; ++step) {
    switch (random() % 8) {
    case 0:
    case 1:
      waiting[next_request] = static_cast<std::uint32_t>(random() % 8);
      state.take(next_request, waiting[next_request], at(now + static_cast<std::int64_t>(random() % 6)), at(now));
      ++next_request;
      break;
    case 2: {
      const auto slots = some(slot_state::reserved);
      set(slots, slot_state::live);
      REQUIRE(all_ok(state.publish(slots)));
      break;
    }
    case 3: {
      const auto slots = some(slot_state::reserved);
      set(slots, slot_state::quarantined);
      REQUIRE(all_ok(state.abort(slots)));
      break;
    }
    case 4: {
      const auto slots = some(slot_state::live);
      set(slots, slot_state::quarantined);
      REQUIRE(all_ok(state.release(slots)));
      if (std::exchange(evicting, false))
        state.eviction_done(slots.size(), random() % 2 == 0);
      break;
    }
    case 5:
      set(fencing, slot_state::free);
      REQUIRE(all_ok(state.fenced(std::exchange(fencing, {}))));
      break;
    case 6:
      state.tick(at(++now));
      break;
    default: {
      const auto before = state.stats();
      const slot_ref wild{static_cast<slot_number>(random() % (total + 2)),
                          static_cast<generation_number>(1000 + random() % 5)};
      const slots_t one{wild};
      REQUIRE(state.release(one)[0] != errc::ok);
      REQUIRE(state.fenced(one)[0] != errc::ok);
      REQUIRE(state.stats().refused == before.refused + 2);
    }
    }
    drain();
    check_sum(state);
    REQUIRE(state.parked() == waiting.size());
    std::map<slot_state, std::uint64_t> counted{{slot_state::free, total}};
    for (const auto& [slot, known] : model)
      if (known.first != slot_state::free) {
        ++counted[known.first];
        --counted[slot_state::free];
      }
    REQUIRE(state.stats().free == counted[slot_state::free]);
    REQUIRE(state.stats().reserved == counted[slot_state::reserved]);
    REQUIRE(state.stats().live == counted[slot_state::live]);
    REQUIRE(state.stats().quarantined == counted[slot_state::quarantined]);
  }
  // Every request ends.
  state.tick(at(now + 100));
  drain();
  CHECK(waiting.empty());
}

} // namespace allocator_state_test
