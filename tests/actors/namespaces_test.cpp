#include "actors/node/namespaces/namespaces.hpp"
#include "base/size_text.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <set>

namespace namespaces_test {

using namespace troupe;
using namespace troupe::test;

// Namespaces and ranks at run time, beside one of the config, over real shards and allocators.

namespace {

constexpr std::uint64_t limit = 1 << 20;

struct namespaces_world : registry_world {
  /// `observed`: `third` is a shard as well.
  explicit namespaces_world(bool observed = false) : registry_world(8, 2) {
    namespaces_config how;
    how.shards = shards;
    if (observed)
      how.shards.push_back(third.as<registry_actor>());
    how.rest = std::chrono::seconds(3);
    how.longest_promise = std::chrono::seconds(5);
    how.memory = memory;
    how.own = {ns};
    for (std::size_t rank = 0; rank < allocators.size(); ++rank)
      how.own_ranks.push_back({ns_id, static_cast<rank_number>(rank), 8, allocators[rank]});
    for (const auto& shard : shards)
      for (const auto& x : how.own_ranks)
        REQUIRE(ask(shard, add_rank_request{x.ns, x.rank, x.slots, x.allocator}).code() == errc::ok);
    ns_actor = spawn<namespaces>(how, std::vector<add_namespace_request>{}, std::vector<known_rank>{});
    spec = small_namespace(0);
    spec.name = "engines";
    id = spec.id();
  }

  void make() { REQUIRE(ask(ns_actor, add_namespace_request{spec, {true, true, 4}}).code() == errc::ok); }
  answer add_rank(rank_number rank, std::uint32_t slots) {
    return ask(ns_actor, register_rank_request{id, rank, slots});
  }

  /// Asks in a world that is observed; what the third shard was asked, which agrees or says this.
  template <class Asked, class Request>
  std::pair<answer, Asked> ask_observed(const Request& x, errc says = errc::ok) {
    const auto number = begin(ns_actor, x);
    const auto asked = third.take_one<Asked>();
    if (says == errc::ok)
      third.reply(asked, caf::make_message());
    else
      third.reply_error(asked, says);
    run();
    return {client().answer_to(number), asked.template get<Asked>(0)};
  }

  template <class Request>
  void at_all_shards(const Request& x) {
    for (const auto& shard : shards)
      REQUIRE(ask(shard, x).code() == errc::ok);
  }

  /// Keys of one shard.
  std::vector<key_digest> keys_of(std::uint32_t shard, std::size_t count, std::uint64_t first = 0) const {
    std::vector<key_digest> out;
    for (std::uint64_t n = first; out.size() < count; ++n)
      if (const auto key = test_task(1, n).keys[0]; shard_of(key, 2) == shard)
        out.push_back(key);
    return out;
  }

  std::vector<location> allocate(std::uint32_t shard, std::vector<key_digest> keys) {
    return ask(shards[shard], allocate_request{id, 0, std::chrono::seconds(5), std::move(keys), {}})
        .value<reserve_reply>()
        .results.items;
  }

  /// Allocates and confirms; the slots.
  std::set<slot_number> save(std::uint32_t shard, const std::vector<key_digest>& keys) {
    confirm_request written{id, 0, {}};
    std::set<slot_number> out;
    const auto given = allocate(shard, keys);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      REQUIRE(given[i].code() == errc::ok);
      written.pages.items.push_back({keys[i], {given[i].where.slot, 0}});
      out.insert(given[i].where.slot);
    }
    const auto confirmed = ask(shards[shard], written);
    for (const auto code : confirmed.value<result_codes>().results)
      REQUIRE(code == 0);
    return out;
  }

  std::uint64_t slots_known() {
    return ask(shards[0], describe_request{id}).value<describe_reply>().namespaces.at(0).ranks[0].slots;
  }

  probe third{system()};
  shared_budget memory = std::make_shared<memory_budget>(limit);
  namespaces_actor ns_actor;
  namespace_spec spec;
  namespace_id id;
};

} // namespace

