// Lookups that find every complete key, and leases of which only some keys are kept.

#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"

namespace registry_each_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr ticket alice{1, 1};
constexpr ticket bob{2, 1};

match_reply each(one_registry& r, ticket lease, const keys_t& keys) {
  match_request x{r.ns, lease, std::chrono::seconds(10), keys};
  x.each = true;
  return r.state.match(x, at(0)).value();
}

void retain(one_registry& r, ticket lease, const keys_t& keys) {
  release_request x{r.ns, lease};
  x.retained = keys;
  REQUIRE(r.state.release(x, at(0)));
  CHECK(r.state.check_invariants() == "");
}

std::uint32_t leases_of(one_registry& r, const key_digest& key) {
  const auto said = r.state.look_up({r.ns, key}, at(0));
  return said ? said->leases : 0;
}

keys_t only(const keys_t& keys, std::initializer_list<std::size_t> positions) {
  keys_t out;
  for (const auto i : positions)
    out.push_back(keys[i]);
  return out;
}

} // namespace

TEST_CASE("registry each: keys behind a missing one are found and leased, the missing ones are not", "[registry]") {
  one_registry r(2);
  const auto keys = some_keys(0, 6);
  for (const auto i : {1, 2, 5})
    for (rank_number rank = 0; rank < 2; ++rank)
      r.save({keys[static_cast<std::size_t>(i)]}, rank);
  r.save({keys[3]}, 0); // not complete
  const auto found = each(r, alice, keys);
  CHECK(found.matched == 3);
  CHECK(found.found.items == std::vector<std::uint8_t>{0, 1, 1, 0, 0, 1});
  for (const auto i : {1, 2, 5})
    CHECK(leases_of(r, keys[static_cast<std::size_t>(i)]) == 1);
  CHECK(leases_of(r, keys[3]) == 0);
  // The same lease again counts nothing twice.
  CHECK(each(r, alice, keys).found == found.found);
  CHECK(leases_of(r, keys[5]) == 1);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry each: nothing is leased where nothing is complete", "[registry]") {
  one_registry r;
  const auto found = each(r, alice, some_keys(0, 3));
  CHECK(found.matched == 0);
  CHECK(found.uses == 0);
  CHECK(found.found.items == std::vector<std::uint8_t>{0, 0, 0});
  CHECK(r.state.stats().leases == 0);
}

TEST_CASE("registry each: retained keys stay leased, all others of the lease are given back", "[registry]") {
  one_registry r;
  const auto keys = some_keys(0, 6);
  r.save(keys);
  each(r, alice, keys);
  each(r, bob, keys);
  retain(r, alice, only(keys, {4, 2}));
  for (std::size_t i = 0; i < keys.size(); ++i)
    CHECK(leases_of(r, keys[i]) == (i == 2 || i == 4 ? 2 : 1));
  SECTION("again, and keys that the lease does not have are ignored") {
    retain(r, alice, only(keys, {4, 5}));
    CHECK(leases_of(r, keys[4]) == 2);
    CHECK(leases_of(r, keys[2]) == 1);
    CHECK(leases_of(r, keys[5]) == 1);
  }
  SECTION("the lease ends where none is left") {
    retain(r, alice, only(keys, {0}));
    CHECK(r.state.stats().leases == 1);
    CHECK(leases_of(r, keys[4]) == 1);
  }
  SECTION("the lease is released") {
    r.release(alice);
    CHECK(leases_of(r, keys[4]) == 1);
  }
  SECTION("the client has died") {
    r.state.owner_died(1, at(1));
    r.state.tick(at(1));
    CHECK(leases_of(r, keys[4]) == 1);
  }
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry each: a page that was found and is damaged meanwhile is not retained", "[registry]") {
  one_registry r;
  const auto keys = some_keys(0, 2);
  const auto pages = r.save(keys);
  each(r, alice, keys);
  REQUIRE(r.state.invalidate({r.ns, 0, {{pages[1]}}}, at(0)));
  retain(r, alice, keys);
  CHECK(leases_of(r, keys[0]) == 1);
  CHECK(leases_of(r, keys[1]) == 0);
}

TEST_CASE("registry each: only retained keys count as used", "[registry]") {
  one_registry r;
  const auto keys = some_keys(0, 4);
  for (const auto& key : keys)
    r.save({key});
  // The oldest first: key 0. A lookup that found all of them and uses the first one saves that one only.
  each(r, alice, keys);
  retain(r, alice, only(keys, {0}));
  r.release(alice);
  evict_request x{r.ns, 0, 3};
  x.force = true;
  r.state.evict(x, at(0)).value();
  CHECK(r.count({keys[0]}) == 1);
  for (std::size_t i = 1; i < keys.size(); ++i)
    CHECK(r.count({keys[i]}) == 0);
}

TEST_CASE("registry each: io workers are notified of the keys that are retained", "[registry]") {
  one_registry r(1, {.tells_workers = true});
  const auto keys = some_keys(0, 4);
  const auto pages = r.save(keys);
  r.state.take_outbox();
  each(r, alice, keys);
  CHECK(r.state.take_outbox().workers.empty());
  retain(r, alice, only(keys, {3}));
  const auto notified = r.state.take_outbox().workers;
  REQUIRE(notified.size() == 1);
  const auto* begun = std::get_if<prefetch_request>(&notified.front().what);
  REQUIRE(begun != nullptr);
  CHECK(begun->first == 0);
  CHECK(begun->pages.items == std::vector<page_ref>{pages[3]});
  // Another lookup's notice is withdrawn before positions change.
  r.match(bob, keys);
  r.state.take_outbox();
  retain(r, bob, only(keys, {2}));
  const auto changed = r.state.take_outbox().workers;
  REQUIRE(changed.size() == 2);
  CHECK(std::get<prefetch_end>(changed[0].what).keep == 0);
  CHECK(std::get<prefetch_request>(changed[1].what).pages.items == std::vector<page_ref>{pages[2]});
}

} // namespace registry_each_test
