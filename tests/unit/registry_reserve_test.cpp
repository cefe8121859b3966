// Reserve, commit, abort, invalidate.

#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"

namespace registry_reserve_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using codes_t = std::vector<errc>;
using slots_t = std::vector<slot_ref>;
using kind = reserve_plan::kind;

constexpr ticket alice{1, 1};
constexpr ticket bob{2, 1};

} // namespace

TEST_CASE("registry reserve: keys are reserved, committed, and then exist", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 3);
  const auto plan = r.begin(alice, keys).value();
  CHECK(plan.what == kind::needs_slots);
  CHECK(plan.slots_needed == 3);
  CHECK(r.state.stats().reservations == 3);
  const auto reply = r.state.finish_reserve(plan.plan, slots_t{{7, 2}, {8, 3}, {9, 4}}, at(0)).value();
  CHECK(codes(reply.results) == codes_t(3, errc::ok));
  CHECK(reply.results[1].where == slot_ref{8, 3});
  CHECK(r.commit(alice, r.pages(keys, reply)) == codes_t(3, errc::ok));
  CHECK(r.for_rank(r.state.take_outbox(), 0).publish.slots.items == slots_t{{7, 2}, {8, 3}, {9, 4}});
  CHECK(r.state.stats().reservations == 0);
  CHECK(r.state.stats().complete_keys == 3);

  const auto again = r.begin(bob, keys).value();
  CHECK(again.what == kind::answered);
  CHECK(codes(again.reply.results) == codes_t(3, errc::exists));
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry reserve: single flight: a second writer gets busy for a key of the first one", "[registry]") {
  one_registry r(2);
  const auto keys = some_keys(1, 3);
  const auto first = r.begin(alice, {keys[0], keys[1]}).value();
  // The keys are busy from the first step on, before there are slots.
  const auto second = r.begin(bob, keys).value();
  CHECK(second.slots_needed == 1);
  const auto reply = r.state.finish_reserve(second.plan, r.fresh_slots(1), at(0)).value();
  CHECK(codes(reply.results) == codes_t{errc::busy, errc::busy, errc::ok});
  r.state.finish_reserve(first.plan, r.fresh_slots(2), at(0)).value();
  CHECK(codes(r.begin({3, 1}, keys).value().reply.results) == codes_t(3, errc::busy));
  // Another rank is another page.
  CHECK(r.begin(bob, keys, 1).value().slots_needed == 3);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry reserve: a key that occurs twice in a batch gets one slot", "[registry]") {
  one_registry r;
  const auto k = some_keys(1, 2);
  const auto plan = r.begin(alice, {k[0], k[1], k[0]}).value();
  CHECK(plan.slots_needed == 2);
  const auto reply = r.state.finish_reserve(plan.plan, r.fresh_slots(2), at(0)).value();
  CHECK(codes(reply.results) == codes_t{errc::ok, errc::ok, errc::busy});
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry reserve: with too few slots the later keys are answered full and are free for the next writer",
          "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 4);
  r.save({keys[1]});
  const auto plan = r.begin(alice, keys).value();
  CHECK(plan.slots_needed == 3);
  const auto reply = r.state.finish_reserve(plan.plan, slots_t{{50, 1}}, at(0)).value();
  CHECK(codes(reply.results) == codes_t{errc::ok, errc::exists, errc::full, errc::full});
  CHECK(r.state.stats().reservations == 1);
  CHECK_FALSE(r.info(keys[2]).has_value());
  CHECK(r.begin(bob, keys).value().slots_needed == 2);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry reserve: without any slot the reservation ends", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 2);
  const auto plan = r.begin(alice, keys).value();
  CHECK(codes(r.state.finish_reserve(plan.plan, {}, at(0)).value().results) == codes_t(2, errc::full));
  CHECK(r.state.stats().reservations == 0);
  CHECK_FALSE(r.info(keys[0]).has_value());
  CHECK(r.state.finish_reserve(plan.plan, {}, at(0)).error().code == errc::internal); // exactly once
  CHECK(r.begin(alice, keys).value().what == kind::needs_slots);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry reserve: surplus slots are released, and unknown ones are ignored", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 2);
  const auto plan = r.begin(alice, keys).value();
  const auto reply = r.state.finish_reserve(plan.plan, slots_t{{1, 1}, {9, 0}, {2, 1}, {3, 1}, {4, 0}}, at(0)).value();
  CHECK(reply.results[1].where == slot_ref{2, 1});
  CHECK(r.for_rank(r.state.take_outbox(), 0).unused.slots.items == slots_t{{3, 1}});
  CHECK(r.state.stats().refused == 2);
}