TEST_CASE("namespaces: creating a config namespace again keeps its allocators and pages",
          "[namespaces][registry_actor]") {
  namespaces_world w;
  const auto keys = w.keys_of(0, 4);
  const auto reserve = [&](std::uint64_t number, const std::vector<key_digest>& wanted) {
    return w.ask(w.shards[0], reserve_request{w.ns_id, 0, w.ticket_of(number), std::chrono::seconds(5), wanted, {}})
        .value<reserve_reply>();
  };
  finish_request written{w.ns_id, 0, w.ticket_of(1), {}};
  const auto granted = reserve(1, keys);
  std::set<slot_number> live;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    written.pages.items.push_back({keys[i], granted.results[i].where});
    live.insert(granted.results[i].where.slot);
  }
  REQUIRE(w.codes_of(w.ask(w.shards[0], commit_atom_v, written).value<finish_reply>()) == std::vector(4, errc::ok));

  CHECK(w.ask(w.ns_actor, add_namespace_request{w.ns, {}}).code() == errc::ok);
  CHECK(w.ask(w.ns_actor, register_rank_request{w.ns_id, 0, 8}).code() == errc::ok);
  for (const auto& x : reserve(2, w.keys_of(0, 2, 1000)).results) {
    CHECK(x.code() == errc::ok);
    CHECK_FALSE(live.contains(x.where.slot));
  }
  CHECK(w.slots().live == 4);

  // The error names the difference.
  auto other = w.ns;
  other.dtype = "fp8";
  const auto different = w.ask(w.ns_actor, add_namespace_request{other, {}});
  CHECK(different.code() == errc::identity_mismatch);
  CHECK(different.failure.text.find("dtype") != std::string::npos);
  const auto with_index = w.ask(w.ns_actor, add_namespace_request{w.ns, {false, true, 64}});
  CHECK(with_index.code() == errc::identity_mismatch);
  CHECK(with_index.failure.text.find("slot_index") != std::string::npos);
  const auto resized = w.ask(w.ns_actor, register_rank_request{w.ns_id, 0, 9});
  CHECK(resized.code() == errc::identity_mismatch);
  CHECK(resized.failure.text.find("storage.ranks") != std::string::npos);
  CHECK(w.ask(w.ns_actor, register_rank_request{w.ns_id, 1, 8}).code() == errc::out_of_range);
  for (const bool force : {false, true}) {
    const auto removed = w.ask(w.ns_actor, remove_namespace_request{w.ns_id, force});
    CHECK(removed.code() == errc::not_owner);
    CHECK(removed.failure.text.find("config") != std::string::npos);
  }
  CHECK(w.counts().keys >= 4);
}

TEST_CASE("namespaces: a shard refuses a second allocator for a rank and a second set of peers",
          "[namespaces][registry_actor]") {
  namespaces_world w;
  probe other(w.system());
  CHECK(w.ask(w.shards[0], add_rank_request{w.ns_id, 0, 8, w.allocators[0]}).code() == errc::ok);
  CHECK(w.ask(w.shards[0], add_rank_request{w.ns_id, 0, 8, other.as<allocator_actor>()}).code() ==
        errc::identity_mismatch);
  const registry_peers peers{w.shards, {other.as<allocator_actor>()}, {w.ns_id}, {0}};
  CHECK(w.ask(w.shards[0], bind_atom_v, peers).code() == errc::exists);
  CHECK(w.ask(w.allocators[0], bind_atom_v, peers).code() == errc::exists);
  w.ask(w.shards[0], reserve_request{w.ns_id, 0, w.ticket_of(1), std::chrono::seconds(5), w.keys_of(0, 2), {}});
  CHECK(other.take<take_atom, std::uint32_t, duration>().empty());
  CHECK(w.slots().reserved == 2);
}

