#include "tests/unit/io_worker_rules.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

/// Released extents: what delays them, and where their pages move.

namespace io_worker_emptying_test {

namespace {

using namespace troupe;
using namespace troupe::test::io_worker_rules;

io_worker_options rules_with(bool eager, bool memory_only = false) {
  auto out = worker::rules();
  out.write_eagerly = eager;
  out.memory_only = memory_only;
  return out;
}

/// Requests the release of one extent.
void order(worker& w, bool must = false, duration limit = std::chrono::seconds(5)) {
  REQUIRE(w.state.begin_emptying(must, limit, w.now));
  w.flush();
}

void step(worker& w) {
  w.state.empty_some(w.now);
  w.flush();
}

/// The code with which it ended; `internal` if it has not.
errc ended(worker& w) {
  step(w);
  return w.emptied.empty() ? errc::internal : w.emptied.back().code;
}

/// Two extents with pages 0 to 3 and 4 to 7 in them, in the slab as well.
void fill_two(worker& w) {
  w.store({w.page(0), w.page(1), w.page(2), w.page(3)});
  w.store({w.page(4), w.page(5), w.page(6), w.page(7)});
  REQUIRE(w.state.frames().size() == 8);
}

std::vector<slot_number> in_memory(const worker& w) {
  std::vector<slot_number> out;
  for (slot_number slot = 0; slot < 16; ++slot)
    if (w.state.frames().in_slot(slot) != no_frame)
      out.push_back(slot);
  return out;
}

} // namespace

TEST_CASE("emptying: the next pages in eviction order are evicted, wherever they lie, and the rest moves",
          "[io_worker_state]") {
  worker w(worker::rules(), 2);
  fill_two(w);
  // All of the first extent is used again, so the pages of the second one are older.
  w.unpin(w.reply(w.fetch({w.page(0), w.page(1), w.page(2), w.page(3)})).pin);
  const auto first = w.state.frames().bytes(w.state.frames().in_slot(2));
  std::ranges::fill(first, std::byte{9});
  order(w);
  CHECK(ended(w) == errc::ok);
  CHECK(in_memory(w) == std::vector<slot_number>{0, 1, 2, 3});
  CHECK(w.state.frames().bytes(w.state.frames().in_slot(2))[17] == std::byte{9});
  CHECK(w.state.frames().size() == 4);
  CHECK(w.state.stats().extents == 1);
  CHECK(w.state.stats().returned_extents == 1);
  CHECK(w.requests.empty());
}

TEST_CASE("emptying: prefetched pages are read meanwhile, into memory that stays", "[io_worker_state]") {
  auto rules = worker::rules();
  rules.prefetch_pages_max = 16;
  worker w(rules, 3);
  for (slot_number first = 0; first < 16; first += 4)
    w.store({w.page(first), w.page(first + 1), w.page(first + 2), w.page(first + 3)});
  // The pinned page is in the first extent, which stays until it is unpinned.
  const auto pin = w.reply(w.fetch({w.page(12)})).pin;
  order(w);
  w.requests.clear();
  std::optional<slot_number> gone;
  for (slot_number slot = 0; slot < 12 && !gone; ++slot)
    if (w.state.frames().in_slot(slot) == no_frame)
      gone = slot;
  REQUIRE(gone);
  if (w.state.frames().emptying()) {
    w.look_up({w.page(*gone)});
    REQUIRE(w.requests.size() == 1);
    CHECK(w.requests[0].op == io::operation::read);
    CHECK_FALSE(w.state.wants_extent());
    w.complete();
  }
  w.unpin(pin);
  CHECK(ended(w) == errc::ok);
}

TEST_CASE("emptying: no page is evicted where other extents have room", "[io_worker_state]") {
  worker w(worker::rules(), 2);
  fill_two(w);
  w.fence({{0, 1}, {1, 1}, {4, 1}, {5, 1}});
  order(w);
  CHECK(ended(w) == errc::ok);
  CHECK(in_memory(w) == std::vector<slot_number>{2, 3, 6, 7});
  CHECK(w.state.stats().demotions == 0);
}

TEST_CASE("emptying: a pinned page stays in place, and so does its extent", "[io_worker_state]") {
  worker w(worker::rules(), 2);
  fill_two(w);
  // The pinned pages are in both extents.
  const auto pin = w.reply(w.fetch({w.page(1), w.page(6)})).pin;
  const auto at = w.state.frames().in_slot(1);
  order(w);
  CHECK(ended(w) == errc::internal);
  CHECK(w.state.frames().in_slot(1) == at);
  SECTION("until it is unpinned") {
    w.unpin(pin);
    CHECK(ended(w) == errc::ok);
  }
  SECTION("until its owner is quiesced, although its slot is already reused") {
    w.fence({{1, 1}, {6, 1}});
    CHECK(w.state.stats().orphaned_frames == 2);
    CHECK(ended(w) == errc::internal);
    w.state.owner_died(1, w.now);
    CHECK(ended(w) == errc::internal);
    w.state.owner_quiesced(1, w.now);
    CHECK(ended(w) == errc::ok);
  }
  SECTION("until the deadline, and then the whole extent stays") {
    w.pass_time(std::chrono::seconds(5));
    CHECK(ended(w) == errc::timeout);
    CHECK(w.state.frames().size() == 8);
    CHECK_FALSE(w.state.emptying());
    w.store({w.page(8), w.page(9), w.page(10), w.page(11)});
  }
}

TEST_CASE("emptying: transfers and writers are waited for", "[io_worker_state]") {
  worker w(worker::rules(), 1);
  SECTION("a page is being read") {
    w.store({w.page(0), w.page(1), w.page(2), w.page(3)});
    w.store({w.page(4), w.page(5), w.page(6), w.page(7)});
    const auto reading = w.fetch({w.page(0)});
    order(w, true);
    CHECK(ended(w) == errc::internal);
    w.complete();
    CHECK(ended(w) == errc::internal); // it has it pinned
    w.unpin(w.reply(reading).pin);
    CHECK(ended(w) == errc::ok);
  }
  SECTION("a page is being written and was checked before") {
    const auto pin = w.reply(w.place({w.page(0)})).pin;
    w.fill(pin, {errc::ok});
    order(w);
    CHECK(ended(w) == errc::internal);
    w.pass_checks();
    CHECK(ended(w) == errc::internal);
    w.fence({{0, 1}});
    CHECK(ended(w) == errc::internal);
    w.complete();
    CHECK(ended(w) == errc::ok);
  }
  SECTION("a page is being filled") {
    const auto pin = w.reply(w.place({w.page(0)})).pin;
    order(w);
    CHECK(ended(w) == errc::internal);
    w.fill(pin, {errc::cancelled});
    CHECK(ended(w) == errc::ok);
  }
  CHECK(w.state.frames().size() == 0);
  CHECK(w.state.stats().extents == 0);
  // It works with a newly assigned extent.
  w.extents_left = 1;
  w.pass_time(std::chrono::seconds(1));
  w.store({w.page(9)});
  CHECK(w.state.frames().numbers() == 4);
}

TEST_CASE("emptying: pages that are only in memory move or are written first", "[io_worker_state]") {
  worker w(rules_with(false), 2);
  const codes four(4, errc::ok);
  w.fill(w.reply(w.place({w.page(0), w.page(1), w.page(2), w.page(3)})).pin, four);
  SECTION("with room elsewhere they move and are written from there") {
    w.store({w.page(4)});
    w.checks.clear();
    order(w);
    CHECK(ended(w) == errc::ok);
    CHECK(in_memory(w).size() + w.state.stats().demotions == 5);
    CHECK(w.state.frames().resident() == in_memory(w).size());
  }
  SECTION("without room they are written, with eager write-back or not") {
    w.fill(w.reply(w.place({w.page(4), w.page(5), w.page(6), w.page(7)})).pin, four);
    w.pass_checks();
    const auto before = w.state.stats().dirty_pages;
    order(w);
    CHECK(ended(w) == errc::internal);
    while (w.emptied.empty()) {
      REQUIRE((!w.checks.empty() || !w.requests.empty()));
      w.write_all();
      step(w);
    }
    CHECK(w.emptied.back().code == errc::ok);
    CHECK(before == 8);
    CHECK(w.state.stats().written_pages >= 4);
    CHECK(in_memory(w).size() == 4);
    CHECK(w.damaged.empty());
  }
  SECTION("they are not dropped when writing fails") {
    w.fill(w.reply(w.place({w.page(4), w.page(5), w.page(6), w.page(7)})).pin, four);
    order(w);
    for (int i = 0; i < 4; ++i) {
      step(w);
      w.pass_checks();
      w.complete(errc::no_space);
      w.pass_time(std::chrono::seconds(1));
    }
    CHECK(w.emptied.empty());
    CHECK(w.state.stats().dirty_pages == 8);
    w.pass_time(std::chrono::seconds(1));
    CHECK(ended(w) == errc::timeout);
    CHECK(w.state.stats().dirty_pages == 8);
  }
}

TEST_CASE("emptying: a page that moves while its writer waits is answered when it is written", "[io_worker_state]") {
  auto rules = worker::rules();
  rules.write_through = true;
  rules.writes_max = 1;
  worker w(rules, 2);
  const auto fill = [&](std::vector<page_ref> pages) {
    fill_request work{w.reply(w.place(pages)).pin, {}, patience};
    work.gathered.items.resize(pages.size());
    const auto id = *w.state.fill(1, work, w.now);
    w.flush();
    return id;
  };
  const auto first = fill({w.page(8), w.page(9), w.page(10), w.page(11)});
  const auto second = fill({w.page(0), w.page(1)});
  w.fence({{11, 1}});
  // Page 8 is being written, and there is room for one more beside it.
  const auto before = w.state.frames().in_slot(0);
  order(w);
  step(w);
  CHECK(w.state.frames().in_slot(0) != before);
  CHECK(w.filled(second).empty());
  while (w.emptied.empty()) {
    w.write_all();
    step(w);
  }
  w.write_all();
  CHECK(w.filled(first) == codes{errc::ok, errc::ok, errc::ok, errc::stale});
  CHECK(w.filled(second) == codes{errc::ok, errc::ok});
  CHECK(w.state.frames().size() == 4);
}

TEST_CASE("emptying: a page that can never be written is reported lost and not counted as damaged",
          "[io_worker_state]") {
  worker w(rules_with(false), 2);
  const codes four(4, errc::ok);
  w.fill(w.reply(w.place({w.page(0), w.page(1), w.page(2), w.page(3)})).pin, four);
  w.fill(w.reply(w.place({w.page(4), w.page(5), w.page(6), w.page(7)})).pin, four);
  while (!w.checks.empty() || !w.requests.empty()) {
    w.pass_checks();
    w.complete(errc::io_error);
  }
  w.state.slab_is_damaged();
  order(w);
  CHECK(ended(w) == errc::ok);
  REQUIRE(w.damaged.size() == 4);
  for (const auto& [page, why, tier] : w.damaged) {
    CHECK(tier == page_tier::memory);
    CHECK(why == errc::slab_damaged);
    CHECK(w.state.frames().in_slot(page.where.slot) == no_frame);
  }
  CHECK(in_memory(w).size() == 4);
  CHECK(w.state.stats().damaged_pages == 0);
}

TEST_CASE("emptying: memory-only pages stay until their slots are released", "[io_worker_state]") {
  worker w(rules_with(true, true), 2);
  const codes four(4, errc::ok);
  w.fill(w.reply(w.place({w.page(0), w.page(1), w.page(2), w.page(3)})).pin, four);
  w.fill(w.reply(w.place({w.page(4), w.page(5), w.page(6), w.page(7)})).pin, four);
  order(w);
  CHECK(w.state.frames().lasting() == 4);
  CHECK(ended(w) == errc::internal);
  w.fence({{0, 1}, {5, 1}, {6, 1}});
  CHECK(ended(w) == errc::internal);
  w.fence({{7, 1}});
  CHECK(ended(w) == errc::ok);
  CHECK(in_memory(w) == std::vector<slot_number>{1, 2, 3, 4});
  CHECK(w.damaged.empty());
}

TEST_CASE("emptying: a rank that is short of memory itself keeps the extent unless forced", "[io_worker_state]") {
  worker w(worker::rules(), 2);
  fill_two(w);
  const auto pin = w.reply(w.fetch({w.page(0), w.page(1), w.page(2), w.page(4), w.page(5), w.page(6)})).pin;
  const bool must = GENERATE(false, true);
  order(w, must);
  step(w);
  REQUIRE(w.emptied.empty());
  const auto wanted = w.fetch({w.page(8), w.page(9), w.page(10)}, 2);
  CHECK_FALSE(w.answered(wanted));
  step(w);
  if (must) {
    CHECK(w.emptied.empty());
    w.unpin(pin);
    w.complete();
    while (w.emptied.empty() && !w.answered(wanted))
      step(w);
    w.unpin(w.reply(wanted).pin, 2);
    CHECK(ended(w) == errc::ok);
  } else {
    REQUIRE(w.emptied.size() == 1);
    CHECK(w.emptied[0].code == errc::busy);
    CHECK(w.state.frames().size() == 8);
  }
}

TEST_CASE("emptying: it is refused where it is impossible, and a drain ends it", "[io_worker_state]") {
  worker w(worker::rules(), 1);
  CHECK(w.state.begin_emptying(false, patience, w.now).error().code == errc::not_found);
  const auto pin = w.reply(w.place({w.page(0)})).pin;
  order(w);
  CHECK(w.state.begin_emptying(true, patience, w.now).error().code == errc::busy);
  w.state.drain(w.now);
  w.flush();
  REQUIRE(w.emptied.size() == 1);
  CHECK(w.emptied[0].code == errc::shutting_down);
  CHECK(w.state.begin_emptying(false, patience, w.now).error().code == errc::shutting_down);
  w.fill(pin, {errc::ok});
}

} // namespace io_worker_emptying_test
