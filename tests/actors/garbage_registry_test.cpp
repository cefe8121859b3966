#include "tests/actors/garbage_support.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <vector>

namespace garbage_registry_test {

using namespace troupe;
using namespace troupe::test;

/// Registry shards and allocators answer whatever they are asked, and keep their counts.

namespace {

constexpr owner_id owners[] = {0, 7, 8, 9};

packed<key_digest> many_keys(std::size_t count) {
  std::vector<key_digest> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(key(5000 + i));
  return out;
}

packed<page_ref> pages_of(const packed<key_digest>& keys) {
  std::vector<page_ref> out;
  for (const auto& x : keys)
    out.push_back({x, {0, 1}});
  return out;
}

} // namespace

TEST_CASE("garbage: a registry shard refuses invalid requests with a reason", "[garbage][registry_actor]") {
  quiet_log quiet;
  registry_world w;
  const auto keys = test_task(3).keys;
  const auto second = std::chrono::seconds(1);
  const auto name = w.ticket_of(1);
  const namespace_id strange{4, 2};
  const packed<key_digest> with_null{std::vector{key(1), key_digest{}}};
  const std::vector<duration> bad_times{duration::zero(), duration(-1), duration::min(), duration::max()};
  const auto code_of = [&](auto... xs) {
    const auto answered = w.ask(w.shards[0], xs...);
    CHECK(answered.came);
    CHECK_FALSE(answered.failure.text.empty());
    return answered.code();
  };
  std::uint64_t asked = 0;
  const auto refuses = [&](errc expected, auto... xs) {
    CHECK(code_of(xs...) == expected);
    ++asked;
  };

  refuses(errc::unknown_namespace, match_request{strange, name, second, keys});
  refuses(errc::unknown_namespace, locate_request{{}, 0, name, second, keys});
  refuses(errc::unknown_namespace, release_request{strange, name, 0});
  refuses(errc::unknown_namespace, renew_request{strange, name, second});
  refuses(errc::unknown_namespace, reserve_request{strange, 0, name, second, keys, {}});
  refuses(errc::unknown_namespace, commit_atom_v, finish_request{strange, 0, name, pages_of(keys)});
  refuses(errc::unknown_namespace, abort_atom_v, finish_request{strange, 0, name, {}});
  refuses(errc::unknown_namespace, invalidate_request{strange, 0, pages_of(keys)});
  refuses(errc::unknown_namespace, children_request{strange, {}});
  refuses(errc::unknown_namespace, evict_request{strange, 0, 1});
  for (const rank_number rank : {1U, ~0U}) {
    refuses(errc::out_of_range, locate_request{w.ns_id, rank, name, second, keys});
    refuses(errc::out_of_range, reserve_request{w.ns_id, rank, name, second, keys, {}});
    refuses(errc::out_of_range, commit_atom_v, finish_request{w.ns_id, rank, name, pages_of(keys)});
    refuses(errc::out_of_range, abort_atom_v, finish_request{w.ns_id, rank, name, pages_of(keys)});
    refuses(errc::out_of_range, invalidate_request{w.ns_id, rank, pages_of(keys)});
    refuses(errc::out_of_range, evict_request{w.ns_id, rank, 1});
  }
  refuses(errc::invalid_argument, match_request{w.ns_id, {}, second, keys});
  refuses(errc::invalid_argument, locate_request{w.ns_id, 0, {0, 5}, second, keys});
  refuses(errc::invalid_argument, release_request{w.ns_id, {0, 5}, 0});
  refuses(errc::invalid_argument, reserve_request{w.ns_id, 0, {0, 5}, second, keys, {}});
  refuses(errc::invalid_argument, match_request{w.ns_id, name, second, with_null});
  refuses(errc::invalid_argument, reserve_request{w.ns_id, 0, name, second, with_null, {}});
  refuses(errc::invalid_argument, commit_atom_v, finish_request{w.ns_id, 0, name, pages_of(with_null)});
  for (const auto parents : {2U, 4U})
    refuses(errc::invalid_argument, reserve_request{w.ns_id, 0, name, second, keys, test_task(parents, 50).keys});
  refuses(errc::invalid_argument, reserve_request{w.ns_id, 0, name, second, keys, keys}); // own parents
  for (const auto time : bad_times) {
    refuses(errc::invalid_argument, match_request{w.ns_id, name, time, keys});
    refuses(errc::invalid_argument, locate_request{w.ns_id, 0, name, time, keys});
    refuses(errc::invalid_argument, renew_request{w.ns_id, name, time});
    refuses(errc::invalid_argument, reserve_request{w.ns_id, 0, name, time, keys, {}});
  }
  const auto too_many = many_keys(2 * registry_options{}.max_batch);
  refuses(errc::limit_exceeded, match_request{w.ns_id, name, second, too_many});
  refuses(errc::limit_exceeded, locate_request{w.ns_id, 0, name, second, too_many});
  refuses(errc::limit_exceeded, reserve_request{w.ns_id, 0, name, second, too_many, {}});
  refuses(errc::limit_exceeded, commit_atom_v, finish_request{w.ns_id, 0, name, pages_of(too_many)});
  refuses(errc::limit_exceeded, abort_atom_v, finish_request{w.ns_id, 0, name, pages_of(too_many)});
  refuses(errc::limit_exceeded, invalidate_request{w.ns_id, 0, pages_of(too_many)});
  registry_peers uneven;
  uneven.allocators = w.allocators;
  CHECK(code_of(bind_atom_v, uneven) == errc::invalid_argument);

  CHECK(w.counts().refused == asked);
  CHECK(w.counts().keys == 0);
  CHECK(w.counts().leases == 0);
  CHECK(w.counts().reservations == 0);
  CHECK(w.slots().free == 8);
  w.store(3, 0, 3);
  CHECK(w.matched(0, 3) == 3);
}

TEST_CASE("garbage: a registry shard answers empty and repeated keys", "[garbage][registry_actor]") {
  registry_world w;
  const auto second = std::chrono::seconds(1);
  CHECK(w.ask(w.shards[0], match_request{w.ns_id, w.ticket_of(1), second, {}}).value<match_reply>().matched == 0);
  CHECK(w.ask(w.shards[0], locate_request{w.ns_id, 0, w.ticket_of(1), second, {}})
            .value<locate_reply>()
            .locations.empty());
  CHECK(w.ask(w.shards[0], reserve_request{w.ns_id, 0, w.ticket_of(1), second, {}, {}})
            .value<reserve_reply>()
            .results.empty());
  for (const auto how : {0, 1}) {
    const finish_request nothing{w.ns_id, 0, w.ticket_of(1), {}};
    const auto answered =
        how == 0 ? w.ask(w.shards[0], commit_atom_v, nothing) : w.ask(w.shards[0], abort_atom_v, nothing);
    CHECK(answered.value<finish_reply>().results.empty());
  }
  CHECK(w.ask(w.shards[0], evict_request{w.ns_id, 0, 0}).value<evict_reply>().slots == 0);
  CHECK(w.ask(w.shards[0], evict_request{w.ns_id, 0, ~0U}).value<evict_reply>().slots == 0);
  CHECK(w.ask(w.shards[0], owner_died_atom_v, owner_id{0}).code() == errc::ok);
  CHECK(w.ask(w.shards[0], owner_died_atom_v, ~owner_id{0}).code() == errc::ok);

  const packed<key_digest> twice{std::vector{key(1), key(2), key(1), key(1)}};
  const reserve_request wanted{w.ns_id, 0, w.ticket_of(2), second, twice, {}};
  const auto granted = w.ask(w.shards[0], wanted).value<reserve_reply>();
  CHECK(w.codes_of(granted) == std::vector{errc::ok, errc::ok, errc::busy, errc::busy});
  CHECK(w.slots().reserved == 2);
  auto written = w.pages(wanted, granted);
  written.pages.items.push_back(written.pages[0]);
  CHECK(w.codes_of(w.ask(w.shards[0], commit_atom_v, written).value<finish_reply>()) == std::vector(3, errc::ok));
  CHECK(w.slots().live == 2);
  CHECK(w.ask(w.shards[0], match_request{w.ns_id, w.ticket_of(3), second, twice}).value<match_reply>().matched == 4);
  CHECK(w.ask(w.shards[0], owner_died_atom_v, owner_id{7}).code() == errc::ok);
  CHECK(w.counts().leases == 0);
  auto bad = written.pages;
  CHECK(w.codes_of(w.ask(w.shards[0], invalidate_request{w.ns_id, 0, bad}).value<finish_reply>()) ==
        std::vector{errc::ok, errc::ok, errc::not_found});
  CHECK(w.answer_fences() == 2);
  CHECK(w.slots().free == 8);
}

TEST_CASE("garbage: a registry shard without allocators or with null ones grants no slots",
          "[garbage][registry_actor]") {
  quiet_log quiet;
  registry_world w;
  registry_peers peers;
  SECTION("none") {}
  SECTION("null") {
    peers.shards = {registry_actor{}, registry_actor{}};
    peers.allocators = {allocator_actor{}, w.allocators[0]};
    peers.namespaces = {w.ns_id, w.ns_id}; // the first of two for one rank counts
    peers.ranks = {0, 0};
  }
  const auto shard = w.unbound_shard();
  CHECK(w.codes_of(w.ask(shard, w.reservation(1, 0, 3)).value<reserve_reply>()) == std::vector(3, errc::full));
  REQUIRE(w.ask(shard, bind_atom_v, peers).code() == errc::ok);
  CHECK(w.codes_of(w.ask(shard, w.reservation(2, 0, 3)).value<reserve_reply>()) == std::vector(3, errc::full));
  CHECK(w.ask(shard, bind_atom_v, peers).code() == errc::exists);
}

TEST_CASE("garbage: an allocator refuses slots in the wrong state", "[garbage][registry_actor]") {
  registry_world w;
  const auto codes_of = [](const answer& x) {
    std::vector<errc> out;
    for (const auto code : x.value<slot_results>().results)
      out.push_back(static_cast<errc>(code));
    return out;
  };
  const auto take = [&](std::uint32_t count, duration wait) {
    return w.ask(w.allocators[0], take_atom_v, count, wait).value<take_reply>().slots;
  };
  CHECK(take(0, duration::max()).empty());
  const auto held = take(2, duration::min());
  REQUIRE(held.size() == 2);
  const auto a = held[0];
  const slot_batch strange{std::vector<slot_ref>{
      {8, 101}, {~0U, ~0U}, {a.slot, 0}, {a.slot, a.generation + 1}, {a.slot, a.generation - 1}, a, a}};
  CHECK(codes_of(w.ask(w.allocators[0], release_atom_v, slot_batch{std::vector{a}})) == std::vector{errc::stale});
  CHECK(codes_of(w.ask(w.allocators[0], publish_page_atom_v, strange)) ==
        std::vector{errc::out_of_range, errc::out_of_range, errc::stale, errc::stale, errc::stale, errc::ok,
                    errc::stale});
  CHECK(codes_of(w.ask(w.allocators[0], abort_atom_v, slot_batch{std::vector{a, held[1]}})) ==
        std::vector{errc::stale, errc::ok});
  CHECK(codes_of(w.ask(w.allocators[0], release_atom_v, slot_batch{std::vector{a, a}})) ==
        std::vector{errc::ok, errc::stale});
  for (const auto verb : {0, 1, 2}) {
    const slot_batch nothing;
    const auto answered = verb == 0   ? w.ask(w.allocators[0], publish_page_atom_v, nothing)
                          : verb == 1 ? w.ask(w.allocators[0], abort_atom_v, nothing)
                                      : w.ask(w.allocators[0], release_atom_v, nothing);
    CHECK(codes_of(answered).empty());
  }
  CHECK(w.slots().refused == 9);
  CHECK(w.slots().quarantined == 2);
  // More slots in one message than there are name at least one twice.
  const slot_batch many{std::vector(9, a)};
  CHECK(w.ask(w.allocators[0], publish_page_atom_v, many).code() == errc::limit_exceeded);
  CHECK(w.ask(w.allocators[0], abort_atom_v, many).code() == errc::limit_exceeded);
  CHECK(w.ask(w.allocators[0], release_atom_v, many).code() == errc::limit_exceeded);
  CHECK(w.ask(w.allocators[0], restore_atom_v, many).code() == errc::limit_exceeded);
  CHECK(w.slots().refused == 9);
  w.check_conservation();
  CHECK(w.answer_fences() == 2);
  CHECK(take(~0U, duration::max()).size() == 8); // no more than there are, without waiting for what cannot come
  w.check_conservation();
}

TEST_CASE("garbage: an allocator whose shards are null, missing or refuse leaves no request waiting",
          "[garbage][registry_actor]") {
  quiet_log quiet;
  registry_world w;
  registry_peers peers;
  SECTION("no shard") {}
  SECTION("null") {
    peers.shards = {registry_actor{}, registry_actor{}};
  }
  SECTION("nothing to evict") {
    peers.shards = w.shards;
  }
  const auto slots = w.unbound_allocator();
  REQUIRE(w.ask(slots, bind_atom_v, peers).code() == errc::ok);
  const auto take = [&](std::uint32_t count) {
    return w.ask(slots, take_atom_v, count, duration(std::chrono::hours(1)));
  };
  CHECK(take(6).value<take_reply>().slots.size() == 6);
  CHECK(take(5).value<take_reply>().slots.size() == 2);
  CHECK(take(1).value<take_reply>().slots.empty());
  w.check_conservation();
}

TEST_CASE("garbage: registry and allocator counters stay consistent under any shard requests",
          "[garbage][registry_actor]") {
  quiet_log quiet;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    INFO("seed " << seed);
    registry_world w(8, 2, 2);
    hostile_filler make(seed, w.ns_id, 40, {});
    questioner asks(w);
    for (int i = 0; i < 400; ++i) {
      const auto& to = make.one_of(w.shards);
      switch (make.below(14)) {
      case 0:
        asks.ask(to, make.make<match_request>());
        break;
      case 1:
        asks.ask(to, make.make<locate_request>());
        break;
      case 2:
        asks.ask(to, make.make<release_request>());
        break;
      case 3:
        asks.ask(to, make.make<renew_request>());
        break;
      case 4:
        asks.ask(to, make.make<reserve_request>());
        break;
      case 5:
        asks.ask(to, commit_atom_v, make.make<finish_request>());
        break;
      case 6:
        asks.ask(to, abort_atom_v, make.make<finish_request>());
        break;
      case 7:
        asks.ask(to, make.make<invalidate_request>());
        break;
      case 8:
        asks.ask(to, make.make<evict_request>());
        break;
      case 9:
        asks.ask(to, owner_died_atom_v, make.one_of(std::vector<owner_id>{0, 7, 8, 9, ~owner_id{0}}));
        break;
      case 10:
        asks.ask(to, stats_atom_v);
        break;
      case 11:
        asks.ask(to, make.make<children_request>());
        break;
      default: {
        // Something sensible in between, so that there is something to lose.
        reserve_request sound{
            w.ns_id, static_cast<rank_number>(make.below(2)), make.make<ticket>(), std::chrono::seconds(3), {}, {}};
        sound.ticket.owner = 8;
        for (std::uint64_t n = 0; n < 3; ++n)
          if (const auto x = make.make<key_digest>(); !x.is_null() && w.shards[shard_of(x, 2)] == to)
            sound.keys.items.push_back(x);
        const auto number = w.begin(to, sound);
        const auto granted = w.client().answer_to(number);
        if (!granted.came)
          asks.expect(number, "a sound reservation");
        else if (granted.code() == errc::ok)
          asks.ask(to, commit_atom_v, w.pages(sound, granted.value<reserve_reply>()));
      }
      }
      if (make.one_in(3))
        w.answer_fences();
      if (make.one_in(30))
        w.advance(std::chrono::milliseconds(100));
    }
    // A reservation that waits for slots is answered with what there is.
    w.advance(std::chrono::seconds(3));
    asks.check_all_answered();
    CHECK(asks.accepted() > 20);
    CHECK(asks.refused() > 20);

    // All owners have disconnected and all transfers have ended: the remaining slots are free or live.
    for (const auto owner : owners)
      for (const auto& shard : w.shards)
        CHECK(w.ask(shard, owner_died_atom_v, owner).code() == errc::ok);
    w.advance(std::chrono::seconds(1));
    while (w.answer_fences() > 0) {
    }
    for (rank_number rank = 0; rank < 2; ++rank) {
      const auto slots = w.slots(rank);
      CHECK(slots.free + slots.live == slots.total);
      CHECK(slots.reserved == 0);
      CHECK(slots.quarantined == 0);
      CHECK(slots.refused == 0); // the shards never named a slot that they did not hold
    }
    for (std::size_t shard = 0; shard < 2; ++shard) {
      CHECK(w.counts(shard).leases == 0);
      CHECK(w.counts(shard).reservations == 0);
      CHECK(w.counts(shard).complete_keys <= w.counts(shard).keys);
    }
    CHECK(w.counts(0).keys + w.counts(1).keys <= w.slots(0).live + w.slots(1).live);
  }
}

