#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"

namespace registry_slot_clients_test {

using namespace troupe;
using namespace troupe::test;

// Registry and allocator as slot clients use them: namespaces and ranks are added at run time, without fences.

namespace {

struct slot_client_world : registry_world {
  explicit slot_client_world(std::uint32_t slots = 8) : registry_world(1) {
    spec = small_namespace(0);
    spec.name = "slots";
    id = spec.id();
    CHECK(ask(shards[0], add_namespace_request{spec, {true, true, 4}}).code() == errc::ok);
    allocator_options how;
    how.slots = slots;
    how.first_generation = 40;
    how.rest = std::chrono::seconds(3);
    resting = spawn<allocator>(how, id, rank_number{0}, io_worker_actor{});
    CHECK(ask(resting, bind_atom_v, registry_peers{shards, {}, {}, {}}).code() == errc::ok);
    CHECK(ask(shards[0], add_rank_request{id, 0, slots, resting}).code() == errc::ok);
  }

  allocate_request allocation(std::uint64_t first_key, std::uint32_t count, rank_number rank = 0) const {
    return {id, rank, std::chrono::seconds(30), test_task(count, first_key).keys, {}};
  }

  template <class T>
  static std::vector<errc> codes_of(const T& x) {
    std::vector<errc> out;
    if constexpr (requires { x.results[0].code(); })
      for (const auto& y : x.results)
        out.push_back(y.code());
    else
      for (const auto y : x.results)
        out.push_back(static_cast<errc>(y));
    return out;
  }

  confirm_request pages(const allocate_request& wanted, const reserve_reply& given) const {
    confirm_request out{id, wanted.rank, {}};
    for (std::size_t i = 0; i < given.results.size(); ++i)
      out.pages.items.push_back({wanted.keys[i], {given.results[i].where.slot, 0}});
    return out;
  }

  allocator_stats rested() { return ask(resting, stats_atom_v).value<allocator_stats>(); }