TEST_CASE("namespaces: removing a namespace releases the memory of its ranks", "[namespaces][memory]") {
  namespaces_world w;
  const auto before = w.memory->used();
  for (int round = 0; round < 3; ++round) {
    w.make();
    REQUIRE(w.add_rank(0, 1000).code() == errc::ok);
    CHECK(w.memory->used() == before + bytes_of_slots(1000, 2));
    w.save(0, w.keys_of(0, 3));
    CHECK(w.ask(w.ns_actor, remove_namespace_request{w.id, true}).code() == errc::ok);
    w.advance(std::chrono::seconds(1));
    CHECK(w.memory->used() == before);
  }
}

TEST_CASE("namespaces: a rank that exceeds the memory is refused with numbers and has no effect",
          "[namespaces][memory]") {
  namespaces_world w;
  w.make();
  const auto most = static_cast<std::uint32_t>(memory_budget::lasting_part(limit) / bytes_of_slots(1, 2));
  REQUIRE(w.add_rank(0, most / 2).code() == errc::ok);
  const auto used = w.memory->used();
  const auto refused = w.add_rank(1, most);
  CHECK(refused.code() == errc::no_memory);
  for (const auto& part : {size_text(limit), size_text(used), size_text(bytes_of_slots(most, 2))})
    CHECK(refused.failure.text.find(part) != std::string::npos);
  CHECK(w.memory->used() == used);
  CHECK(w.add_rank(1, most / 4).code() == errc::ok);
  CHECK(w.add_rank(0, most / 2).code() == errc::ok);
  // Refused by the shards, after the memory was taken.
  CHECK(w.add_rank(4, 10).code() == errc::out_of_range);
  w.advance(std::chrono::seconds(1));
  CHECK(w.memory->used() == used + bytes_of_slots(most / 4, 2));
}

TEST_CASE("namespaces: a cleared rank can be registered with another number of slots", "[namespaces][memory]") {
  namespaces_world w;
  w.make();
  REQUIRE(w.add_rank(0, 4).code() == errc::ok);
  const auto keys = w.keys_of(0, 3);
  w.save(0, keys);
  const auto refused = w.add_rank(0, 6);
  CHECK(refused.code() == errc::identity_mismatch);
  CHECK(refused.failure.text.find("clear") != std::string::npos);
  // All is as before.
  CHECK(w.slots_known() == 4);
  CHECK(w.save(1, w.keys_of(1, 1)).size() == 1);
  for (const auto& shard : w.shards)
    CHECK(w.ask(shard, clear_request{w.id, all_ranks, 0}).code() == errc::ok);

  SECTION("when nothing holds a slot any more") {
    REQUIRE(w.add_rank(0, 6).code() == errc::ok);
    CHECK(w.slots_known() == 6);
    CHECK(w.save(1, w.keys_of(1, 6, 500)).size() == 6);
    w.advance(std::chrono::seconds(1));
    CHECK(w.memory->used() == bytes_of_slots(6, 2));
    CHECK(w.add_rank(0, 6).code() == errc::ok);
  }
  SECTION(
      "while a writer is active: it is refused, and no slot is granted until its deadline and the rest have passed") {
    const auto more = w.keys_of(0, 1, 900);
    const auto given = w.allocate(0, more);
    REQUIRE(w.add_rank(0, 6).code() == errc::ok);
    CHECK(w.slots_known() == 6);
    const auto late =
        w.ask(w.shards[0], confirm_request{w.id, 0, std::vector<page_ref>{{more[0], {given[0].where.slot, 0}}}})
            .value<result_codes>();
    CHECK(late.results[0] != static_cast<std::uint8_t>(errc::ok));
    CHECK(w.allocate(0, w.keys_of(0, 1, 700))[0].code() == errc::full);
    w.advance(std::chrono::seconds(4));
    CHECK(w.allocate(0, w.keys_of(0, 1, 710))[0].code() == errc::full);
    w.advance(std::chrono::seconds(5));
    CHECK(w.save(1, w.keys_of(1, 6, 720)).size() == 6);
  }
  SECTION("while a slot is quarantined for a late writer: no slot is granted until the rest has passed") {
    const auto slots = w.save(0, w.keys_of(0, 1, 900));
    for (const auto& shard : w.shards)
      CHECK(w.ask(shard, reclaim_request{w.id, 0, std::vector<slot_number>{*slots.begin()}}).code() == errc::ok);
    w.at_all_shards(clear_request{w.id, all_ranks, 0});
    REQUIRE(w.add_rank(0, 6).code() == errc::ok);
    CHECK(w.slots_known() == 6);
    CHECK(w.allocate(0, w.keys_of(0, 1, 700))[0].code() == errc::full);
    w.advance(std::chrono::seconds(9));
    CHECK(w.save(1, w.keys_of(1, 6, 720)).size() == 6);
  }
}

