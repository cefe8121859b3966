#include "io/slab/beyond_slab.hpp"
#include "tests/unit/io_worker_rules.hpp"

#include <chrono>
#include <cstddef>
#include <vector>

/// Slots beyond the slab, whose pages are in memory only.

namespace io_worker_memory_slots_test {

namespace {

using namespace troupe;
using namespace troupe::test::io_worker_rules;

/// Four slots in the slab, and twelve in memory, from number 4 on. The rank counts on one slot of the slab, so that all
/// frames but one may be used by pages that stay.
io_worker_options four_in_slab(bool eager = true) {
  auto out = worker::rules();
  out.memory_slots = 12;
  out.expected_slab_slots = 1;
  out.write_eagerly = eager;
  return out;
}

} // namespace

TEST_CASE("memory slots: their pages are read from memory and never written", "[io_worker_state]") {
  const bool eager = GENERATE(true, false);
  worker w(four_in_slab(eager), 2);
  w.save({w.page(4), w.page(5)});
  CHECK(w.checks.empty());
  CHECK(w.requests.empty());
  CHECK(w.state.stats().memory_pages == 2);
  CHECK(w.state.stats().dirty_pages == 0);
  CHECK(w.state.stats().slab_slots == 4);
  w.load(w.page(4));
  w.state.drain(w.now);
  w.flush();
  CHECK(w.requests.empty());
  CHECK(w.state.quiesced());
}

TEST_CASE("memory slots: pages of the slab make room for each other, and never for themselves alone",
          "[io_worker_state]") {
  worker w(four_in_slab(), 1);
  // Of four frames three may be used by pages that stay.
  w.save({w.page(4), w.page(5), w.page(6)});
  for (slot_number slot = 0; slot < 4; ++slot)
    w.store({w.page(slot)});
  CHECK(w.state.stats().memory_pages == 3);
  CHECK(w.state.stats().demotions == 3);
  for (slot_number slot = 0; slot < 7; ++slot) {
    const auto id = w.fetch({w.page(slot)});
    w.complete();
    const auto got = w.reply(id);
    REQUIRE(w.codes_of(got) == codes{errc::ok});
    w.unpin(got.pin);
  }
  CHECK(w.dropped.empty());
}

TEST_CASE("memory slots: a request that needs more frames than can become free does not wait for them",
          "[io_worker_state]") {
  worker w(four_in_slab(), 1);
  w.store({w.page(0), w.page(1)});
  w.save({w.page(4), w.page(5), w.page(6)});
  // One frame is left, which has page 1, and the request pins it.
  const auto got = w.reply(w.fetch({w.page(0), w.page(4), w.page(1)}));
  CHECK(w.codes_of(got) == codes{errc::full, errc::ok, errc::ok});
  w.unpin(got.pin);
  w.load(w.page(4));
}

TEST_CASE("memory slots: a page that is not in memory is not looked for in the slab", "[io_worker_state]") {
  auto rules = four_in_slab();
  rules.prefetch_pages_max = 8;
  worker w(rules, 1);
  CHECK(w.codes_of(w.reply(w.fetch({w.page(7)}))) == codes{errc::not_found});
  w.look_up({w.page(7)});
  CHECK(w.requests.empty());
  CHECK(w.codes_of(w.reply(w.place({w.page(16)}))) == codes{errc::out_of_range});
}

TEST_CASE("memory slots: a slot that is given back frees the frame, also under a pin", "[io_worker_state]") {
  worker w(four_in_slab(), 1);
  w.save({w.page(4), w.page(5)});
  const auto got = w.reply(w.fetch({w.page(5)}));
  CHECK(w.is_fenced(w.fence({{4, 1}, {5, 1}})));
  CHECK(w.state.stats().memory_pages == 0);
  CHECK(w.state.stats().orphaned_frames == 1);
  CHECK(w.codes_of(w.reply(w.fetch({w.page(4)}))) == codes{errc::stale});
  w.unpin(got.pin);
  w.save({w.page(4, 2), w.page(5, 2), w.page(6)});
  CHECK(w.state.stats().memory_pages == 3);
}

TEST_CASE("memory slots: an extent that goes takes only the pages that have no room any more", "[io_worker_state]") {
  worker w(four_in_slab(), 3);
  w.save({w.page(4), w.page(5), w.page(6), w.page(7)});
  w.save({w.page(8), w.page(9), w.page(10), w.page(11)});
  w.store({w.page(0), w.page(1), w.page(2), w.page(3)});
  const auto room = io::pages_beyond_slab(8, 1);
  REQUIRE(room < 8);
  REQUIRE(w.state.begin_emptying(false, std::chrono::seconds(5), w.now));
  w.flush();
  w.state.empty_some(w.now);
  w.flush();
  REQUIRE(w.emptied.size() == 1);
  CHECK(w.emptied[0].code == errc::ok);
  CHECK(w.state.stats().memory_pages == room);
  CHECK(w.dropped.size() == 8 - room);
  // Those are a miss, and the others have moved with their bytes.
  for (const auto& page : w.dropped)
    CHECK(w.codes_of(w.reply(w.fetch({page}))) == codes{errc::not_found});
  CHECK(w.state.frames().size() == 8);
  for (slot_number slot = 4; slot < 12; ++slot)
    if (std::ranges::find(w.dropped, w.page(slot)) == w.dropped.end())
      w.load(w.page(slot));
}

TEST_CASE("memory slots: pages that have no room any more are dropped, wherever they lie", "[io_worker_state]") {
  const bool filled_late = GENERATE(false, true);
  CAPTURE(filled_late);
  worker w(four_in_slab(), 3);
  const std::vector first{w.page(4), w.page(5), w.page(6), w.page(7)};
  const std::vector second{w.page(8), w.page(9), w.page(10), w.page(11)};
  const codes four(4, errc::ok);
  // Three extents, of which the third one has a page of the slab: it is the one that goes.
  const auto pin_of_first = w.reply(w.place(first)).pin;
  const auto pin = w.reply(w.place(second)).pin;
  w.store({w.page(0)});
  CHECK(w.fill(pin_of_first, four) == four);
  if (!filled_late)
    CHECK(w.fill(pin, four) == four);
  REQUIRE(w.state.begin_emptying(false, std::chrono::seconds(5), w.now));
  w.flush();
  w.state.empty_some(w.now);
  w.flush();
  REQUIRE(w.emptied.size() == 1);
  CHECK(w.emptied[0].code == errc::ok);
  if (filled_late)
    CHECK(w.fill(pin, four) == four);
  CHECK(w.state.stats().memory_pages == io::pages_beyond_slab(8, 1));
  // Pages of the slab find a frame.
  w.store({w.page(1)});
  w.store({w.page(2)});
  const auto id = w.fetch({w.page(0)});
  w.complete();
  CHECK(w.codes_of(w.reply(id)) == codes{errc::ok});
}

TEST_CASE("memory slots: with admission by second use, only pages that are asked for again stay", "[io_worker_state]") {
  auto rules = four_in_slab();
  rules.second_hit = true;
  worker w(rules, 1);
  w.save({w.page(4), w.page(5)});
  CHECK(w.state.stats().memory_pages == 0);
  CHECK(w.state.stats().unasked_pages == 2);
  w.pass_time(std::chrono::seconds(1));
  w.load(w.page(4));
  CHECK(w.state.stats().memory_pages == 1);
  CHECK(w.checks.empty());
  w.save({w.page(6), w.page(7)});
  w.save({w.page(8)});
  CHECK(w.dropped == std::vector{w.page(5)});
  w.load(w.page(4));
}

} // namespace io_worker_memory_slots_test
