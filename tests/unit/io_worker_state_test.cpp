#include "tests/unit/io_worker_rules.hpp"

namespace io_worker_state_test {

using namespace troupe;
using namespace troupe::test::io_worker_rules;

TEST_CASE("io worker: a page that has left memory is read again, once for all its readers", "[io_worker_state]") {
  worker w;
  w.store({w.page(0), w.page(1), w.page(2), w.page(3)});
  w.store({w.page(4)});
  CHECK(w.state.stats().demotions == 1);
  const auto first = w.fetch({w.page(0), w.page(4)});
  const auto second = w.fetch({w.page(0)}, 2);
  CHECK_FALSE(w.answered(first));
  CHECK_FALSE(w.answered(second));
  REQUIRE(w.requests.size() == 1);
  CHECK(w.requests[0].op == io::operation::read);
  CHECK(w.requests[0].where == slot_ref{0, 1});
  SECTION("the page is valid") {
    w.complete();
    const auto a = w.reply(first);
    const auto b = w.reply(second);
    CHECK(w.codes_of(a) == codes{errc::ok, errc::ok});
    CHECK(a.frames[0].promoted == 1);
    CHECK(a.frames[1].promoted == 0);
    CHECK(a.frames[0].offset == b.frames[0].offset);
    CHECK(a.pin != b.pin);
    w.unpin(a.pin);
    CHECK(w.state.stats().pinned_frames == 1);
    w.unpin(b.pin, 2);
    CHECK(w.state.stats().pinned_frames == 0);
  }
  SECTION("all readers get the error") {
    w.complete(errc::io_error);
    CHECK(w.codes_of(w.reply(first)) == codes{errc::io_error, errc::ok});
    const auto b = w.reply(second);
    CHECK(w.codes_of(b) == codes{errc::io_error});
    CHECK(b.pin == 0);
    // The next one tries again.
    w.fetch({w.page(0)});
    CHECK(w.requests.size() == 1);
  }
}

TEST_CASE("io worker: every page of a request has a separate code", "[io_worker_state]") {
  worker w;
  w.fence({{5, 3}});
  CHECK(w.codes_of(w.reply(w.place({w.page(16), w.page(5, 3), w.page(5, 4)}))) ==
        codes{errc::out_of_range, errc::stale, errc::ok});
  CHECK(w.codes_of(w.reply(w.place({w.page(5, 4), w.page(6)}))) == codes{errc::busy, errc::ok});
  CHECK(w.codes_of(w.reply(w.fetch({w.page(16), w.page(5, 3), w.page(5, 4)}))) ==
        codes{errc::out_of_range, errc::stale, errc::busy});
  const auto none = w.reply(w.place({w.page(16)}));
  CHECK(none.pin == 0);
  CHECK(w.reply(w.place({})).pin == 0);
}

TEST_CASE("io worker: pages that were not gathered are not stored, and their frames are reused", "[io_worker_state]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(0), w.page(1), w.page(2), w.page(3)}));
  const auto waiting = w.place({w.page(4), w.page(5)});
  CHECK_FALSE(w.answered(waiting));
  // Pages that the client does not list count as not gathered.
  CHECK(w.fill(placed.pin, {errc::ok, errc::device_error, errc::cancelled}) ==
        codes{errc::ok, errc::device_error, errc::cancelled, errc::internal});
  CHECK(w.codes_of(w.reply(waiting)) == codes{errc::ok, errc::ok});
  CHECK(w.checks.size() == 1);
  CHECK(w.state.stats().resident_pages == 1);
}

TEST_CASE("io worker: only the owner of a pin may use its frames", "[io_worker_state]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(0)}));
  const fill_request work{placed.pin, {}, patience};
  CHECK(w.state.fill(2, work, w.now).error().code == errc::not_found);
  CHECK(w.state.unpin(1, placed.pin, w.now).error().code == errc::not_found);
  CHECK(w.fill(placed.pin, {errc::ok}) == codes{errc::ok});
  CHECK(w.state.fill(1, work, w.now).error().code == errc::not_found);
  const auto fetched = w.reply(w.fetch({w.page(0)}));
  CHECK(w.state.unpin(2, fetched.pin, w.now).error().code == errc::not_found);
  CHECK(w.state.fill(1, {fetched.pin, {}, patience}, w.now).error().code == errc::not_found);
  w.unpin(fetched.pin);
  CHECK(w.state.unpin(1, fetched.pin, w.now).error().code == errc::not_found);
}

TEST_CASE("io worker: pin numbers differ between runs", "[io_worker_state]") {
  auto rules = worker::rules();
  rules.first_pin = 1000;
  worker w(rules);
  CHECK(w.reply(w.place({w.page(0)})).pin == 1001);
}

TEST_CASE("io worker: a request beyond its limits is refused as a whole", "[io_worker_state]") {
  worker w(worker::rules(), 3);
  const auto refusal = [&](const frame_request& x, owner_id owner = 1) {
    const auto placed = w.state.place(owner, x, w.now);
    const auto fetched = w.state.fetch(owner, x, w.now);
    REQUIRE_FALSE(placed);
    REQUIRE_FALSE(fetched);
    CHECK(placed.error().code == fetched.error().code);
    return placed.error().code;
  };
  std::vector<page_ref> nine;
  for (slot_number slot = 0; slot < 9; ++slot)
    nine.push_back(w.page(slot));
  CHECK(refusal(w.request(nine)) == errc::limit_exceeded);
  CHECK(refusal(w.request({w.page(0)}, duration::zero())) == errc::timeout);
  w.state.owner_died(7, w.now);
  CHECK(refusal(w.request({w.page(0)}), 7) == errc::expired);

  // Pinned, answered or not.
  nine.pop_back();
  const auto pin = w.reply(w.place(nine)).pin;
  CHECK(refusal(w.request({w.page(10), w.page(11), w.page(12), w.page(13), w.page(14)})) == errc::limit_exceeded);
  w.place({w.page(10), w.page(11), w.page(12), w.page(13)});
  CHECK(refusal(w.request({w.page(14)})) == errc::limit_exceeded);
  // Others have limits of their own, but for how many may wait.
  owner_id other = 2;
  for (const slot_number slot : {8U, 9U, 14U})
    w.place({w.page(slot)}, other++);
  CHECK(refusal(w.request({w.page(15)}), 9) == errc::limit_exceeded);
  w.fill(pin, codes(8, errc::cancelled));
  CHECK(w.state.place(1, w.request({w.page(0)}), w.now));
  w.flush();

  w.state.drain(w.now);
  CHECK(refusal(w.request({w.page(1)})) == errc::shutting_down);
}

TEST_CASE("io worker: another extent is requested before pages are evicted", "[io_worker_state]") {
  worker w(worker::rules(), 2);
  w.store({w.page(0), w.page(1), w.page(2), w.page(3)});
  CHECK(w.memory.size() == 1);
  w.store({w.page(4)});
  CHECK(w.memory.size() == 2);
  CHECK(w.state.stats().demotions == 0);
  w.store({w.page(5), w.page(6), w.page(7), w.page(8)});
  CHECK(w.state.stats().demotions == 1);
  // Another extent is requested after a while if needed.
  w.extents_left = 1;
  w.store({w.page(9)});
  CHECK(w.memory.size() == 2);
  w.pass_time(std::chrono::seconds(2));
  CHECK(w.memory.size() == 2);
  w.store({w.page(10)});
  CHECK(w.memory.size() == 3);
}

TEST_CASE("io worker: requests that wait for memory are served in order and answered at their deadline",
          "[io_worker_state]") {
  worker w;
  const auto held = w.reply(w.place({w.page(0), w.page(1), w.page(2), w.page(3)}));
  const auto large = w.place({w.page(4), w.page(5), w.page(6)}, 2, 100 * ms);
  const auto small = w.place({w.page(7)}, 3);
  SECTION("the first one gets free frames although the second would need fewer") {
    w.fill(held.pin, {errc::cancelled, errc::ok, errc::ok, errc::ok});
    CHECK_FALSE(w.answered(large));
    CHECK_FALSE(w.answered(small));
    w.write_all();
    CHECK(w.codes_of(w.reply(large)) == codes{errc::ok, errc::ok, errc::ok});
    CHECK(w.codes_of(w.reply(small)) == codes{errc::ok});
  }
  SECTION("it keeps what it has, and then the next one is served") {
    w.pass_time(99 * ms);
    w.fill(held.pin, {errc::cancelled, errc::ok, errc::ok, errc::ok});
    CHECK_FALSE(w.answered(large));
    w.pass_time(1 * ms);
    const auto got = w.reply(large);
    CHECK(w.codes_of(got) == codes{errc::ok, errc::full, errc::full});
    CHECK_FALSE(w.answered(small));
    w.fill(got.pin, {errc::cancelled, errc::ok, errc::ok}, 2);
    CHECK(w.codes_of(w.reply(small)) == codes{errc::ok});
  }
  SECTION("a fetch of resident pages does not wait") {
    w.fill(held.pin, {errc::ok, errc::ok, errc::ok, errc::ok});
    CHECK(w.codes_of(w.reply(w.fetch({w.page(0)}))) == codes{errc::ok});
    CHECK_FALSE(w.answered(large));
  }
  SECTION("no wait is longer than the limit of the node") {
    const auto patient = w.place({w.page(8)}, 4, std::chrono::hours(1));
    w.pass_time(std::chrono::seconds(10));
    CHECK(w.codes_of(w.reply(patient)) == codes{errc::full});
  }
}

TEST_CASE("io worker: a request for more pages than there are frames continues with all of them", "[io_worker_state]") {
  worker w;
  const std::vector pages{w.page(0), w.page(1), w.page(2), w.page(3), w.page(4), w.page(5)};
  const codes four_of_six{errc::ok, errc::ok, errc::ok, errc::ok, errc::full, errc::full};
  SECTION("to place") {
    const auto other = w.place({w.page(9)}, 2);
    const auto large = w.place(pages);
    CHECK_FALSE(w.answered(large)); // another one has a frame, and will be done with it
    w.fill(w.reply(other).pin, {errc::cancelled}, 2);
    CHECK(w.codes_of(w.reply(large)) == four_of_six);
  }
  SECTION("to fetch") {
    const auto large = w.fetch(pages);
    CHECK_FALSE(w.answered(large));
    w.complete();
    CHECK(w.codes_of(w.reply(large)) == four_of_six);
  }
}

TEST_CASE("io worker: frames of a dead client are not reused until it is quiesced", "[io_worker_state]") {
  worker w;
  w.store({w.page(0)});
  const auto placed = w.reply(w.place({w.page(1)}));
  const auto fetched = w.reply(w.fetch({w.page(0)}));
  const auto others = w.reply(w.place({w.page(2), w.page(3)}, 2));
  w.state.owner_died(1, w.now);
  w.flush();
  // Its reservation ends too: the slot is fenced.
  CHECK(w.is_fenced(w.fence({{1, 1}})));
  const auto waiting = w.place({w.page(4), w.page(5)}, 2, std::chrono::seconds(9));
  w.pass_time(std::chrono::seconds(8));
  CHECK_FALSE(w.answered(waiting));
  CHECK(w.state.fetch(1, w.request({w.page(0)}), w.now).error().code == errc::expired);
  w.state.owner_quiesced(1, w.now);
  w.flush();
  CHECK(w.codes_of(w.reply(waiting)) == codes{errc::ok, errc::ok});
  CHECK(w.state.stats().pinned_frames == 4);
  CHECK(w.state.fill(1, {placed.pin, {}, patience}, w.now).error().code == errc::not_found);
  CHECK(w.state.unpin(1, fetched.pin, w.now).error().code == errc::not_found);
  CHECK(w.fill(others.pin, {errc::ok, errc::ok}, 2) == codes{errc::ok, errc::ok});
}

TEST_CASE("io worker: a client that dies while it waits is not answered and holds nothing", "[io_worker_state]") {
  worker w;
  w.store({w.page(0), w.page(1), w.page(2), w.page(3)});
  w.store({w.page(4)});
  const auto reading = w.fetch({w.page(0)});
  const auto held = w.reply(w.place({w.page(5), w.page(6)}, 2));
  const auto half = w.place({w.page(7), w.page(8)});
  w.state.owner_died(1, w.now);
  w.flush();
  REQUIRE(w.frames.size() == 2);
  for (const auto& x : w.frames)
    CHECK(x.refused == errc::expired);
  CHECK(w.answered(reading));
  CHECK(w.answered(half));
  w.frames.clear();
  w.complete();
  CHECK(w.state.stats().pinned_frames == 2);
  CHECK(w.codes_of(w.reply(w.place({w.page(9), w.page(10)}, 2))) == codes{errc::ok, errc::ok});
  w.fill(held.pin, {errc::ok, errc::ok}, 2);
}

TEST_CASE("io worker: a drain answers requests that wait for memory", "[io_worker_state]") {
  worker w;
  w.place({w.page(0), w.page(1), w.page(2), w.page(3)});
  const auto waiting = w.place({w.page(4)}, 2);
  w.state.drain(w.now);
  w.flush();
  CHECK(w.codes_of(w.reply(waiting)) == codes{errc::shutting_down});
}

TEST_CASE("io worker: memory that the host is about to provide is waited for, up to a limit", "[io_worker_state]") {
  worker w;
  w.store({w.page(0), w.page(1), w.page(2), w.page(3)});
  w.on_its_way = true;
  const auto waiting = w.place({w.page(4)});
  for (int i = 0; i < 40; ++i) {
    CHECK_FALSE(w.answered(waiting));
    CHECK(w.state.waits_for_extent());
    w.pass_time(2 * ms);
  }
  CHECK(w.state.stats().demotions == 0);
  SECTION("it arrives") {
    w.extents_left = 1;
    w.pass_time(2 * ms);
    CHECK(w.codes_of(w.reply(waiting)) == codes{errc::ok});
    CHECK(w.state.stats().demotions == 0);
  }
  SECTION("it does not arrive, and a page is evicted") {
    w.pass_time(30 * ms);
    CHECK(w.codes_of(w.reply(waiting)) == codes{errc::ok});
    CHECK(w.state.stats().demotions == 1);
  }
}

} // namespace io_worker_state_test