TEST_CASE("namespaces: a rank that only some shards added is added to the others with the same allocator",
          "[namespaces]") {
  namespaces_world w(true);
  const add_namespace_request made{w.spec, {true, true, 4}};
  REQUIRE(w.ask_observed<add_namespace_request>(made).first.code() == errc::ok);
  const register_rank_request wanted{w.id, 0, 4};
  const auto [refused, asked] = w.ask_observed<add_rank_request>(wanted, errc::limit_exceeded);
  CHECK(refused.code() == errc::limit_exceeded);
  // The others may have given slots away already.
  CHECK(w.save(0, w.keys_of(0, 2)).size() == 2);
  const auto [taken, again] = w.ask_observed<add_rank_request>(wanted);
  CHECK(taken.code() == errc::ok);
  CHECK(again.allocator == asked.allocator);
  CHECK(w.save(0, w.keys_of(0, 2, 500)).size() == 2);
}

TEST_CASE("namespaces: a namespace that one shard refuses to remove stays on all shards", "[namespaces]") {
  namespaces_world w;
  w.make();
  REQUIRE(w.add_rank(0, 4).code() == errc::ok);
  const auto stored = w.keys_of(0, 1);
  w.save(0, stored);
  // A reservation, in one shard.
  const auto written = w.keys_of(1, 1);
  const auto slot = w.allocate(1, written).at(0).where.slot;
  const auto refused = w.ask(w.ns_actor, remove_namespace_request{w.id, false});
  CHECK(refused.code() == errc::busy);
  CHECK(refused.failure.text.find("1 reservations") != std::string::npos);
  for (const auto& shard : w.shards)
    CHECK(w.ask(shard, describe_request{w.id}).code() == errc::ok);
  const exists_request there{w.id, all_ranks, stored};
  CHECK(w.ask(w.shards[0], there).value<result_codes>().results[0] == 0);
  // It ends, and all of it goes.
  CHECK(w.ask(w.shards[1], confirm_request{w.id, 0, std::vector<page_ref>{{written[0], {slot, 0}}}}).code() ==
        errc::ok);
  CHECK(w.ask(w.ns_actor, remove_namespace_request{w.id, false}).code() == errc::ok);
  for (const auto& shard : w.shards)
    CHECK(w.ask(shard, describe_request{w.id}).code() == errc::unknown_namespace);
}

TEST_CASE("namespaces: the death of an allocator ends the actor because its slots are lost", "[namespaces]") {
  namespaces_world w(true);
  const add_namespace_request made{w.spec, {true, true, 4}};
  REQUIRE(w.ask_observed<add_namespace_request>(made).first.code() == errc::ok);
  const register_rank_request wanted{w.id, 0, 4};
  const auto allocator = w.ask_observed<add_rank_request>(wanted).second.allocator;
  SECTION("but not when its namespace was removed") {
    const auto number = w.begin(w.ns_actor, remove_namespace_request{w.id, true});
    w.third.reply(w.third.take_one<remove_namespace_request>(), caf::make_message(remove_namespace_reply{false}));
    w.run();
    CHECK(w.client().answer_to(number).code() == errc::ok);
    CHECK(w.ask(w.ns_actor, wanted).code() == errc::unknown_namespace);
    CHECK(w.ask(allocator, stats_atom_v).code() == errc::unreachable);
  }
  SECTION("for whatever reason") {
    caf::anon_send_exit(allocator, caf::exit_reason::kill);
    w.run();
    CHECK(w.ask(w.ns_actor, wanted).code() == errc::unreachable);
  }
}

} // namespace namespaces_test
