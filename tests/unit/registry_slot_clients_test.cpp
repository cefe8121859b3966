// Slot clients, which have no tickets, leases or generations: exists, protect, allocate, confirm, reclaim.

#include "tests/catch.hpp"
#include "tests/unit/registry_slot_client_support.hpp"

namespace registry_slot_clients_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using kind = reserve_plan::kind;

constexpr ticket alice{1, 1};

errc code_of(const auto& reply) {
  return reply ? errc::ok : reply.error().code;
}

} // namespace

TEST_CASE("registry slot clients: exists reports which keys are complete or on one rank, and has no effect",
          "[registry]") {
  slot_client_registry r(2);
  const auto keys = some_keys(1, 3);
  r.save({keys[0], keys[1]}, 0);
  r.save({keys[0]}, 1);
  CHECK(r.exists(keys) == codes_t{errc::ok, errc::not_found, errc::not_found});
  CHECK(r.exists(keys, 0) == codes_t{errc::ok, errc::ok, errc::not_found});
  CHECK(r.exists(keys, 1) == codes_t{errc::ok, errc::not_found, errc::not_found});
  CHECK(r.exists({}) == codes_t{});
  // It does not count as a use: the key is evicted as if it had not been requested.
  r.save({keys[2]}, 0);
  r.exists({keys[1]});
  r.evict(1);
  CHECK(r.exists(keys, 0) == codes_t{errc::ok, errc::not_found, errc::ok});
  CHECK(r.state.stats().leases == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry slot clients: reserved keys do not exist", "[registry]") {
  slot_client_registry r;
  const auto keys = some_keys(1, 1);
  r.allocate(keys);
  CHECK(r.exists(keys) == codes_t{errc::not_found});
  CHECK(r.exists(keys, 0) == codes_t{errc::not_found});
  CHECK(codes(r.protect(keys)) == codes_t{errc::not_found});
  r.tick(100);
  CHECK(r.exists(keys) == codes_t{errc::not_found});
}

TEST_CASE("registry slot clients: protect returns locations, of complete keys only if requested", "[registry]") {
  slot_client_registry r(2);
  const auto keys = some_keys(1, 3);
  const auto slots = r.save({keys[0], keys[1]}, 0);
  r.save({keys[0]}, 1);
  const auto all = r.protect(keys);
  CHECK(codes(all) == codes_t{errc::ok, errc::ok, errc::not_found});
  CHECK(all[1].where == slot_ref{slots[1], 7});
  CHECK(codes(r.protect(keys, 0, 1000, 0, true)) == codes_t{errc::ok, errc::not_found, errc::not_found});
  CHECK(r.look_up(keys[0]).leases == 0);
  CHECK(r.look_up(keys[0]).protected_for == std::chrono::seconds(10));
}

TEST_CASE("registry slot clients: a protected key is not evicted before its time, and is afterwards", "[registry]") {
  slot_client_registry r;
  const auto keys = some_keys(1, 3);
  r.save(keys);
  r.protect({keys[0], keys[1]}, 0, 5000);
  r.protect({keys[1]}, 0, 1000); // the later time counts
  CHECK(r.evict(3) == 1);
  CHECK(r.exists(keys) == codes_t{errc::ok, errc::ok, errc::not_found});
  while (r.state.evict({r.ns, 0, 3}, at(4)).value().more) {
  }
  CHECK(r.state.keys() == 2);
  CHECK(r.state.stats().evicted_keys == 1);
  // Nothing but time has passed since nothing could be evicted.
  CHECK(r.evict(3, 5) == 2);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry slot clients: protection rounds up to whole ticks, never down", "[registry]") {
  slot_client_registry r;
  const auto keys = some_keys(1, 1);
  r.save(keys);
  r.tick(0); // time begins
  REQUIRE(r.state.protect({r.ns, 0, false, std::chrono::nanoseconds(1), keys}, at_ms(249)).has_value());
  CHECK(r.state.evict({r.ns, 0, 1}, at_ms(249)).value().slots == 0);
  CHECK(r.state.evict({r.ns, 0, 1}, at_ms(250)).value().slots == 1);
}

TEST_CASE("registry slot clients: the slot of a page that is unpublished while protected is released after the time",
          "[registry]") {
  slot_client_registry r;
  const auto keys = some_keys(1, 2);
  const auto slots = r.save(keys);
  r.protect({keys[0]}, 0, 5000);
  r.given_back();
  CHECK(r.reclaim(slots) == codes_t{errc::ok, errc::ok});
  CHECK(r.exists(keys) == codes_t{errc::not_found, errc::not_found});
  CHECK(r.given_back() == slots_t{slots[1]});
  CHECK(r.state.stats().withheld_slots == 1);
  CHECK_FALSE(r.knows(keys[0]));
  CHECK(r.state.next_deadline() == at(5));
  // A later protection applies to the new page.
  const auto again = r.save({keys[0]}, 0, 1);
  CHECK(again[0] != slots[0]);
  r.protect({keys[0]}, 1, 60'000);
  r.tick(4);
  CHECK(r.given_back().empty());
  CHECK(r.state.check_invariants() == "");
  r.tick(5);
  CHECK(r.given_back() == slots_t{slots[0]});
  CHECK(r.state.stats().withheld_slots == 0);
  CHECK(r.exists({keys[0]}) == codes_t{errc::ok});
}

TEST_CASE("registry slot clients: a slot that both a lease and a protection hold is released when both have ended",
          "[registry]") {
  const bool lease_first = GENERATE(true, false);
  slot_client_registry r;
  const auto keys = some_keys(1, 1);
  const auto slots = r.save(keys);
  r.protect(keys, 0, 5000);
  r.state.match({r.ns, alice, std::chrono::seconds(lease_first ? 2 : 8), keys}, at(0)).value();
  r.given_back();
  r.erase(keys);
  r.tick(4);
  CHECK(r.given_back().empty());
  CHECK(r.state.check_invariants() == "");
  r.tick(6);
  CHECK(r.given_back() == (lease_first ? slots : slots_t{}));
  r.tick(9);
  CHECK(r.given_back() == (lease_first ? slots_t{} : slots));
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry slot clients: a tick releases a bounded number of withheld slots", "[registry]") {
  slot_client_registry r(1, {.tick_work = 10});
  const auto keys = some_keys(1, 25);
  r.save(keys);
  r.protect(keys, 0, 1000);
  r.erase(keys);
  r.given_back();
  CHECK(r.state.tick(at(2)));
  CHECK(r.given_back().size() == 10);
  CHECK(r.state.tick(at(2)));
  CHECK_FALSE(r.state.tick(at(2)));
  CHECK(r.given_back().size() == 15);
}

TEST_CASE("registry slot clients: every request for a page that is being written gets the same slot", "[registry]") {
  slot_client_registry r(2);
  const auto k = some_keys(1, 3);
  const auto first = r.allocate({k[0], k[1], k[0]});
  CHECK(codes(first) == codes_t(3, errc::ok));
  CHECK(first[0] == first[2]);
  CHECK(first[0].where != first[1].where);
  CHECK(r.look_up(k[0]).pages[0].state == key_page::use::allocated); // one writer that named it twice
  const auto second = r.allocate({k[1], k[2]}, 0, 3);
  CHECK(second[0] == first[1]);
  CHECK(second[1].where.slot != first[0].where.slot);
  CHECK(r.look_up(k[1]).pages[0].state == key_page::use::shared);
  // Another rank is another page.
  CHECK(r.allocate({k[1]}, 1)[0].code() == errc::ok);
  CHECK(r.look_up(k[1]).pages.size() == 2);
  CHECK(r.state.stats().reservations == 4);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry slot clients: a repeated request restarts the time to write and never shortens it", "[registry]") {
  slot_client_registry r;
  const auto k = some_keys(1, 2);
  const auto given = r.allocate(k, 0, 0, 10);
  r.allocate({k[0]}, 0, 8, 10);
  r.allocate({k[1]}, 0, 1, 2);
  r.tick(9);
  CHECK(r.state.stats().reservations == 2);
  r.tick(10);
  CHECK(r.state.stats().reservations == 1);
  CHECK(r.confirm({{k[0], given[0].where.slot}}, 0, 17) == codes_t{errc::ok});
  CHECK(r.state.stats().expired_reservations == 1);
}

TEST_CASE("registry slot clients: a live page is returned and protected, since it may be written again in place",
          "[registry]") {
  slot_client_registry r(2);
  const auto k = some_keys(1, 2);
  const auto slots = r.save(k);
  r.given_back();
  const auto again = r.allocate(k, 0, 0, 10);
  CHECK(codes(again) == codes_t(2, errc::exists));
  CHECK(again[1].where == slot_ref{slots[1], 7});
  CHECK(r.evict(2, 9) == 0);
  // The bytes of the writer are suspect: the page is unpublished, and its slot waits for other possible writers.
  CHECK(r.reclaim({slots[0]}, 0, 3) == codes_t{errc::ok});
  CHECK(r.given_back().empty());
  r.tick(10);
  CHECK(r.given_back() == slots_t{slots[0]});
  CHECK(r.state.stats().reclaimed_pages == 1);
}

TEST_CASE("registry slot clients: a request that meets another in progress waits for it or is answered busy",
          "[registry]") {
  slot_client_registry r;
  const auto k = some_keys(1, 3);
  const auto first = r.begin({k[0], k[1]}).value();
  REQUIRE(first.what == kind::needs_slots);
  const auto second = r.begin({k[1], k[2]}).value();
  CHECK(second.what == kind::wait);
  CHECK(second.plan == first.plan);
  CHECK_FALSE(r.knows(k[2])); // nothing has changed
  const auto hasty = r.begin({k[1], k[2]}, 0, 0, 10, false).value();
  REQUIRE(hasty.what == kind::needs_slots);
  CHECK(hasty.slots_needed == 1);
  const auto given = r.state.finish_reserve(first.plan, r.fresh_slots(2), at(0)).value().results;
  CHECK(codes(given) == codes_t(2, errc::ok));
  CHECK(codes(r.state.finish_reserve(hasty.plan, r.fresh_slots(1), at(0)).value().results) ==
        codes_t{errc::busy, errc::ok});
  const auto after = r.begin({k[1], k[2]}).value();
  CHECK(after.what == kind::answered);
  CHECK(after.reply.results[0] == given[1]);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE(
    "registry slot clients: with too few slots later keys and their duplicates are full, and free for the next writer",
    "[registry]") {
  slot_client_registry r;
  const auto k = some_keys(1, 3);
  const auto plan = r.begin({k[0], k[1], k[1], k[2]}).value();
  CHECK(plan.slots_needed == 3);
  const auto given = r.state.finish_reserve(plan.plan, r.fresh_slots(1), at(0)).value().results;
  CHECK(codes(given) == codes_t{errc::ok, errc::full, errc::full, errc::full});
  CHECK(r.state.stats().reservations == 1);
  CHECK_FALSE(r.knows(k[1]));
  CHECK(r.state.finish_reserve(plan.plan, {}, at(0)).error().code == errc::internal); // exactly once
  CHECK(codes(r.allocate({k[1]})) == codes_t{errc::ok});
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry slot clients: the promised time starts at the answer, and only for pages that still exist",
          "[registry]") {
  slot_client_registry r;
  const auto k = some_keys(1, 4);
  const auto live = r.save({k[0]});
  const auto given = r.allocate({k[1], k[2]}, 0, 0, 5);
  const auto plan = r.begin(k, 0, 1, 5).value();
  REQUIRE(plan.slots_needed == 1);
  CHECK(r.confirm({{k[1], given[0].where.slot}}) == codes_t{errc::ok});
  std::int64_t now = 4;
  SECTION("all of it") {
    const auto answers = r.state.finish_reserve(plan.plan, r.fresh_slots(1), at(now)).value().results;
    CHECK(codes(answers) == codes_t{errc::exists, errc::exists, errc::ok, errc::ok});
    CHECK(answers[2] == given[1]);
    while (r.state.evict({r.ns, 0, 4}, at(8)).value().more) {
    }
    r.tick(8);
    CHECK(r.state.keys() == 2);
    CHECK(r.state.stats().reservations == 2);
  }
  SECTION("nothing") {
    now = 6; // the first promises have expired
    CHECK(r.reclaim(live) == codes_t{errc::ok});
    r.save({k[0]}, 0, now); // in another slot
    const auto answers = r.state.finish_reserve(plan.plan, r.fresh_slots(1), at(now)).value().results;
    CHECK(codes(answers) == codes_t{errc::busy, errc::exists, errc::busy, errc::ok});
  }
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry slot clients: surplus slots are released", "[registry]") {
  slot_client_registry r;
  const auto plan = r.begin(some_keys(1, 1)).value();
  const std::vector<slot_ref> too_many{{1, 0}, {2, 1}, {3, 1}};
  CHECK(r.state.finish_reserve(plan.plan, too_many, at(0)).value().results[0].where == slot_ref{2, 1});
  CHECK(r.given_back() == slots_t{3});
  CHECK(r.state.stats().refused == 1);
}

TEST_CASE("registry slot clients: writers with tickets and slot clients do not touch the pages of each other",
          "[registry]") {
  slot_client_registry r;
  const auto k = some_keys(1, 2);
  const auto theirs = r.allocate({k[0]});
  const reserve_request request{r.ns, 0, alice, std::chrono::seconds(10), k, {}};
  const auto plan = r.state.begin_reserve(request, at(0)).value();
  CHECK(plan.slots_needed == 1);
  const auto mine = r.state.finish_reserve(plan.plan, r.fresh_slots(1), at(0)).value();
  CHECK(codes(mine.results) == codes_t{errc::busy, errc::ok});
  CHECK(codes(r.allocate(k)) == codes_t{errc::ok, errc::busy});
  const auto slot = mine.results[1].where.slot;
  CHECK(r.confirm({{k[1], slot}}) == codes_t{errc::not_owner});
  CHECK(r.reclaim({slot}) == codes_t{errc::not_owner});
  const auto finish = [&](const key_digest& key, slot_ref where) {
    return finish_request{r.ns, 0, alice, std::vector<page_ref>{{key, where}}};
  };
  CHECK(codes(r.state.commit(finish(k[0], theirs[0].where), at(0)).value()) == codes_t{errc::not_owner});
  CHECK(codes(r.state.abort(finish(k[0], theirs[0].where), at(0)).value()) == codes_t{errc::ok}); // none of it is hers
  CHECK(r.look_up(k[0]).pages.size() == 1);
  r.state.owner_died(alice.owner, at(0));
  CHECK(codes(r.allocate(k)) == codes_t{errc::ok, errc::ok});
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry slot clients: only the reserved key, rank and slot is confirmed", "[registry]") {
  slot_client_registry r(2, {}, {true, true, 4}, 100);
  const auto k = some_keys(1, 4);
  const auto given = r.allocate({k[0], k[1]});
  const auto a = given[0].where.slot;
  const auto b = given[1].where.slot;
  CHECK(r.confirm({{k[0], b}, {k[1], a}, {k[2], a}, {k[0], 100}}) ==
        codes_t{errc::stale, errc::stale, errc::not_found, errc::out_of_range});
  CHECK(r.confirm({{k[0], a}}, 1) == codes_t{errc::not_found});
  const auto waiting = r.begin({k[3]}).value();
  CHECK(r.confirm({{k[3], 0}}) == codes_t{errc::stale}); // the slot was not returned yet
  CHECK(r.state.keys() == 0);
  CHECK(r.confirm({{k[0], a}, {k[0], a}}) == codes_t{errc::ok, errc::ok});
  CHECK(r.confirm({{k[0], a}, {k[0], b}}) == codes_t{errc::ok, errc::stale});
  const auto exactly = [&](generation_number generation) {
    return codes(r.state.confirm({r.ns, 0, std::vector<page_ref>{{k[1], {b, generation}}}}, at(0)).value());
  };
  CHECK(exactly(6) == codes_t{errc::stale});
  CHECK(exactly(7) == codes_t{errc::ok});
  r.state.finish_reserve(waiting.plan, {}, at(0)).value();
  const auto out = one_registry::for_rank(r.state.take_outbox(), 0);
  CHECK(out.publish.slots.items == std::vector<slot_ref>{{a, 7}, {b, 7}});
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry slot clients: a late confirmation publishes nothing", "[registry]") {
  slot_client_registry r;
  const auto k = some_keys(1, 1);
  const auto slot = r.allocate(k, 0, 0, 10)[0].where.slot;
  SECTION("noticed by the confirmation") {
    CHECK(r.confirm({{k[0], slot}, {k[0], slot}}, 0, 10) == codes_t{errc::expired, errc::not_found});
  }
  SECTION("noticed by the tick") {
    r.tick(10);
    CHECK(r.confirm({{k[0], slot}}, 0, 10) == codes_t{errc::not_found});
  }
  SECTION("noticed by the next writer, who gets another slot") {
    const auto next = r.allocate(k, 0, 10)[0].where.slot;
    CHECK(next != slot);
    CHECK(r.confirm({{k[0], slot}}, 0, 10) == codes_t{errc::stale});
  }
  CHECK(r.given_back() == slots_t{slot});
  CHECK(r.state.keys() == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry slot clients: one of two writers cannot free the slot of the other", "[registry]") {
  slot_client_registry r;
  const auto k = some_keys(1, 1);
  const auto slot = r.allocate(k, 0, 0, 10)[0].where.slot;
  r.allocate(k, 0, 5, 10);
  CHECK(r.reclaim({slot}, 0, 6) == codes_t{errc::busy});
  CHECK(r.given_back().empty());
  SECTION("the other one confirms") {
    CHECK(r.confirm({{k[0], slot}}, 0, 6) == codes_t{errc::ok});
    // The first may write on: neither eviction nor a second thought frees the slot before its time.
    CHECK(r.evict(1, 14) == 0);
    CHECK(r.reclaim({slot}, 0, 14) == codes_t{errc::ok});
    CHECK(r.exists(k) == codes_t{errc::not_found});
    r.tick(14);
  }
  SECTION("none confirms") {
    r.tick(14);
    CHECK(r.state.stats().reservations == 1);
  }
  CHECK(r.given_back().empty());
  r.tick(15);
  CHECK(r.given_back() == slots_t{slot});
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry slot clients: a page with a single writer is evicted like any other", "[registry]") {
  slot_client_registry r;
  r.save(some_keys(1, 1));
  CHECK(r.evict(1) == 1);
}

TEST_CASE("registry slot clients: a slot rests only if its writer may be late", "[registry]") {
  slot_client_registry r;
  const auto k = some_keys(1, 2);
  using slots = std::pair<slots_t, slots_t>; // slots that rest, and slots that are free at once
  SECTION("evicted after its only writer confirmed it") {
    const auto a = r.save(k);
    CHECK(r.evict(1) == 1);
    CHECK(r.rest_and_free() == slots{{}, {a[1]}});
  }
  SECTION("evicted when the last location promise has expired") {
    const auto a = r.save(k);
    r.protect(k, 1, 4000);
    r.protect({k[0]}, 2, 1000);
    CHECK(r.evict(2, 4) == 0);
    CHECK(r.evict(2, 5) == 2);
    CHECK(r.rest_and_free() == slots{{}, {a[1], a[0]}});
  }
  SECTION("erased, and released when the location promises have expired") {
    const auto a = r.save(k);
    r.protect({k[0]}, 1, 4000);
    CHECK(r.erase(k, all_ranks, 2) == codes_t(2, errc::ok));
    CHECK(r.rest_and_free() == slots{{}, {a[1]}});
    r.tick(4);
    CHECK(r.rest_and_free() == slots{});
    r.tick(5);
    CHECK(r.rest_and_free() == slots{{}, {a[0]}});
  }
  SECTION("evicted after the time of a second writer") {
    const auto a = r.allocate({k[0]}, 0, 0, 10)[0].where.slot;
    r.allocate({k[0]}, 0, 3, 10);
    CHECK(r.confirm({{k[0], a}}, 0, 4) == codes_t{errc::ok});
    CHECK(r.evict(1, 12) == 0);
    CHECK(r.evict(1, 13) == 1);
    CHECK(r.rest_and_free() == slots{{}, {a}});
  }
  SECTION("never confirmed") {
    const auto a = r.allocate({k[0]}, 0, 0, 10)[0].where.slot;
    r.tick(10);
    CHECK(r.rest_and_free() == slots{{a}, {}});
  }
  SECTION("released before it was confirmed") {
    const auto a = r.allocate({k[0]}, 0, 0, 10)[0].where.slot;
    CHECK(r.reclaim({a}, 0, 1) == codes_t{errc::ok});
    CHECK(r.rest_and_free() == slots{});
    r.tick(10);
    CHECK(r.rest_and_free() == slots{{a}, {}});
  }
  SECTION("released while live: a writer that failed to write it again may continue") {
    const auto a = r.save(k);
    CHECK(r.reclaim({a[0]}, 0, 1) == codes_t{errc::ok});
    CHECK(r.rest_and_free() == slots{{a[0]}, {}});
    r.protect({k[1]}, 1, 1000);
    CHECK(r.reclaim({a[1]}, 0, 1) == codes_t{errc::ok});
    r.tick(2);
    CHECK(r.rest_and_free() == slots{{a[1]}, {}});
  }
  SECTION("released while held by a lease") {
    const auto a = r.save(k);
    const locate_request lease{r.ns, 0, alice, std::chrono::seconds(5), k};
    REQUIRE(r.state.locate(lease, at(0)).has_value());
    CHECK(r.reclaim({a[0]}, 0, 1) == codes_t{errc::ok});
    CHECK(r.erase({k[1]}, all_ranks, 1) == codes_t{errc::ok});
    CHECK(r.rest_and_free() == slots{});
    r.tick(5);
    CHECK(r.rest_and_free() == slots{{a[0]}, {a[1]}});
  }
  SECTION("granted and not returned to any client") {
    const auto plan = r.begin({k[0]}).value();
    const std::vector<slot_ref> granted{{5, 7}, {6, 7}};
    r.state.finish_reserve(plan.plan, granted, at(0)).value();
    CHECK(r.rest_and_free() == slots{{}, {6}});
  }
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry slot clients: of keys confirmed or located together the last one is evicted first", "[registry]") {
  slot_client_registry r(2);
  const auto k = some_keys(1, 4);
  const auto left = [&] {
    keys_t out;
    for (const auto& key : k)
      if (r.exists({key}, 1) == codes_t{errc::ok})
        out.push_back(key);
    return out;
  };
  r.save({k[1], k[3]}, 0);
  r.save(k, 1);
  SECTION("confirmed") {}
  SECTION("located") {
    r.protect({k[2], k[3]}, 0, 1000, 1);
    r.protect(k, 0, 1000, 1);
  }
  SECTION("found when they were to be written again") {
    r.protect({k[2], k[3]}, 0, 1000, 1);
    r.allocate(k, 1, 0, 1);
  }
  for (std::ptrdiff_t n = 4; n-- > 0;) {
    CHECK(r.evict(1, 20, 1) == 1);
    CHECK(left() == keys_t{k.begin(), k.begin() + n});
  }
}

TEST_CASE("registry slot clients: slots are released by number alone, once", "[registry]") {
  slot_client_registry r(2, {}, {true, true, 4}, 100);
  const auto k = some_keys(1, 4);
  const auto live = r.save({k[0]});
  const auto reserved = r.allocate({k[1], k[2]});
  const auto waiting = r.begin({k[3]}).value();
  r.given_back();
  const auto a = live[0];
  const auto b = reserved[0].where.slot;
  CHECK(r.reclaim({a, b, a, b, 50, 100, 0xffffffff}) == codes_t{errc::ok, errc::ok, errc::not_found, errc::not_found,
                                                                errc::not_found, errc::out_of_range,
                                                                errc::out_of_range});
  CHECK(r.given_back() == slots_t{a});
  CHECK(r.reclaim({reserved[1].where.slot}, 1) == codes_t{errc::not_found}); // of another rank
  CHECK_FALSE(r.knows(k[0]));
  CHECK_FALSE(r.knows(k[1]));
  CHECK(r.knows(k[2]));
  CHECK(r.look_up(k[3]).pages[0].where.generation == 0);
  // The index entries of the keys are reused for others, and leftovers in the slot index do no harm.
  r.save(some_keys(50, 4));
  CHECK(r.reclaim({a, b}) == codes_t{errc::not_found, errc::not_found});
  CHECK(r.exists(some_keys(50, 4), 0) == codes_t(4, errc::ok));
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry slot clients: a late release does not take a slot from its new key", "[registry]") {
  slot_client_registry r;
  const auto k = some_keys(1, 2);
  const auto slot = r.allocate({k[0]}, 0, 0, 5)[0].where.slot;
  r.tick(5);
  CHECK(r.given_back() == slots_t{slot});
  const auto plan = r.begin({k[1]}, 0, 6, 5).value();
  const std::vector<slot_ref> again{{slot, 8}};
  r.state.finish_reserve(plan.plan, again, at(6)).value();
  // The first writer, at last. Nothing tells its number from the second one's.
  CHECK(r.reclaim({slot}, 0, 7) == codes_t{errc::ok});
  CHECK(r.reclaim({slot}, 0, 7) == codes_t{errc::not_found});
  CHECK(r.given_back().empty());
  CHECK(r.confirm({{k[1], slot}}, 0, 7) == codes_t{errc::not_found});
  CHECK(codes(r.allocate({k[1]}, 0, 7)) == codes_t{errc::ok}); // another slot
  CHECK(r.info().ranks[0].withheld == 1);
  r.tick(10);
  CHECK(r.given_back().empty());
  r.tick(11);
  const auto out = one_registry::for_rank(r.state.take_outbox(), 0);
  CHECK(out.abort.slots.items == again);
  CHECK(out.release.slots.empty());
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry slot clients: the answers of all shards are merged to one", "[registry]") {
  CHECK(reclaim_sum(errc::not_found, errc::ok) == errc::ok);
  CHECK(reclaim_sum(errc::busy, errc::not_found) == errc::busy);
  CHECK(reclaim_sum(errc::not_found, errc::not_found) == errc::not_found);
  CHECK(reclaim_sum(errc::out_of_range, errc::out_of_range) == errc::out_of_range);
}

TEST_CASE("registry slot clients: a page evicted and written again elsewhere is not reclaimed by its old slot",
          "[registry]") {
  slot_client_registry r;
  const auto k = some_keys(1, 1);
  const auto before = r.save(k);
  CHECK(r.evict(1) == 1);
  const auto after = r.save(k);
  CHECK(r.reclaim(before) == codes_t{errc::not_found});
  CHECK(r.exists(k) == codes_t{errc::ok});
  CHECK(r.reclaim(after) == codes_t{errc::ok});
}

TEST_CASE("registry slot clients: invalid requests of slot clients are refused, counted, and change nothing",
          "[registry]") {
  slot_client_registry r(1, {.max_batch = 3, .max_protection = std::chrono::seconds(60), .max_reserved_pages = 4});
  const auto k = some_keys(1, 3);
  const namespace_id unknown{1, 1};
  const duration second = std::chrono::seconds(1);
  CHECK(code_of(r.state.exists({unknown, all_ranks, k})) == errc::unknown_namespace);
  CHECK(code_of(r.state.exists({r.ns, 3, k})) == errc::out_of_range);
  CHECK(code_of(r.state.exists({r.ns, all_ranks, some_keys(1, 4)})) == errc::limit_exceeded);
  CHECK(code_of(r.state.protect({r.ns, 1, false, second, k}, at(0))) == errc::out_of_range);
  CHECK(code_of(r.state.protect({r.ns, 0, false, duration(0), k}, at(0))) == errc::invalid_argument);
  CHECK(code_of(r.state.protect({r.ns, 0, false, 61 * second, k}, at(0))) == errc::invalid_argument);
  CHECK(code_of(r.begin({k[0], {}})) == errc::invalid_argument);
  CHECK(code_of(r.begin(k, 0, 0, 0)) == errc::invalid_argument);
  CHECK(code_of(r.begin(k, 0, 0, 10, true, {k[0]})) == errc::invalid_argument);
  CHECK(code_of(r.begin(k, 7)) == errc::out_of_range);
  CHECK(code_of(r.state.confirm({r.ns, 0, std::vector<page_ref>(4)}, at(0))) == errc::limit_exceeded);
  CHECK(code_of(r.state.reclaim({r.ns, 0, slots_t(4)}, at(0))) == errc::limit_exceeded);
  CHECK(code_of(r.state.erase({r.ns, 9, k}, at(0))) == errc::out_of_range);
  CHECK(code_of(r.state.clear({r.ns, 9, 0}, at(0))) == errc::out_of_range);
  CHECK(r.state.stats().refused == 14);
  CHECK_FALSE(r.knows(k[0]));
  // A parent that is the key itself is none; that is no reason to refuse a slot client's batch.
  CHECK(codes(r.allocate(k, 0, 0, 10, {k[0], k[0], k[1]})) == codes_t(3, errc::ok));
  CHECK(r.look_up(k[0]).parent.is_null());
  CHECK(r.look_up(k[2]).parent == k[1]);
  CHECK(code_of(r.begin(some_keys(10, 2))) == errc::limit_exceeded); // five pages
  CHECK(codes(r.allocate(some_keys(10, 1))) == codes_t{errc::ok});
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry slot clients: slots by number need a namespace with a slot index", "[registry]") {
  slot_client_registry r(1, {}, {true, false, 4});
  const auto slots = r.save(some_keys(1, 1));
  CHECK(code_of(r.state.reclaim({r.ns, 0, slots}, at(0))) == errc::unsupported);
  CHECK(r.exists(some_keys(1, 1)) == codes_t{errc::ok});
}

} // namespace registry_slot_clients_test
