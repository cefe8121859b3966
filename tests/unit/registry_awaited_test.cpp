#include "actors/node/eviction/lru_policy.hpp"
#include "actors/node/eviction/reuse_policy.hpp"
#include "actors/node/eviction/s3_fifo_policy.hpp"
#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace registry_awaited_test {

/// Pages of a peer that were fetched for a request that has not used them yet.

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr ticket ours{8, 1};
constexpr std::int64_t wait_seconds = 3;

struct home : one_registry {
  explicit home(eviction_factory policy = make_lru_policy, std::uint32_t world_size = 1)
      : one_registry(world_size, options_with(policy)) {}

  static registry_options options_with(eviction_factory policy) {
    auto out = test::options_with(policy);
    out.await_fetched = std::chrono::seconds(wait_seconds);
    return out;
  }
  std::vector<page_ref> fetch(const keys_t& keys, rank_number rank = 0, std::int64_t now = 0,
                              page_origin origin = page_origin::fetched) {
    return save(keys, rank, chain_parents(keys), now, origin);
  }
};

} // namespace

TEST_CASE("registry awaited: fetched pages are not evicted before their first use while another page can be evicted",
          "[registry]") {
  const auto origin = GENERATE(page_origin::fetched, page_origin::transient);
  home r(GENERATE(make_lru_policy, make_reuse_policy, make_s3_fifo_policy));
  const auto keys = some_keys(1, 6);
  r.fetch(keys, 0, 0, origin);
  const auto own = some_keys(100, 4);
  r.save(own);
  CHECK(r.evict(4).slots == 4);
  CHECK(r.count_of(own) == 0);
  CHECK(r.count_of(keys) == 6);
  CHECK(r.state.check_invariants() == "");
  // A key that was leased and released in part is not awaited further.
  CHECK(r.match(ours, {keys[4], keys[5]}) == 2);
  CHECK(r.match({8, 2}, {keys[0]}) == 1);
  r.release(ours);
  CHECK(r.evict(2).slots == 2);
  CHECK(r.count_of(keys) == 4);
  CHECK_FALSE(r.has(keys[4]));
  CHECK_FALSE(r.has(keys[5]));
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE(
    "registry awaited: keys are counted as fetched by the lookup that they were fetched for, and as in memory later",
    "[registry]") {
  auto how = home::options_with(make_lru_policy);
  const auto residence = std::make_shared<page_residence>();
  how.residence = residence;
  one_registry r(1, how);
  const auto keys = some_keys(1, 3);
  const auto pages = r.save(keys, 0, chain_parents(keys), 0, page_origin::fetched);
  const auto resident = residence->add(r.ns, 0, 100);
  for (const auto& page : pages)
    resident->set(page.where.slot);
  const auto look = [&](ticket lease) {
    CHECK(r.state.match({r.ns, lease, std::chrono::seconds(9), keys, {}, true}, at(0)).value().matched == 3);
    r.release(lease);
  };
  look({8, 1});
  look({8, 2});
  const auto counts = r.state.describe({}).value().namespaces.at(0).lookups;
  CHECK(counts.peer_keys == 3);
  CHECK(counts.memory_keys == 3);
  CHECK(counts.disk_keys == 0);
}

TEST_CASE("registry awaited: a lease that is refused as too large is no use of awaited keys", "[registry]") {
  auto how = home::options_with(make_lru_policy);
  how.max_lease_keys = 3;
  one_registry r(1, how);
  const auto keys = some_keys(1, 5);
  r.save(keys, 0, chain_parents(keys), 0, page_origin::fetched);
  const auto own = some_keys(100, 2);
  r.save(own);
  REQUIRE(r.match(ours, {keys[0], keys[1]}) == 2);
  const auto refused =
      r.state.locate({r.ns, 0, ours, std::chrono::seconds(10), keys_t{keys[2], keys[3], keys[4]}}, at(0));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::limit_exceeded);
  CHECK(r.evict(2).slots == 2);
  CHECK(r.count_of(own) == 0);
  CHECK(r.count_of(keys) == 5);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry awaited: where keys exceed the memory, no more awaited keys are evicted than are needed",
          "[registry][memory]") {
  auto how = home::options_with(make_lru_policy);
  how.memory = std::make_shared<memory_budget>(std::uint64_t{1} << 20);
  one_registry r(1, how);
  r.save(some_keys(1000, 3));
  const auto keys = some_keys(1, 40);
  r.save(keys, 0, chain_parents(keys), 0, page_origin::fetched);
  how.memory->take_anyway(how.memory->limit() - how.memory->used());
  r.reserve(r.next_ticket(), some_keys(2000, 10));
  CHECK(r.state.stats().evicted_keys == 10);
  CHECK(r.count_of(keys) == 33);
}