TEST_CASE("registry reserve: a repeated reservation gets the answer of the first one", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 4);
  r.save({keys[3]});
  const auto plan = r.begin(alice, keys).value();
  const auto waiting = r.begin(alice, keys).value();
  CHECK(waiting.what == kind::pending);
  CHECK(waiting.plan == plan.plan);
  const auto reply = r.state.finish_reserve(plan.plan, r.fresh_slots(3), at(0)).value();
  const auto repeated = r.begin(alice, keys).value();
  CHECK(repeated.what == kind::answered);
  CHECK(repeated.reply.results == reply.results);
  CHECK(r.state.stats().reservations == 3);

  // The repeated answer contains no slot of a live or aborted page.
  const auto pages = r.pages(keys, reply);
  r.commit(alice, {pages[0]});
  r.abort(alice, {pages[1]});
  CHECK(codes(r.begin(alice, keys).value().reply.results) ==
        codes_t{errc::exists, errc::expired, errc::ok, errc::exists});

  const auto other = r.begin(alice, {keys[0], keys[1]});
  REQUIRE_FALSE(other.has_value());
  CHECK(other.error().code == errc::invalid_argument);
  CHECK(r.state.stats().refused == 1);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry reserve: a repeated commit succeeds for the pages that were published", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 2);
  const auto pages = r.pages(keys, r.reserve(alice, keys));
  CHECK(r.commit(alice, {pages[0], pages[0]}) == codes_t{errc::ok, errc::ok});
  CHECK(r.commit(alice, pages) == codes_t{errc::ok, errc::ok});
  r.state.take_outbox();
  CHECK(r.commit(alice, pages) == codes_t{errc::ok, errc::ok});
  CHECK(r.state.take_outbox().empty());
  CHECK(r.state.stats().keys == 2);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry reserve: a mismatched commit gets the reason and publishes nothing", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 3);
  const auto pages = r.pages(keys, r.reserve(alice, keys));
  auto wrong = pages;
  wrong[0].where.generation += 1;
  wrong[1].where.slot += 1;
  wrong[2].where.generation = 0;
  CHECK(r.commit(alice, wrong) == codes_t(3, errc::stale));
  CHECK(r.commit(bob, pages) == codes_t(3, errc::not_owner));
  CHECK(r.commit(bob, {{key_of(77), {1, 1}}}) == codes_t{errc::not_found});
  r.commit(alice, {pages[0]});
  CHECK(r.commit(bob, {wrong[0]}) == codes_t{errc::stale});
  CHECK(r.state.stats().keys == 1);
  // A key that another writer has, under a ticket that is in use for other keys.
  const auto mine = r.begin(bob, {keys[1], key_of(9)}).value();
  r.state.finish_reserve(mine.plan, r.fresh_slots(1), at(0)).value();
  CHECK(r.commit(bob, {pages[1]}) == codes_t{errc::not_owner});
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry reserve: an expired reservation releases its slots, and a late commit is refused", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 2);
  const auto pages = r.pages(keys, r.reserve(alice, keys, 0, {}, 0, 10));
  CHECK(r.commit(alice, {pages[0]}, 0, 9) == codes_t{errc::ok});
  r.state.take_outbox();
  SECTION("by the tick") {
    r.state.tick(at(10));
  }
  SECTION("by the commit itself") {
    CHECK(r.commit(alice, {pages[1]}, 0, 10) == codes_t{errc::expired});
  }
  CHECK(r.for_rank(r.state.take_outbox(), 0).abort.slots.items == slots_t{pages[1].where});
  CHECK(r.state.stats().expired_reservations == 1);
  CHECK(r.commit(alice, pages, 0, 11) == codes_t{errc::ok, errc::expired});
  // The same holds when another writer reserves or has written the key.
  const auto others = r.pages(keys, r.reserve(bob, keys, 0, {}, 12));
  CHECK(r.commit(alice, {pages[1]}, 0, 12) == codes_t{errc::expired});
  r.commit(bob, others, 0, 12);
  CHECK(r.commit(alice, {pages[1]}, 0, 12) == codes_t{errc::expired});
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry reserve: the time to write begins when slots are granted", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 1);
  const auto plan = r.begin(alice, keys, 0, {}, 0, 10).value();
  const auto reply = r.state.finish_reserve(plan.plan, r.fresh_slots(1), at(8)).value();
  r.state.tick(at(17));
  CHECK(r.commit(alice, r.pages(keys, reply), 0, 17) == codes_t{errc::ok});
}