TEST_CASE("garbage: allocator counters stay consistent under any requests", "[garbage][registry_actor]") {
  quiet_log quiet;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    INFO("seed " << seed);
    registry_world w;
    hostile_filler make(seed, w.ns_id, 40, {});
    questioner asks(w);
    const auto& to = w.allocators[0];
    for (int i = 0; i < 300; ++i) {
      switch (make.below(5)) {
      case 0:
        asks.ask(to, take_atom_v, make.make<std::uint32_t>(), make.make<duration>());
        break;
      case 1:
        asks.ask(to, publish_page_atom_v, make.make<slot_batch>());
        break;
      case 2:
        asks.ask(to, abort_atom_v, make.make<slot_batch>());
        break;
      case 3:
        asks.ask(to, release_atom_v, make.make<slot_batch>());
        break;
      default: {
        // Slots that are really reserved or live.
        const auto got = w.ask(to, take_atom_v, std::uint32_t{1}, duration::zero());
        if (got.came)
          asks.ask(to, publish_page_atom_v, slot_batch{got.value<take_reply>().slots});
      }
      }
      if (make.one_in(4))
        w.answer_fences();
      w.check_conservation();
    }
    w.advance(std::chrono::seconds(2));
    asks.check_all_answered();
    w.answer_fences();
    CHECK(w.slots().quarantined == 0);
    w.check_conservation();
  }
}

} // namespace garbage_registry_test
