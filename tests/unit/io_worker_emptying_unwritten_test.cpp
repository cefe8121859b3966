#include "tests/unit/io_worker_rules.hpp"

#include <chrono>
#include <vector>

/// Released extents with pages that were not requested or not fetched yet.

namespace io_worker_emptying_unwritten_test {

namespace {

using namespace troupe;
using namespace troupe::test::io_worker_rules;

using slots = std::vector<slot_number>;

io_worker_options second_hit(duration commit_time = duration::zero()) {
  auto out = worker::rules();
  out.second_hit = true;
  out.commit_time = commit_time;
  return out;
}

void order(worker& w) {
  REQUIRE(w.state.begin_emptying(true, std::chrono::seconds(5), w.now));
  w.flush();
}

/// Whether the next step was the last one and the extent was released.
bool has_left(worker& w) {
  w.state.empty_some(w.now);
  w.flush();
  return !w.emptied.empty() && w.emptied.back().code == errc::ok;
}

slots in_memory(const worker& w) {
  slots out;
  for (slot_number slot = 0; slot < 16; ++slot)
    if (w.state.frames().in_slot(slot) != no_frame)
      out.push_back(slot);
  return out;
}

slots reads(const worker& w) {
  slots out;
  for (const auto& x : w.requests)
    if (x.op == io::operation::read)
      out.push_back(x.where.slot);
  return out;
}

/// A worker with pages 0 to 7 in the slab only and 8 to 15 in memory too, which is full. The older half of the latter
/// is in the extent that is emptied first.
struct full_worker : worker {
  static io_worker_options ahead() {
    auto out = worker::rules();
    out.prefetch_pages_max = 16;
    return out;
  }

  full_worker() : worker(ahead(), 2) {
    for (slot_number first = 0; first < 16; first += 4)
      store({page(first), page(first + 1), page(first + 2), page(first + 3)});
  }

  void read_ahead(std::vector<page_ref> pages) {
    look_up(std::move(pages));
    complete();
  }