TEST_CASE("registry reserve: slots for a reservation that has ended meanwhile are released at once", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 2);
  const auto plan = r.begin(alice, keys, 0, {}, 0, 10).value();
  std::int64_t now = 1;
  SECTION("aborted as a whole") {
    r.abort(alice, {});
  }
  SECTION("aborted key by key, without knowing the slots") {
    CHECK(r.abort(alice, {{keys[0], {}}, {keys[1], {}}}) == codes_t{errc::ok, errc::ok});
  }
  SECTION("expired") {
    now = 10;
    r.state.tick(at(now));
  }
  SECTION("expired without a tick") {
    now = 10;
  }
  SECTION("owner died") {
    r.state.owner_died(alice.owner, at(now));
  }
  SECTION("the ticket is in use again") {
    r.abort(alice, {});
    const auto next = r.begin(alice, {key_of(5)}).value();
    CHECK(next.what == kind::needs_slots);
    CHECK(next.plan != plan.plan);
  }
  if (now < 10) {
    CHECK_FALSE(r.info(keys[0]).has_value()); // the marks are removed at once
    CHECK(r.state.check_invariants() == "");
  }
  const auto late = r.state.finish_reserve(plan.plan, slots_t{{3, 1}, {4, 1}}, at(now));
  REQUIRE_FALSE(late.has_value());
  CHECK(late.error().code == errc::expired);
  CHECK(r.for_rank(r.state.take_outbox(), 0).unused.slots.items == slots_t{{3, 1}, {4, 1}});
  CHECK(r.state.finish_reserve(plan.plan, {}, at(now)).error().code == errc::internal);
  CHECK_FALSE(r.info(keys[0]).has_value());
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry reserve: part of a waiting reservation is aborted: the others get their slots", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 3);
  const auto plan = r.begin(alice, keys).value();
  r.abort(alice, {{keys[0], {}}});
  const auto reply = r.state.finish_reserve(plan.plan, slots_t{{3, 1}, {4, 1}, {5, 1}}, at(0)).value();
  CHECK(codes(reply.results) == codes_t{errc::expired, errc::ok, errc::ok});
  CHECK(reply.results[1].where == slot_ref{3, 1});
  CHECK(r.for_rank(r.state.take_outbox(), 0).unused.slots.items == slots_t{{5, 1}});
}

