// Notifications of io workers about lookups, and their reports of dropped pages.

#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"

namespace registry_prefetch_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr ticket alice{1, 1};
constexpr ticket bob{2, 1};

registry_options telling() {
  registry_options out;
  out.shard = 0;
  out.tells_workers = true;
  return out;
}

struct notified_of {
  rank_number rank = 0;
  ticket lease;
  std::uint32_t first = 0;
  std::vector<page_ref> pages;

  friend bool operator==(const notified_of&, const notified_of&) = default;
};

struct notified_end {
  rank_number rank = 0;
  ticket lease;
  std::uint32_t keep = 0;

  friend bool operator==(const notified_end&, const notified_end&) = default;
};

struct words {
  std::vector<notified_of> begun;
  std::vector<notified_end> ended;

  bool empty() const { return begun.empty() && ended.empty(); }
};

words take(one_registry& r) {
  words out;
  for (const auto& x : r.state.take_outbox().workers) {
    CHECK(x.ns == r.ns);
    if (const auto* found = std::get_if<prefetch_request>(&x.what))
      out.begun.push_back({x.rank, found->lease, found->first, found->pages.items});
    else if (const auto* over = std::get_if<prefetch_end>(&x.what))
      out.ended.push_back({x.rank, over->lease, over->keep});
  }
  return out;
}

std::vector<errc> dropped(one_registry& r, std::vector<page_ref> pages, rank_number rank = 0) {
  std::vector<errc> out;
  const auto reply = r.state.drop_pages({r.ns, rank, std::move(pages)}, at(0));
  REQUIRE(reply);
  for (const auto code : reply->results)
    out.push_back(static_cast<errc>(code));
  CHECK(r.state.check_invariants() == "");
  return out;
}

} // namespace

TEST_CASE("registry prefetch: io workers are notified of the pages that a lookup found and of the end of its lease",
          "[registry]") {
  one_registry r(2, telling());
  const auto of0 = r.save(some_keys(0, 3), 0);
  auto of1 = r.save(some_keys(0, 2), 1);
  take(r);
  REQUIRE(r.match(alice, some_keys(0, 5)) == 2);
  const auto notified = take(r);
  CHECK(notified.begun == std::vector<notified_of>{{0, alice, 0, {of0[0], of0[1]}}, {1, alice, 0, of1}});
  CHECK(notified.ended.empty());
  SECTION("released") {
    r.release(alice);
  }
  SECTION("expired") {
    r.state.tick(at(60));
  }
  SECTION("its client has died") {
    r.state.owner_died(1, at(1));
    r.state.tick(at(1));
  }
  const auto after = take(r);
  CHECK(after.begun.empty());
  CHECK(after.ended == std::vector<notified_end>{{0, alice, 0}, {1, alice, 0}});
  // Once.
  r.state.tick(at(120));
  CHECK(take(r).empty());
}

TEST_CASE("registry prefetch: io workers are notified once of the pages of a lease, and of what remains of it",
          "[registry]") {
  one_registry r(1, telling());
  const auto pages = r.save(some_keys(0, 5));
  take(r);
  r.match(alice, some_keys(0, 2));
  take(r);
  r.match(alice, some_keys(0, 2));
  CHECK(take(r).empty());
  r.match(alice, some_keys(0, 4));
  CHECK(take(r).begun == std::vector<notified_of>{{0, alice, 2, {pages[2], pages[3]}}});
  r.release(alice, 3);
  CHECK(take(r).ended == std::vector<notified_end>{{0, alice, 3}});
  r.match(alice, some_keys(3, 1));
  CHECK(take(r).begun == std::vector<notified_of>{{0, alice, 3, {pages[3]}}});
  r.release(alice);
  CHECK(take(r).ended == std::vector<notified_end>{{0, alice, 0}});
  // Another lease in its place.
  r.match(bob, some_keys(0, 1));
  CHECK(take(r).begun == std::vector<notified_of>{{0, bob, 0, {pages[0]}}});
}