  namespace_spec spec;
  namespace_id id;
  allocator_actor resting;
};

} // namespace

TEST_CASE("slot clients: allocate, confirm, exists, protect, erase", "[registry_actor]") {
  slot_client_world w;
  const auto wanted = w.allocation(0, 3);
  const auto given = w.ask(w.shards[0], wanted).value<reserve_reply>();
  CHECK(w.codes_of(given) == std::vector(3, errc::ok));
  CHECK(w.rested().reserved == 3);
  const exists_request question{w.id, all_ranks, wanted.keys};
  CHECK(w.codes_of(w.ask(w.shards[0], question).value<result_codes>()) == std::vector(3, errc::not_found));
  CHECK(w.codes_of(w.ask(w.shards[0], w.pages(wanted, given)).value<result_codes>()) == std::vector(3, errc::ok));
  CHECK(w.rested().live == 3);
  CHECK(w.codes_of(w.ask(w.shards[0], question).value<result_codes>()) == std::vector(3, errc::ok));
  const protect_request where{w.id, 0, true, std::chrono::seconds(5), wanted.keys};
  const auto found = w.ask(w.shards[0], where).value<locate_reply>();
  CHECK(found.locations[2].where == given.results[2].where);
  CHECK(w.ask(w.shards[0], key_request{w.id, wanted.keys[0]}).value<key_reply>().complete);
  const auto namespaces = w.ask(w.shards[0], describe_request{}).value<describe_reply>().namespaces;
  REQUIRE(namespaces.size() == 2);
  CHECK(namespaces[1].spec == w.spec);
  CHECK(namespaces[1].ranks[0].pages == 3);
  const erase_request gone{w.id, all_ranks, wanted.keys};
  CHECK(w.codes_of(w.ask(w.shards[0], gone).value<result_codes>()) == std::vector(3, errc::ok));
  // Protected: the slots are reclaimed when the protection ends, and then are free.
  CHECK(w.rested().live == 3);
  w.advance(std::chrono::milliseconds(4900));
  CHECK(w.rested().live == 3);
  w.advance(std::chrono::milliseconds(700));
  CHECK(w.rested().free == 8);
}

TEST_CASE("slot clients: a reclaimed slot is quarantined after its deadline", "[registry_actor]") {
  slot_client_world w(2);
  const auto wanted = w.allocation(0, 2);
  const auto given = w.ask(w.shards[0], wanted).value<reserve_reply>();
  const reclaim_request back{w.id, 0, std::vector<slot_number>{given.results[0].where.slot, 77}};
  CHECK(w.codes_of(w.ask(w.shards[0], back).value<result_codes>()) == std::vector{errc::ok, errc::out_of_range});
  CHECK(w.codes_of(w.ask(w.shards[0], w.pages(wanted, given)).value<result_codes>()) ==
        std::vector{errc::not_found, errc::ok});
  w.advance(std::chrono::seconds(29));
  CHECK(w.rested().reserved == 1);
  w.advance(std::chrono::seconds(2));
  CHECK(w.rested().quarantined == 1);
  w.advance(std::chrono::seconds(3));
  CHECK(w.rested().free == 1);
  // The other one is live, and is not what it was given back for: it is suspect, and rests as well.
  const reclaim_request live{w.id, 0, std::vector<slot_number>{given.results[1].where.slot}};
  CHECK(w.codes_of(w.ask(w.shards[0], live).value<result_codes>()) == std::vector{errc::ok});
  CHECK(w.rested().quarantined == 1);
  w.advance(std::chrono::milliseconds(3200));
  CHECK(w.rested().free == 2);
}

TEST_CASE("slot clients: requests for one page wait for the first one and get its slot", "[registry_actor]") {
  slot_client_world w;
  probe slots(w.system());
  CHECK(w.ask(w.shards[0], add_rank_request{w.id, 1, 8, slots.as<allocator_actor>()}).code() == errc::ok);
  const auto first = w.begin(w.shards[0], w.allocation(0, 2, 1));
  const auto second = w.begin(w.shards[0], w.allocation(1, 2, 1));
  const auto third = w.begin(w.shards[0], w.allocation(1, 1, 1));
  auto take = slots.take_one<take_atom, std::uint32_t, duration>();
  CHECK(take.get<std::uint32_t>(1) == 2);
  CHECK_FALSE(w.client().answer_to(first).came);
  CHECK_FALSE(w.client().answer_to(second).came);
  slots.reply(take, caf::make_message(take_reply{std::vector<slot_ref>{{5, 9}, {6, 9}}}));
  w.run();
  const auto one = w.client().answer_to(first).value<reserve_reply>();
  CHECK(one.results[1].where == slot_ref{6, 9});
  CHECK(w.client().answer_to(third).value<reserve_reply>().results[0] == one.results[1]);
  CHECK_FALSE(w.client().answer_to(second).came);
  // The second still wants a slot for its other key; its answer has both.
  take = slots.take_one<take_atom, std::uint32_t, duration>();
  CHECK(take.get<std::uint32_t>(1) == 1);
  SECTION("it is granted") {
    slots.reply(take, caf::make_message(take_reply{std::vector<slot_ref>{{7, 9}}}));
    w.run();
    const auto two = w.client().answer_to(second).value<reserve_reply>();
    CHECK(two.results[0] == one.results[1]);
    CHECK(two.results[1].where == slot_ref{7, 9});
  }
  SECTION("the allocator fails") {
    slots.reply_error(take, errc::internal);
    w.run();
    CHECK(w.codes_of(w.client().answer_to(second).value<reserve_reply>()) == std::vector{errc::ok, errc::full});
  }
}

TEST_CASE("slot clients: requests that wait for another's slot are answered when the registry ends",
          "[registry_actor]") {
  slot_client_world w;
  probe slots(w.system());
  CHECK(w.ask(w.shards[0], add_rank_request{w.id, 1, 8, slots.as<allocator_actor>()}).code() == errc::ok);
  const auto first = w.begin(w.shards[0], w.allocation(0, 2, 1));
  const auto second = w.begin(w.shards[0], w.allocation(1, 2, 1));
  w.end(w.shards[0]);
  CHECK(w.client().answer_to(first).code() == errc::shutting_down);
  CHECK(w.client().answer_to(second).code() == errc::shutting_down);
}

TEST_CASE("slot clients: a full rank evicts unprotected keys", "[registry_actor]") {
  slot_client_world w(4);
  const auto old = w.allocation(0, 4);
  w.ask(w.shards[0], w.pages(old, w.ask(w.shards[0], old).value<reserve_reply>()));
  CHECK(
      w.ask(w.shards[0], protect_request{w.id, 0, false, std::chrono::seconds(60), std::vector{old.keys[0]}}).code() ==
      errc::ok);
  CHECK(w.codes_of(w.ask(w.shards[0], w.allocation(100, 4)).value<reserve_reply>()) ==
        std::vector{errc::ok, errc::ok, errc::ok, errc::full});
  CHECK(w.rested().live == 1);
}

TEST_CASE("slot clients: a small full rank accepts new pages without delay", "[registry_actor]") {
  slot_client_world w(4);
  // No time passes: whatever rested would not be back.
  for (std::uint64_t round = 0; round < 50; ++round) {
    const auto wanted = w.allocation(100 * round, 4);
    const auto given = w.ask(w.shards[0], wanted).value<reserve_reply>();
    REQUIRE(w.codes_of(given) == std::vector(4, errc::ok));
    REQUIRE(w.codes_of(w.ask(w.shards[0], w.pages(wanted, given)).value<result_codes>()) == std::vector(4, errc::ok));
  }
}

TEST_CASE("slot clients: clearing and removing a namespace releases its slots", "[registry_actor]") {
  slot_client_world w;
  const auto wanted = w.allocation(0, 5);
  w.ask(w.shards[0], w.pages(wanted, w.ask(w.shards[0], wanted).value<reserve_reply>()));
  const auto cleared = w.ask(w.shards[0], clear_request{w.id, 0, 0}).value<clear_reply>();
  CHECK(cleared.pages == 5);
  CHECK_FALSE(cleared.more);
  CHECK(w.rested().free == 8);
  CHECK(w.ask(w.shards[0], w.allocation(0, 2)).code() == errc::ok);
  CHECK(w.ask(w.shards[0], remove_namespace_request{w.id, false}).code() == errc::busy);
  CHECK_FALSE(w.ask(w.shards[0], remove_namespace_request{w.id, true}).value<remove_namespace_reply>().more);
  CHECK(w.rested().reserved == 0);
  CHECK(w.ask(w.shards[0], w.allocation(0, 2)).code() == errc::unknown_namespace);
  w.advance(std::chrono::seconds(4));
  CHECK(w.rested().free == 8);
}

TEST_CASE("slot clients: pages of an earlier run are restored in registry and allocator", "[registry_actor]") {
  registry_world w(8);
  const auto keys = test_task(3).keys;
  CHECK(w.ask(w.shards[0], add_rank_request{w.ns_id, 0, 8, w.allocators[0]}).code() == errc::ok);
  restore_request stored;
  slot_batch slots;
  for (std::uint32_t i = 0; i < 3; ++i) {
    stored.pages.items.push_back({w.ns_id, keys[i], i > 0 ? keys[i - 1] : key_digest{}, {i + 2, 5}, 0, 0});
    slots.slots.items.push_back({i + 2, 5});
  }
  const auto codes = w.ask(w.shards[0], stored).value<result_codes>();
  CHECK(codes.results.items == std::vector<std::uint8_t>(3, 0));
  CHECK(w.ask(w.shards[0], restored_atom_v).value<restore_report>().keys == 3);
  CHECK(w.ask(w.allocators[0], restore_atom_v, slots).value<slot_results>().results.items ==
        std::vector<std::uint8_t>(3, 0));
  CHECK(w.ask(w.allocators[0], restored_atom_v).value<slot_batch>().slots.empty());
  CHECK(w.ask(w.shards[0], stored).code() == errc::invalid_argument);
  CHECK(w.slots().live == 3);
  CHECK(w.slots().free == 5);
  CHECK(w.matched(0, 3) == 3);
  w.check_conservation();
}

} // namespace registry_slot_clients_test