TEST_CASE("registry reserve: an abort releases the slots of its caller once", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 4);
  const auto pages = r.pages(keys, r.reserve(alice, keys));
  r.commit(alice, {pages[3]});
  r.state.take_outbox();
  CHECK(r.abort(bob, {pages[0]}) == codes_t{errc::not_owner});
  CHECK(r.abort(bob, {pages[3]}) == codes_t{errc::not_owner});
  CHECK(r.abort(bob, {{key_of(50), {1, 1}}}) == codes_t{errc::not_found});
  CHECK(r.abort(alice, {{keys[0], {900, 1}}}) == codes_t{errc::stale});
  CHECK(r.state.take_outbox().empty());
  CHECK(r.abort(alice, {pages[0], pages[0], pages[3]}) == codes_t{errc::ok, errc::ok, errc::not_owner});
  CHECK(r.for_rank(r.state.take_outbox(), 0).abort.slots.items == slots_t{pages[0].where});
  CHECK_FALSE(r.info(keys[0]).has_value());
  r.abort(alice, {}); // all the rest
  CHECK(r.for_rank(r.state.take_outbox(), 0).abort.slots.items == slots_t{pages[1].where, pages[2].where});
  CHECK(r.abort(alice, {pages[1]}) == codes_t{errc::ok});
  CHECK(r.state.take_outbox().empty());
  CHECK(r.commit(alice, {pages[1]}) == codes_t{errc::expired});
  CHECK(r.count({keys[3]}) == 1);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry reserve: an invalid page is unpublished if it is named exactly", "[registry]") {
  one_registry r(2);
  const auto keys = some_keys(1, 2);
  const auto zero = r.save(keys, 0);
  const auto one = r.save(keys, 1);
  r.state.take_outbox();
  const auto invalidate = [&](rank_number rank, std::vector<page_ref> pages) {
    return codes(r.state.invalidate({r.ns, rank, std::move(pages)}, at(0)).value());
  };
  auto wrong = zero[0];
  ++wrong.where.generation;
  CHECK(invalidate(0, {wrong, one[0], {key_of(9), {1, 1}}}) == codes_t{errc::stale, errc::stale, errc::not_found});
  CHECK(r.count(keys) == 2);
  CHECK(invalidate(0, {zero[0], zero[0]}) == codes_t{errc::ok, errc::not_found});
  CHECK(r.for_rank(r.state.take_outbox(), 0).suspect.slots.items == slots_t{zero[0].where});
  CHECK(r.count(keys) == 0);
  CHECK(r.count({keys[1]}) == 1);
  CHECK(r.state.stats().invalidated_pages == 1);
  CHECK(r.state.stats().complete_keys == 1);
  // Pages are counted by tier if the request has one.
  const auto from = [](page_tier x) { return static_cast<std::uint8_t>(x); };
  invalidate_request more{r.ns, 1, {}, {}, {}};
  more.pages.items = {one[0], {key_of(9), {1, 1}}, one[1]};
  more.tiers.items = {from(page_tier::disk), from(page_tier::disk), from(page_tier::memory)};
  CHECK(r.state.invalidate(more, at(0)).has_value());
  more.rank = 0;
  more.pages.items = {zero[1]};
  more.tiers.items = {200};
  CHECK(r.state.invalidate(more, at(0)).has_value());
  CHECK(r.state.stats().invalidated_pages == 4);
  CHECK(r.state.stats().invalidated_in_memory == 1);
  CHECK(r.state.stats().invalidated_on_disk == 1);
  r.save(keys, 1);
  // The ranks may be written again.
  r.save(keys, 0);
  CHECK(r.count(keys) == 2);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry reserve: the slot of an invalid page is withheld until the last lease on the key has ended",
          "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 1);
  const auto saved = r.save(keys);
  r.match(alice, keys);
  r.match(bob, keys);
  r.state.take_outbox();
  r.state.invalidate({r.ns, 0, saved}, at(0)).value();
  CHECK(r.state.take_outbox().empty());
  CHECK(r.count(keys) == 0);
  // A new writer gets another slot meanwhile.
  const auto again = r.save(keys);
  CHECK(again[0].where != saved[0].where);
  r.state.invalidate({r.ns, 0, again}, at(0)).value();
  r.state.take_outbox();
  r.release(alice);
  CHECK(r.state.take_outbox().empty());
  CHECK(r.state.check_invariants() == "");
  r.state.tick(at(10)); // bob's lease expires
  CHECK(r.for_rank(r.state.take_outbox(), 0).suspect.slots.items == slots_t{saved[0].where, again[0].where});
  CHECK_FALSE(r.info(keys[0]).has_value());
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry reserve: invalid writes are refused, counted, and change nothing", "[registry]") {
  one_registry r(2, {.max_batch = 4,
                     .max_reservation = std::chrono::seconds(60),
                     .max_reserved_pages = 5,
                     .max_reservations_per_owner = 2});
  const auto code = [](const auto& reply) { return reply ? errc::ok : reply.error().code; };
  const auto keys = some_keys(1, 3);
  CHECK(code(r.begin(alice, keys, 2)) == errc::out_of_range);
  CHECK(code(r.begin({0, 1}, keys)) == errc::invalid_argument);
  CHECK(code(r.begin(alice, keys, 0, {}, 0, 0)) == errc::invalid_argument);
  CHECK(code(r.begin(alice, keys, 0, {}, 0, 61)) == errc::invalid_argument);
  CHECK(code(r.begin(alice, some_keys(1, 5))) == errc::limit_exceeded);
  CHECK(code(r.begin(alice, {keys[0], {}})) == errc::invalid_argument);
  CHECK(code(r.begin(alice, keys, 0, {keys[0]})) == errc::invalid_argument);
  CHECK(code(r.begin(alice, keys, 0, keys)) == errc::invalid_argument); // each its own parent
  CHECK(code(r.state.begin_reserve({{1, 1}, 0, alice, std::chrono::seconds(1), keys, {}}, at(0))) ==
        errc::unknown_namespace);
  CHECK(code(r.state.commit({r.ns, 2, alice, {}}, at(0))) == errc::out_of_range);
  CHECK(code(r.state.commit({{1, 1}, 0, alice, {}}, at(0))) == errc::unknown_namespace);
  CHECK(code(r.state.commit({r.ns, 0, alice, std::vector<page_ref>(5)}, at(0))) == errc::limit_exceeded);
  CHECK(code(r.state.commit({r.ns, 0, alice, std::vector<page_ref>(1)}, at(0))) == errc::invalid_argument);
  CHECK(code(r.state.abort({r.ns, 2, alice, {}}, at(0))) == errc::out_of_range);
  CHECK(code(r.state.invalidate({r.ns, 2, {}}, at(0))) == errc::out_of_range);
  CHECK(code(r.state.evict({r.ns, 2, 1}, at(0))) == errc::out_of_range);
  CHECK(code(r.state.evict({{1, 1}, 0, 1}, at(0))) == errc::unknown_namespace);
  CHECK(r.state.stats().refused == 17);
  CHECK(r.state.keys() == 0);
  CHECK_FALSE(r.info(keys[0]).has_value());

  r.reserve(alice, keys);
  CHECK(code(r.begin({1, 2}, some_keys(10, 3))) == errc::limit_exceeded); // six pages
  r.reserve({1, 2}, some_keys(10, 1));
  CHECK(code(r.begin({1, 3}, some_keys(20, 1))) == errc::limit_exceeded); // a third request of this owner
  CHECK(code(r.begin({2, 1}, some_keys(20, 1))) == errc::ok);
  CHECK(r.state.stats().refused == 19);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry reserve: keys of another shard are refused", "[registry]") {
  one_registry r(1, {.shard = 0, .shard_count = 2});
  const auto here = [](const key_digest& key) { return shard_of(key, 2) == 0; };
  std::uint64_t mine = 1;
  while (!here(key_of(mine)))
    ++mine;
  std::uint64_t theirs = 1;
  while (here(key_of(theirs)))
    ++theirs;
  CHECK(r.begin(alice, {key_of(mine)}).has_value());
  CHECK(r.begin(bob, {key_of(theirs)}).error().code == errc::invalid_argument);
}

} // namespace registry_reserve_test