TEST_CASE("registry awaited: where no other page can be evicted, fetched pages are evicted too, and kept again later",
          "[registry]") {
  home r;
  const auto held = some_keys(100, 4);
  r.save(held);
  CHECK(r.match(ours, held) == 4);
  const auto keys = some_keys(1, 4);
  r.fetch(keys);
  // Not before all were looked at.
  const auto first = r.evict(1);
  CHECK(first.slots == 0);
  CHECK(first.more);
  CHECK(r.evict(1).slots == 1);
  CHECK(r.evict(1).slots == 1);
  CHECK(r.count_of(keys) == 2);
  r.release(ours);
  CHECK(r.evict(3).slots == 3);
  CHECK(r.count_of(held) == 1);
  CHECK(r.count_of(keys) == 2);
  CHECK(r.state.check_invariants() == "");
  // In the end there are no keys, and the answer says so.
  for (int i = 0; i < 100 && r.state.keys() > 0; ++i)
    r.evict(64);
  CHECK(r.state.keys() == 0);
  CHECK_FALSE(r.evict(1).more);
}

TEST_CASE("registry awaited: where all fetched pages are held otherwise too, the search for victims ends",
          "[registry]") {
  home r(make_lru_policy, 2);
  const auto keys = some_keys(1, 3);
  r.fetch(keys, 0);
  r.reserve(r.next_ticket(), keys, 1);
  CHECK(r.evict(10).slots == 0);
  CHECK_FALSE(r.evict(10).more);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry awaited: fetched pages without a use are evicted like others after their time", "[registry]") {
  home r;
  const auto keys = some_keys(1, 3);
  r.fetch(keys);
  r.save(some_keys(100, 3), 0, {}, wait_seconds + 1);
  CHECK(r.evict(3, 0, wait_seconds + 1).slots == 3);
  CHECK(r.count_of(keys) == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE(
    "registry awaited: an awaited page is promised to no reader: its slot is released at once when the page is erased",
    "[registry]") {
  home r;
  const auto keys = some_keys(1, 2);
  const auto made = r.fetch(keys);
  (void)r.state.take_outbox();
  REQUIRE(r.state.invalidate({r.ns, 0, {made}, {}}, at(0)));
  // The slots are suspect, since the pages were reported invalid.
  CHECK(r.for_rank(r.state.take_outbox(), 0).suspect.slots.size() == 2);
  CHECK_FALSE(r.info(keys[0]));
  // The page that replaces it is not awaited.
  r.save(keys);
  r.fetch(some_keys(10, 2));
  CHECK(r.evict(2).slots == 2);
  CHECK(r.count_of(keys) == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry awaited: a location promise outlasts the wait and is not ended by a lease", "[registry]") {
  home r;
  const auto keys = some_keys(1, 1);
  r.fetch(keys);
  r.state.protect({r.ns, 0, false, std::chrono::seconds(20), keys}, at(0)).value();
  CHECK(r.info(keys[0])->protected_until > 0);
  CHECK(r.match(ours, keys) == 1);
  r.release(ours);
  CHECK(r.evict(1, 0, 19).slots == 0);
  CHECK(r.evict(1, 0, 21).slots == 1);
  CHECK(r.state.check_invariants() == "");
  // An existing promise on a returning key is not mistaken for a wait.
  r.save(keys, 0, {}, 30);
  r.state.protect({r.ns, 0, false, std::chrono::seconds(20), keys}, at(30)).value();
  const auto made = r.locate({8, 2}, keys, 0, 30);
  REQUIRE(r.state.invalidate({r.ns, 0, {{page_ref{keys[0], made[0].where}}}, {}}, at(30)));
  r.fetch(keys, 0, 31);
  CHECK(r.match(ours, keys, 31) == 1);
  r.release(ours, 0, 31);
  r.release({8, 2}, 0, 31);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry awaited: a promise on an awaited key lasts for its time and no longer", "[registry]") {
  home r;
  const auto keys = some_keys(1, 1);
  r.fetch(keys);
  r.state.protect({r.ns, 0, false, std::chrono::seconds(1), keys}, at(0)).value();
  CHECK(r.evict(1).slots == 0);
  CHECK_FALSE(r.evict(1).more);
  CHECK(r.evict(1, 0, 2).slots == 1);
}

TEST_CASE("registry awaited: awaited parents that were considered for eviction stay awaited", "[registry]") {
  home r;
  const auto keys = some_keys(1, 4);
  r.fetch(keys);
  const auto held = some_keys(100, 4);
  r.save(held);
  CHECK(r.match(ours, held) == 4);
  // One page, and it is the last one of the chain: all its parents were looked at before.
  for (int i = 0; i < 100 && r.count_of(keys) == 4; ++i)
    r.evict(1);
  CHECK(r.count_of(keys) == 3);
  r.release(ours);
  CHECK(r.evict(4).slots == 4);
  CHECK(r.count_of(held) == 0);
  CHECK(r.count_of(keys) == 3);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry awaited: a key is awaited on all ranks, until it is leased as a whole", "[registry]") {
  home r(make_lru_policy, 2);
  const auto keys = some_keys(1, 3);
  r.fetch(keys, 0);
  CHECK(r.match(ours, keys) == 0);
  r.fetch(keys, 1);
  const auto own = some_keys(100, 1);
  r.save(own, 0);
  r.save(own, 1);
  CHECK(r.evict(1).slots == 1);
  CHECK(r.count_of(keys) == 3);
  r.save(own, 0);
  r.save(own, 1);
  CHECK(r.match(ours, keys) == 3);
  r.release(ours);
  CHECK(r.count(own) == 1);
  CHECK(r.evict(3).slots == 3);
  CHECK(r.count_of(keys) == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE(
    "registry awaited: an awaited key that was reserved or leased when its first page arrived is not awaited further",
    "[registry]") {
  home r;
  const auto keys = some_keys(1, 2);
  const auto made = r.save(keys);
  CHECK(r.match(ours, keys) == 2);
  REQUIRE(r.state.invalidate({r.ns, 0, {made}, {}}, at(0)));
  r.fetch(keys);
  r.release(ours);
  r.save(some_keys(10, 2));
  CHECK(r.evict(2).slots == 2);
  CHECK(r.count_of(keys) == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry awaited: awaited keys with children are evicted from the end of the chain", "[registry]") {
  home r;
  const auto keys = some_keys(1, 3);
  r.fetch(keys);
  CHECK(r.match(ours, {keys[0]}) == 1);
  r.release(ours);
  // The parent is kept by its child, which is awaited.
  for (std::size_t left = 3; left > 0; --left) {
    CHECK(r.count_of(keys) == left);
    for (int i = 0; i < 100 && r.count_of(keys) == left; ++i)
      r.evict(1);
    CHECK_FALSE(r.has(keys[left - 1]));
    CHECK(r.state.check_invariants() == "");
  }
}

} // namespace registry_awaited_test
