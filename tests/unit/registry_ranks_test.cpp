#include "actors/node/registry/rank_table.hpp"
#include "tests/catch.hpp"
#include "tests/unit/registry_slot_client_support.hpp"

namespace registry_ranks_test {

using namespace troupe;
using namespace troupe::test;

// The allocator of a rank, changes of its slots, and the memory for keys.

namespace {

errc code_of(const result<void>& x) {
  return x ? errc::ok : x.error().code;
}

} // namespace

TEST_CASE("registry ranks: a rank never gets a second allocator while it has one", "[registry]") {
  rank_table<int> table;
  const namespace_id a{1, 1};
  const namespace_id b{1, 2};
  CHECK(table.find(a, 0) == nullptr);
  REQUIRE(table.check(a, 0, 7));
  table.add(a, 0, 7);
  CHECK(table.check(a, 0, 7).has_value());
  const auto other = table.check(a, 0, 8);
  REQUIRE(code_of(other) == errc::identity_mismatch);
  CHECK(other.error().text.find("rank 0") != std::string::npos);
  table.add(a, 0, 8);
  CHECK(*table.find(a, 0) == 7);
  table.add(a, static_cast<rank_number>(-1), 9);
  table.add(b, 0, 10);
  table.remove(a, 0);
  CHECK(table.check(a, 0, 8).has_value());
  CHECK(table.size() == 2);
  table.remove(a);
  CHECK(table.size() == 1);
  CHECK(*table.find(b, 0) == 10);
}

TEST_CASE("registry ranks: an empty rank can be registered with another number of slots", "[registry]") {
  slot_client_registry r(2, {}, {true, true, 4}, 100);
  const auto keys = some_keys(1, 3);
  r.save(keys, 0);
  CHECK(code_of(r.state.add_rank(r.ns, 0, 50)) == errc::identity_mismatch);
  const auto live = r.state.retire_rank(r.ns, 0, at(0));
  REQUIRE(code_of(live) == errc::identity_mismatch);
  CHECK(live.error().text.find("3 of them with pages") != std::string::npos);
  // Another rank is another matter; that it is empty is not enough.
  CHECK(code_of(r.state.retire_rank(r.ns, 1, at(0))) == errc::identity_mismatch);
  REQUIRE(r.state.clear({r.ns, 1, 0}, at(0)));
  REQUIRE(code_of(r.state.retire_rank(r.ns, 1, at(0))) == errc::ok);
  CHECK(code_of(r.state.add_rank(r.ns, 1, 70)) == errc::ok);
  CHECK(r.info().ranks[1].slots == 70);

  REQUIRE(r.state.clear({r.ns, all_ranks, 0}, at(0)).value().pages == 3);
  REQUIRE(code_of(r.state.retire_rank(r.ns, 0, at(0))) == errc::ok);
  CHECK(code_of(r.state.retire_rank(r.ns, 0, at(0))) == errc::ok);
  REQUIRE(code_of(r.state.add_rank(r.ns, 0, 50)) == errc::ok);
  CHECK(r.info().ranks[0].slots == 50);
  // With its new slots it has to be cleared again.
  CHECK(code_of(r.state.retire_rank(r.ns, 0, at(0))) == errc::identity_mismatch);
  CHECK(r.confirm({{key_of(5), 60}}) == codes_t{errc::out_of_range});
  CHECK(code_of(r.state.retire_rank(r.ns, 3, at(0))) == errc::out_of_range);
  CHECK(code_of(r.state.retire_rank({9, 9}, 0, at(0))) == errc::unknown_namespace);
  CHECK(r.state.check_invariants().empty());
}

TEST_CASE("registry ranks: a rank that is registered again drops the promises on its old slots", "[registry]") {
  slot_client_registry r(2, {}, {true, true, 4}, 100);
  r.save(some_keys(1, 2));
  r.protect(some_keys(1, 2), 0, 5000);
  REQUIRE(r.state.clear({r.ns, all_ranks, 0}, at(0)).value().pages == 2);
  const auto keys = some_keys(9, 2);
  const auto other = r.allocate(keys, 1);
  const auto given = r.allocate(keys);
  r.given_back();
  REQUIRE(code_of(r.state.retire_rank(r.ns, 0, at(0))) == errc::ok);
  CHECK(r.state.is_retired(r.ns, 0));
  // None is free: writers and readers may be late, and another shard may refuse.
  CHECK(r.given_back().empty());
  CHECK(r.info().ranks[0].reserved == 0);
  CHECK(r.info().ranks[0].withheld == 4);
  REQUIRE(code_of(r.state.add_rank(r.ns, 0, 50, 7)) == errc::ok);
  CHECK_FALSE(r.state.is_retired(r.ns, 0));
  CHECK(r.given_back().empty());
  CHECK(r.info().ranks[0].withheld == 0);
  CHECK(r.state.check_invariants().empty());

  // Confirmations and releases of the old writer are refused, alone and while others write the same keys elsewhere.
  const auto late = [&] {
    CHECK(r.confirm({{keys[0], given[0].where.slot}})[0] != errc::ok);
    CHECK(r.reclaim({given[1].where.slot})[0] != errc::ok);
    CHECK(r.exists(keys, 0) == codes_t(2, errc::not_found));
  };
  late();
  r.granted[0] = 40;
  const auto fresh = r.allocate(keys);
  late();
  CHECK(r.confirm({{keys[0], fresh[0].where.slot}, {keys[1], fresh[1].where.slot}}) == codes_t(2, errc::ok));
  CHECK(r.exists(keys, 0) == codes_t(2, errc::ok));
  // Another rank is none of its business.
  CHECK(r.confirm({{keys[0], other[0].where.slot}, {keys[1], other[1].where.slot}}, 1) == codes_t(2, errc::ok));
  r.tick(20);
  CHECK(r.given_back().empty());
  CHECK(r.state.check_invariants().empty());
}

TEST_CASE("registry ranks: a rank that keeps its allocator after all releases no slot early", "[registry]") {
  slot_client_registry r(1, {}, {true, true, 4}, 100);
  const auto notified = r.save(some_keys(1, 2));
  r.protect(some_keys(1, 2), 0, 5000);
  REQUIRE(r.state.clear({r.ns, all_ranks, 0}, at(0)).value().pages == 2);
  const auto given = r.allocate(some_keys(9, 1), 0, 0, 3);
  r.given_back();
  REQUIRE(code_of(r.state.retire_rank(r.ns, 0, at(1))) == errc::ok);
  // Another shard has refused: it has a page.
  REQUIRE(code_of(r.state.add_rank(r.ns, 0, 100)) == errc::ok);
  CHECK_FALSE(r.state.is_retired(r.ns, 0));
  CHECK(r.confirm({{some_keys(9, 1)[0], given[0].where.slot}}, 0, 1)[0] != errc::ok);
  r.tick(2);
  CHECK(r.given_back().empty());
  r.tick(3);
  CHECK(r.rest_and_free() == std::pair{slots_t{given[0].where.slot}, slots_t{}});
  r.tick(6);
  auto [resting, free] = r.rest_and_free();
  std::ranges::sort(free);
  CHECK(resting.empty());
  CHECK(free == notified);
  CHECK(r.info().ranks[0].withheld == 0);
  CHECK(r.state.check_invariants().empty());
}

TEST_CASE("registry ranks: a rank that is registered again takes no slots that were requested before", "[registry]") {
  slot_client_registry r(1, {}, {true, true, 4}, 100);
  REQUIRE(r.state.clear({r.ns, all_ranks, 0}, at(0)));
  const auto keys = some_keys(1, 2);
  const auto asked = r.begin(keys).value();
  REQUIRE(asked.what == reserve_plan::kind::needs_slots);
  const reserve_request with_ticket{r.ns, 0, {5, 1}, std::chrono::seconds(5), some_keys(20, 1), {}};
  const auto owned = r.state.begin_reserve(with_ticket, at(0)).value();
  const auto owned_slot = r.fresh_slots(1);
  REQUIRE(r.state.finish_reserve(owned.plan, owned_slot, at(0)));
  REQUIRE(code_of(r.state.retire_rank(r.ns, 0, at(0))) == errc::ok);
  CHECK(r.given_back().empty());
  REQUIRE(code_of(r.state.add_rank(r.ns, 0, 50, 7)) == errc::ok);
  // The allocator gets the requested slots back from the requester.
  const auto late = r.state.finish_reserve(asked.plan, {}, at(1));
  REQUIRE_FALSE(late);
  CHECK(late.error().code == errc::expired);
  finish_request commit{r.ns, 0, {5, 1}, {}};
  commit.pages.items.push_back({some_keys(20, 1)[0], owned_slot[0]});
  CHECK(r.state.commit(commit, at(1)).value().results[0] == static_cast<std::uint8_t>(errc::expired));
  CHECK(r.allocate(keys, 0, 1)[0].code() == errc::ok);
  CHECK(r.state.check_invariants().empty());
}

TEST_CASE("registry ranks: a rank keeps its slots while leases hold any of them, since leases can be renewed",
          "[registry]") {
  slot_client_registry r(1, {}, {true, true, 4}, 100);
  const auto keys = some_keys(1, 2);
  r.save(keys);
  const ticket lease{5, 1};
  REQUIRE(r.state.locate({r.ns, 0, lease, std::chrono::seconds(5), keys}, at(0)));
  REQUIRE(r.state.clear({r.ns, all_ranks, 0}, at(0)).value().pages == 2);
  const auto refused = r.state.retire_rank(r.ns, 0, at(0));
  REQUIRE(code_of(refused) == errc::busy);
  CHECK(refused.error().text.find("2 slots whose keys are leased") != std::string::npos);
  REQUIRE(r.state.release({r.ns, lease, 0, 0, true}, at(0)));
  CHECK(code_of(r.state.retire_rank(r.ns, 0, at(0))) == errc::ok);
}

TEST_CASE("registry ranks: keys beyond the memory replace evictable ones or are answered full", "[registry][memory]") {
  registry_options how;
  how.memory = std::make_shared<memory_budget>(std::uint64_t{1} << 20);
  one_registry r(1, how);
  // More than fits, in batches.
  std::uint64_t first = 1;
  for (; how.memory->has_room(64 * 1024); first += 512)
    REQUIRE(r.save(some_keys(first, 512)).size() == 512);
  CHECK(r.state.stats().keys == first - 1);
  for (int i = 0; i < 40; ++i, first += 512)
    REQUIRE(r.save(some_keys(first, 512)).size() == 512);
  CHECK(r.state.stats().evicted_keys > 0);
  CHECK(how.memory->used() < how.memory->limit() + 128 * 1024);

  // Leased keys cannot go.
  const auto there = r.state.stats().keys;
  std::vector<key_digest> all;
  r.state.for_each_key(r.ns, [&](const key_info& x) { all.push_back(x.key); });
  for (std::size_t at = 0; at < all.size(); at += 8000)
    r.locate(r.next_ticket(), {all.begin() + static_cast<std::ptrdiff_t>(at),
                               all.begin() + static_cast<std::ptrdiff_t>(std::min(at + 8000, all.size()))});
  r.state.tick(at(0));
  const auto before = how.memory->used();
  for (int i = 0; i < 40; ++i, first += 512) {
    const auto reply = r.reserve(r.next_ticket(), some_keys(first, 512));
    for (const auto code : codes(reply.results))
      CHECK((code == errc::full || code == errc::ok));
    CHECK((i < 39 || codes(reply.results) == std::vector(512, errc::full)));
  }
  r.state.tick(at(0));
  CHECK(r.state.stats().keys == there);
  CHECK(how.memory->used() < before + 128 * 1024);
  CHECK(r.state.check_invariants().empty());
}

TEST_CASE("registry ranks: leases are refused when the memory is used up and granted when it is free again",
          "[registry][memory]") {
  registry_options how;
  how.memory = std::make_shared<memory_budget>(std::uint64_t{1} << 20);
  one_registry r(1, how);
  const auto keys = some_keys(1, 10);
  r.save(keys);
  // Whatever ranks and keys take, readers go on; not so when leases themselves have taken the rest.
  const auto lasting = memory_budget::lasting_part(how.memory->limit()) - how.memory->used();
  how.memory->take_anyway(lasting);
  CHECK_FALSE(how.memory->has_room(1));
  CHECK(r.state.locate({r.ns, 0, r.next_ticket(), std::chrono::seconds(10), keys}, at(0)));
  const auto room = how.memory->limit() - how.memory->used();
  how.memory->take_anyway(room);
  const auto refused = r.state.locate({r.ns, 0, r.next_ticket(), std::chrono::seconds(10), keys}, at(0));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::limit_exceeded);
  CHECK(refused.error().text.find("registry.memory_bytes") != std::string::npos);
  how.memory->give_back(room);
  CHECK(r.state.locate({r.ns, 0, r.next_ticket(), std::chrono::seconds(10), keys}, at(0)));
}

TEST_CASE("registry ranks: a removed namespace releases its memory", "[registry][memory]") {
  registry_options how;
  how.memory = std::make_shared<memory_budget>(std::uint64_t{64} << 20);
  registry_state state(how);
  const auto before = how.memory->used();
  for (int round = 0; round < 5; ++round) {
    const auto spec = namespace_of(1, "n" + std::to_string(round));
    must(state.add_namespace(spec));
    for (std::uint64_t first = 1; first < 20'000; first += 1000) {
      const auto plan =
          state.begin_reserve({spec.id(), 0, {1, first}, std::chrono::seconds(5), some_keys(first, 1000), {}}, at(0))
              .value();
      std::vector<slot_ref> slots;
      for (slot_number i = 0; i < plan.slots_needed; ++i)
        slots.push_back({static_cast<slot_number>(first) + i, 1});
      REQUIRE(state.finish_reserve(plan.plan, slots, at(0)));
    }
    CHECK(how.memory->used() > before + 20'000 * 56);
    while (state.remove_namespace({spec.id(), true}, at(0)).value().more)
      state.take_outbox();
    state.tick(at(0));
    CHECK(how.memory->used() < before + (std::uint64_t{4} << 20));
  }
}

} // namespace registry_ranks_test