  void load(std::vector<page_ref> pages) { unpin(reply(fetch(std::move(pages))).pin); }
};

} // namespace

TEST_CASE("emptying: held-back pages move unwritten and keep their turn, and the first ones are dropped",
          "[io_worker_state]") {
  worker w(second_hit(), 2);
  w.save({w.page(0), w.page(1), w.page(2), w.page(3)});
  w.save({w.page(4), w.page(5)});
  order(w);
  REQUIRE(has_left(w));
  // The last page of the first batch is next.
  CHECK(w.dropped == std::vector{w.page(3), w.page(2)});
  CHECK(in_memory(w) == slots{0, 1, 4, 5});
  CHECK(w.state.stats().unasked_pages == 4);
  CHECK(w.checks.empty());
  SECTION("in the order of eviction") {
    for (const slot_number slot : {6, 7, 8, 9})
      w.save({w.page(slot)});
    CHECK(w.dropped == std::vector{w.page(3), w.page(2), w.page(1), w.page(0), w.page(5), w.page(4)});
  }
  SECTION("written from their new place when they are requested") {
    w.look_up({w.page(4)});
    REQUIRE(w.checks.size() == 1);
    CHECK(w.checks[0].page == w.page(4));
    CHECK(w.checks[0].offset == w.state.frames().offset(w.state.frames().in_slot(4)));
    w.write_all();
    CHECK(w.state.stats().written_pages == 1);
    CHECK(w.state.stats().unasked_pages == 3);
  }
  SECTION("never written") {
    w.state.drain(w.now);
    w.flush();
    CHECK(w.dropped.size() == 6);
    CHECK(w.state.quiesced());
    CHECK(in_memory(w).empty());
  }
}

TEST_CASE("emptying: a page whose commit may be in flight moves, and is evictable after its commit time",
          "[io_worker_state]") {
  worker w(second_hit(200 * ms), 2);
  w.save({w.page(0), w.page(1), w.page(2), w.page(3)});
  w.save({w.page(4)});
  w.fence({{3, 1}});
  order(w);
  REQUIRE(has_left(w));
  CHECK(in_memory(w) == slots{0, 1, 2, 4});
  CHECK(w.state.frames().held_back() == 4);
  CHECK(w.state.frames().expendable() == 0);
  w.pass_time(200 * ms);
  CHECK(w.state.frames().expendable() == 4);
  for (const slot_number slot : {5, 6, 7, 8})
    w.save({w.page(slot)});
  // The last page of a save is evicted before the others.
  CHECK(w.dropped == std::vector{w.page(2), w.page(1), w.page(0), w.page(4)});
}

TEST_CASE("emptying: pages without room elsewhere wait for their commits and are then dropped", "[io_worker_state]") {
  worker w(second_hit(200 * ms), 2);
  w.save({w.page(0), w.page(1), w.page(2), w.page(3)});
  w.save({w.page(4), w.page(5), w.page(6), w.page(7)});
  const bool damaged = GENERATE(false, true);
  if (damaged)
    w.state.slab_is_damaged();
  order(w);
  CHECK_FALSE(has_left(w));
  w.pass_time(199 * ms);
  CHECK_FALSE(has_left(w));
  CHECK(w.dropped.empty());
  w.now += ms;
  CHECK(has_left(w));
  CHECK(w.dropped.size() == 4);
  CHECK(in_memory(w) == slots{4, 5, 6, 7});
  // They are reported only as dropped, and nothing is written for them.
  CHECK(w.damaged.empty());
  CHECK(w.checks.empty());
  CHECK(w.codes_of(w.reply(w.fetch({w.page(0)}))) == codes{errc::not_found});
}

TEST_CASE("emptying: a page that is requested meanwhile is written like others", "[io_worker_state]") {
  worker w(second_hit(200 * ms), 2);
  w.save({w.page(0), w.page(1), w.page(2), w.page(3)});
  w.save({w.page(4), w.page(5), w.page(6), w.page(7)});
  order(w);
  CHECK_FALSE(has_left(w));
  w.look_up({w.page(0), w.page(1), w.page(2), w.page(3), w.page(4)});
  CHECK(w.checks.size() == 5);
  CHECK_FALSE(has_left(w));
  w.write_all();
  CHECK(has_left(w));
  CHECK(w.dropped.empty());
  CHECK(w.state.stats().demotions == 4);
  CHECK(w.state.stats().unasked_pages == 3);
}

TEST_CASE("emptying: prefetched pages move and are counted until they are fetched", "[io_worker_state]") {
  full_worker w;
  w.read_ahead({w.page(0), w.page(1)});
  w.look_up({w.page(2), w.page(3)}, 2);
  const auto before = w.state.frames().in_slot(0);
  order(w);
  REQUIRE(has_left(w));
  CHECK(w.state.frames().in_slot(0) != before);
  CHECK(in_memory(w) == slots{0, 1, 14, 15});
  // They are more than a quarter of the rest.
  CHECK(reads(w).empty());
  SECTION("one after the other") {
    w.load({w.page(0)});
    CHECK(reads(w).empty());
    w.load({w.page(1)});
    CHECK(reads(w) == slots{2});
    CHECK(w.state.stats().prefetch_hits == 2);
  }
  SECTION("until their lease ends") {
    w.end_lookup(1);
    CHECK(reads(w) == slots{2});
    w.load({w.page(0)});
    CHECK(w.state.stats().prefetch_hits == 0);
  }
  w.complete();
}

TEST_CASE("emptying: a prefetched page that is evicted is no longer counted", "[io_worker_state]") {
  full_worker w;
  w.read_ahead({w.page(0)});
  w.load({w.page(10), w.page(11), w.page(12), w.page(13), w.page(14), w.page(15)});
  order(w);
  REQUIRE(has_left(w));
  REQUIRE(w.state.frames().in_slot(0) == no_frame);
  w.look_up({w.page(1)}, 2);
  CHECK(reads(w) == slots{1});
  w.complete();
}

TEST_CASE("emptying: prefetching is limited to the room that stays, and reads in progress are waited for",
          "[io_worker_state]") {
  full_worker w;
  w.look_up({w.page(0)});
  CHECK(reads(w) == slots{0});
  order(w);
  CHECK_FALSE(has_left(w));
  w.look_up({w.page(1)}, 2);
  CHECK(reads(w) == slots{0});
  w.complete();
  CHECK(reads(w).empty());
  REQUIRE(has_left(w));
  CHECK(w.state.stats().prefetched_pages == 1);
  CHECK(w.state.frames().in_slot(0) != no_frame);
  // Page 0 is the quarter.
  CHECK(reads(w).empty());
  w.load({w.page(0)});
  CHECK(reads(w) == slots{1});
  w.complete();
}

TEST_CASE("emptying: prefetching continues while an extent cannot be released and when it stays", "[io_worker_state]") {
  full_worker w;
  const auto pin = w.reply(w.fetch({w.page(8), w.page(12)})).pin;
  order(w);
  w.look_up({w.page(0)});
  CHECK_FALSE(has_left(w));
  CHECK(reads(w) == slots{0});
  w.complete();
  w.pass_time(std::chrono::seconds(5));
  CHECK_FALSE(has_left(w));
  REQUIRE(w.emptied.back().code == errc::timeout);
  CHECK(w.state.frames().in_slot(0) != no_frame);
  w.unpin(pin);
}

} // namespace io_worker_emptying_unwritten_test
