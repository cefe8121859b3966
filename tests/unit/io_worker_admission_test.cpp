#include "tests/unit/io_worker_rules.hpp"

/// Pages that are written only after a second request.

namespace io_worker_admission_test {

using namespace troupe;
using namespace troupe::test::io_worker_rules;

namespace {

io_worker_options second_hit(bool eagerly = true) {
  auto out = worker::rules();
  out.second_hit = true;
  out.commit_time = duration::zero();
  out.write_eagerly = eagerly;
  return out;
}

} // namespace

TEST_CASE("admission: a page is written after it is fetched, and not before", "[io_worker_state]") {
  worker w(second_hit());
  w.save({w.page(0), w.page(1)});
  CHECK(w.checks.empty());
  CHECK(w.state.quiesced());
  CHECK(w.state.stats().unasked_pages == 2);
  CHECK(w.state.stats().dirty_pages == 2);
  w.load(w.page(0));
  REQUIRE(w.checks.size() == 1);
  CHECK(w.checks[0].page == w.page(0));
  CHECK(w.state.stats().unasked_pages == 1);
  w.write_all();
  CHECK(w.state.stats().written_pages == 1);
  // Once is enough.
  w.load(w.page(0));
  CHECK(w.checks.empty());
}

TEST_CASE("admission: a page is written when a lookup has found it", "[io_worker_state]") {
  worker w(second_hit());
  w.save({w.page(0), w.page(1)});
  w.look_up({w.page(1)});
  REQUIRE(w.checks.size() == 1);
  CHECK(w.checks[0].page == w.page(1));
  // Nothing is promoted where that is off.
  w.save({w.page(2), w.page(3)});
  w.save({w.page(4)});
  CHECK(w.dropped == std::vector{w.page(0)});
  w.look_up({w.page(0)});
  w.pass_checks();
  w.complete();
  CHECK(w.requests.empty());
}

TEST_CASE("admission: unasked pages are evicted unwritten, the least recently used first", "[io_worker_state]") {
  worker w(second_hit());
  w.save({w.page(0), w.page(1), w.page(2)});
  w.save({w.page(3)});
  // Of pages that were saved together the last one is evicted first: it is not found without those before it.
  w.save({w.page(4)});
  CHECK(w.dropped == std::vector{w.page(2)});
  w.save({w.page(5), w.page(6)});
  CHECK(w.dropped == std::vector{w.page(2), w.page(1), w.page(0)});
  CHECK(w.state.stats().dropped_pages == 3);
  CHECK(w.state.stats().demotions == 0);
  CHECK(w.requests.empty());
  CHECK(w.checks.empty());
}

TEST_CASE("admission: pages in the slab and unasked pages are evicted in one order", "[io_worker_state]") {
  worker w(second_hit());
  w.save({w.page(0)});
  w.save({w.page(1)});
  w.load(w.page(1));
  w.write_all();
  w.save({w.page(2)});
  w.save({w.page(3)});
  w.save({w.page(4)});
  CHECK(w.dropped == std::vector{w.page(0)});
  w.save({w.page(5)});
  CHECK(w.dropped.size() == 1);
  CHECK(w.state.stats().demotions == 1);
  w.save({w.page(6)});
  CHECK(w.dropped == std::vector{w.page(0), w.page(2)});
}

TEST_CASE("admission: an evicted unwritten page is a miss until its slot is reused", "[io_worker_state]") {
  worker w(second_hit());
  w.save({w.page(0)});
  w.save({w.page(1), w.page(2), w.page(3), w.page(4)});
  REQUIRE(w.dropped == std::vector{w.page(0)});
  // The slab has something else there.
  CHECK(w.codes_of(w.reply(w.fetch({w.page(0)}))) == codes{errc::not_found});
  CHECK(w.codes_of(w.reply(w.place({w.page(0)}))) == codes{errc::stale});
  CHECK(w.requests.empty());
  CHECK(w.is_fenced(w.fence({{0, 1}})));
  CHECK(w.codes_of(w.reply(w.fetch({w.page(0)}))) == codes{errc::stale});
  w.save({w.page(0, 2)});
  w.load(w.page(0, 2));
}

TEST_CASE("admission: a page that is pinned or being written is not evicted unwritten", "[io_worker_state]") {
  worker w(second_hit());
  w.save({w.page(0), w.page(1), w.page(2), w.page(3)});
  const auto got = w.reply(w.fetch({w.page(0), w.page(1)}));
  const auto placed = w.place({w.page(4), w.page(5), w.page(6)});
  CHECK(w.dropped.size() == 2);
  CHECK_FALSE(w.answered(placed));
  w.unpin(got.pin);
  // Requested pages are written first.
  CHECK_FALSE(w.answered(placed));
  w.write_all();
  CHECK(w.answered(placed));
  CHECK(w.dropped.size() == 2);
  CHECK(w.state.stats().demotions == 1);
}

TEST_CASE("admission: with lazy write-back a requested page is written only when memory runs short",
          "[io_worker_state]") {
  worker w(second_hit(false));
  w.save({w.page(0), w.page(1), w.page(2), w.page(3)});
  w.load(w.page(3));
  CHECK(w.checks.empty());
  CHECK(w.state.stats().unasked_pages == 3);
  // Unasked pages make room.
  w.save({w.page(4), w.page(5)});
  CHECK(w.checks.empty());
  CHECK(w.dropped.size() == 2);
  for (const auto& page : {w.page(0), w.page(4), w.page(5)})
    if (std::find(w.dropped.begin(), w.dropped.end(), page) == w.dropped.end())
      w.load(page);
  // None is left that could make room.
  CHECK_FALSE(w.checks.empty());
}

TEST_CASE("admission: a page is not evicted unwritten before its commit time has passed", "[io_worker_state]") {
  auto rules = second_hit();
  rules.commit_time = 100 * ms;
  worker w(rules);
  w.save({w.page(0), w.page(1)});
  w.pass_time(60 * ms);
  w.save({w.page(2), w.page(3)});
  CHECK(w.state.stats().unasked_pages == 4);
  const auto first = w.place({w.page(4)});
  CHECK_FALSE(w.answered(first));
  CHECK(w.state.needs_ticks());
  w.pass_time(50 * ms);
  CHECK(w.dropped == std::vector{w.page(1)});
  CHECK(w.fill(w.reply(first).pin, {errc::ok}) == codes{errc::ok});
  w.save({w.page(5)});
  const auto second = w.place({w.page(6)});
  CHECK_FALSE(w.answered(second));
  // Requested and fenced pages, and pages whose frame is needed, are not waited for.
  w.load(w.page(2));
  w.write_all();
  CHECK(w.answered(second));
  CHECK(w.state.stats().demotions == 1);
  w.fence({{3, 1}});
  w.pass_time(200 * ms);
  CHECK(w.dropped == std::vector{w.page(1), w.page(0)});
  // A drain does not wait for the commit time.
  w.state.drain(w.now);
  w.flush();
  CHECK(w.state.stats().unasked_pages == 0);
}

TEST_CASE("admission: a fence drops unasked pages", "[io_worker_state]") {
  worker w(second_hit());
  w.save({w.page(0), w.page(1)});
  CHECK(w.is_fenced(w.fence({{0, 1}})));
  CHECK(w.dropped.empty());
  CHECK(w.state.stats().unasked_pages == 1);
  CHECK(w.state.stats().resident_pages == 1);
}

TEST_CASE("admission: a failed write is retried and the page stays", "[io_worker_state]") {
  worker w(second_hit());
  w.save({w.page(0), w.page(1), w.page(2), w.page(3)});
  w.load(w.page(0));
  w.pass_checks();
  w.complete(errc::io_error);
  w.save({w.page(4), w.page(5), w.page(6)});
  CHECK(w.dropped.size() == 3);
  w.pass_time(std::chrono::seconds(2));
  w.write_all();
  CHECK(w.state.stats().written_pages == 1);
  w.load(w.page(0));
}

TEST_CASE("admission: a drain drops unasked pages and pages that are saved late", "[io_worker_state]") {
  worker w(second_hit());
  w.save({w.page(0), w.page(1)});
  const auto late = w.reply(w.place({w.page(2)})).pin;
  w.load(w.page(0));
  w.state.drain(w.now);
  w.flush();
  CHECK(w.dropped == std::vector{w.page(1)});
  CHECK_FALSE(w.state.quiesced());
  CHECK(w.fill(late, {errc::ok}) == codes{errc::ok});
  CHECK(w.dropped == std::vector{w.page(1), w.page(2)});
  w.write_all();
  CHECK(w.state.quiesced());
  CHECK(w.state.stats().written_pages == 1);
  CHECK(w.state.stats().unasked_pages == 0);
}

TEST_CASE("admission: pages that were read from the slab are not dropped", "[io_worker_state]") {
  worker w(second_hit());
  w.save({w.page(0)});
  w.load(w.page(0));
  w.write_all();
  w.save({w.page(1), w.page(2), w.page(3), w.page(4)});
  const auto read = w.fetch({w.page(0)});
  w.complete();
  w.unpin(w.reply(read).pin);
  CHECK(w.checks.empty());
  w.dropped.clear();
  w.save({w.page(5), w.page(6), w.page(7), w.page(8)});
  CHECK(w.dropped.size() == 3);
  CHECK(w.state.stats().demotions == 2);
}

} // namespace io_worker_admission_test