TEST_CASE("registry prefetch: io workers are notified of lookups by engines only", "[registry]") {
  one_registry r(1, telling());
  r.save(some_keys(0, 3));
  take(r);
  SECTION("nothing is found") {
    CHECK(r.match(alice, some_keys(7, 2)) == 0);
  }
  SECTION("a load") {
    r.locate(alice, some_keys(0, 2));
    r.release(alice);
  }
  SECTION("a caller with bounds, over HTTP") {
    match_request x{r.ns, alice, std::chrono::seconds(5), some_keys(0, 2)};
    x.bounds.leases = 3;
    CHECK(r.state.match(x, at(0)).value().matched == 2);
    r.release(alice);
  }
  SECTION("a lookup that is refused") {
    CHECK_FALSE(r.state.match({r.ns, {}, std::chrono::seconds(5), some_keys(0, 2)}, at(0)));
  }
  CHECK(take(r).empty());
}

TEST_CASE("registry prefetch: io workers are not notified when none wants it", "[registry]") {
  one_registry r(1);
  r.save(some_keys(0, 3));
  r.match(alice, some_keys(0, 3));
  r.release(alice);
  CHECK(take(r).empty());
}

TEST_CASE("registry prefetch: pages that an io worker has dropped are misses, and their slots are released",
          "[registry]") {
  one_registry r(1, telling());
  const auto pages = r.save(some_keys(0, 4));
  r.state.take_outbox();
  CHECK(dropped(r, {pages[1], pages[3]}) == std::vector{errc::ok, errc::ok});
  const auto slots = r.for_rank(r.state.take_outbox(), 0);
  CHECK(slots.release.slots.items == std::vector{pages[1].where, pages[3].where});
  CHECK(slots.suspect.slots.empty());
  CHECK(r.count(some_keys(0, 4)) == 1);
  CHECK(r.state.stats().invalidated_pages == 0);
  // Again, of an older page, of no page.
  auto older = pages[0];
  ++older.where.generation;
  CHECK(dropped(r, {pages[1], older, {key_of(77), {5, 1}}}) ==
        std::vector{errc::not_found, errc::not_found, errc::not_found});
  CHECK(r.count(some_keys(0, 1)) == 1);
  CHECK_FALSE(r.state.drop_pages({r.ns, 9, pages}, at(0)));
}

TEST_CASE("registry prefetch: the slot of a dropped page waits for the leases on its key", "[registry]") {
  one_registry r(1, telling());
  const auto pages = r.save(some_keys(0, 1));
  r.match(alice, some_keys(0, 1));
  r.state.take_outbox();
  CHECK(dropped(r, pages) == std::vector{errc::ok});
  CHECK(r.for_rank(r.state.take_outbox(), 0).release.slots.empty());
  r.release(alice);
  CHECK(r.for_rank(r.state.take_outbox(), 0).release.slots.items == std::vector{pages[0].where});
}

TEST_CASE("registry prefetch: a page that was dropped before its commit cannot be committed", "[registry]") {
  one_registry r(1, telling());
  const auto keys = some_keys(0, 2);
  const auto reserved = r.pages(keys, r.reserve(alice, keys));
  r.state.take_outbox();
  CHECK(dropped(r, {reserved[1]}) == std::vector{errc::ok});
  CHECK(r.for_rank(r.state.take_outbox(), 0).abort.slots.items == std::vector{reserved[1].where});
  CHECK(r.commit(alice, reserved) == std::vector{errc::ok, errc::expired});
  CHECK(r.count(keys) == 1);
  // Another writer may save it.
  CHECK(r.save({keys[1]}).size() == 1);
  CHECK(dropped(r, {reserved[1]}) == std::vector{errc::not_found});
  CHECK(r.count(keys) == 2);
}

TEST_CASE("registry prefetch: all pages of a reservation may be dropped", "[registry]") {
  one_registry r(1, telling());
  const auto keys = some_keys(0, 3);
  const auto reserved = r.pages(keys, r.reserve(alice, keys));
  CHECK(dropped(r, reserved) == std::vector(3, errc::ok));
  CHECK(r.state.stats().reservations == 0);
  CHECK(r.commit(alice, reserved) == std::vector(3, errc::expired));
  CHECK(r.count(keys) == 0);
}

} // namespace registry_prefetch_test
