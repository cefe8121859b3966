#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"

namespace registry_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("registry and allocator: reserve, commit, match", "[registry_actor]") {
  registry_world w;
  const auto wanted = w.reservation(1, 0, 3);
  const auto granted = w.ask(w.shards[0], wanted).value<reserve_reply>();
  CHECK(w.codes_of(granted) == std::vector(3, errc::ok));
  CHECK(w.slots().reserved == 3);
  CHECK(w.matched(0, 3) == 0);
  const auto written = w.pages(wanted, granted);
  CHECK(w.codes_of(w.ask(w.shards[0], commit_atom_v, written).value<finish_reply>()) == std::vector(3, errc::ok));
  CHECK(w.slots().live == 3);
  CHECK(w.matched(0, 5) == 3);

  const locate_request where{w.ns_id, 0, w.ticket_of(50), std::chrono::seconds(5), wanted.keys};
  const auto found = w.ask(w.shards[0], where).value<locate_reply>();
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(found.locations[i].where == written.pages[i].where);
  CHECK(w.counts().keys == 3);
  CHECK(w.counts().leases == 2);
  CHECK(w.ask(w.shards[0], release_request{w.ns_id, w.ticket_of(50), 0}).code() == errc::ok);
  w.check_conservation();
}

TEST_CASE("registry and allocator: a key is complete when all ranks have it", "[registry_actor]") {
  registry_world w(8, 1, 2);
  w.store(1, 0, 2, 0);
  CHECK(w.matched(0, 2) == 0);
  w.store(2, 0, 1, 1);
  CHECK(w.matched(0, 2, 901) == 1);
}

TEST_CASE("registry and allocator: an abort releases slots through quarantine", "[registry_actor]") {
  registry_world w;
  const auto wanted = w.reservation(1, 0, 3);
  const auto written = w.pages(wanted, w.ask(w.shards[0], wanted).value<reserve_reply>());
  CHECK(w.codes_of(w.ask(w.shards[0], abort_atom_v, written).value<finish_reply>()) == std::vector(3, errc::ok));
  CHECK(w.slots().quarantined == 3);
  CHECK(w.slots().free == 5);
  w.check_conservation();
  w.advance(std::chrono::minutes(1)); // as long as the kernel likes
  CHECK(w.slots().quarantined == 3);
  CHECK(w.answer_fences() == 3);
  CHECK(w.slots().free == 8);
  CHECK(w.codes_of(w.ask(w.shards[0], commit_atom_v, written).value<finish_reply>()) == std::vector(3, errc::expired));
}

TEST_CASE("registry and allocator: a reservation waits for eviction and for the I/O on its slots", "[registry_actor]") {
  registry_world w;
  w.store(1, 0, 8);
  w.answer_fences();
  CHECK(w.slots().live + w.slots().quarantined + w.slots().free == 8);
  // Low on slots, the allocator has had some keys evicted in advance; beyond these it has to wait.
  const auto wanted = w.reservation(2, 100, 5);
  const auto first = w.begin(w.shards[0], wanted);
  const auto again = w.begin(w.shards[0], wanted);
  CHECK_FALSE(w.client().answer_to(first).came);
  CHECK_FALSE(w.client().answer_to(again).came);
  w.check_conservation();
  w.advance(std::chrono::milliseconds(300));
  CHECK_FALSE(w.client().answer_to(first).came);
  while (w.answer_fences() > 0) {
  }
  const auto granted = w.client().answer_to(first).value<reserve_reply>();
  CHECK(w.codes_of(granted) == std::vector(5, errc::ok));
  // The repeated request has the same answer, and no slots of its own.
  CHECK(w.client().answer_to(again).value<reserve_reply>().results == granted.results);
  CHECK(w.ask(w.shards[0], wanted).value<reserve_reply>().results == granted.results);
  CHECK(w.slots().reserved == 5);
  w.check_conservation();
  CHECK(w.codes_of(w.ask(w.shards[0], commit_atom_v, w.pages(wanted, granted)).value<finish_reply>()) ==
        std::vector(5, errc::ok));
  CHECK(w.matched(100, 5) == 5);
  CHECK(w.counts().evicted_keys >= 5);
}

TEST_CASE("registry and allocator: a reservation that times out is full and leaves its keys free", "[registry_actor]") {
  registry_world w;
  w.store(1, 0, 6);
  CHECK(w.matched(0, 6) == 6); // leased: nothing may be evicted
  const auto wanted = w.reservation(2, 100, 4);
  const auto number = w.begin(w.shards[0], wanted);
  w.advance(std::chrono::milliseconds(2500));
  const auto granted = w.client().answer_to(number).value<reserve_reply>();
  CHECK(w.codes_of(granted) == std::vector{errc::ok, errc::ok, errc::full, errc::full});
  w.check_conservation();

  // The lease runs out, and the next request has evicted what it needs.
  w.advance(std::chrono::seconds(6));
  const auto next = w.begin(w.shards[0], w.reservation(3, 102, 2));
  while (w.answer_fences() > 0) {
  }
  CHECK(w.codes_of(w.client().answer_to(next).value<reserve_reply>()) == std::vector(2, errc::ok));
  w.check_conservation();
}

TEST_CASE("registry and allocator: requests time out when a fence is never answered", "[registry_actor]") {
  registry_world w(2);
  w.store(1, 0, 2);
  const auto number = w.begin(w.shards[0], w.reservation(2, 100, 2));
  w.advance(std::chrono::milliseconds(2500));
  CHECK(w.codes_of(w.client().answer_to(number).value<reserve_reply>()) == std::vector(2, errc::full));
  CHECK(w.slots().free == 0);
  w.check_conservation();
  while (w.answer_fences() > 0) {
  }
  CHECK(w.slots().free == 2);
}

TEST_CASE("registry and allocator: two writers of a key share one slot", "[registry_actor]") {
  registry_world w;
  const auto mine = w.ask(w.shards[0], w.reservation(1, 0, 2)).value<reserve_reply>();
  CHECK(w.codes_of(mine) == std::vector(2, errc::ok));
  const auto theirs = w.ask(w.shards[0], w.reservation(1, 1, 2, 0, 8)).value<reserve_reply>();
  CHECK(w.codes_of(theirs) == std::vector{errc::busy, errc::ok});
  CHECK(w.slots().reserved == 3);
}

TEST_CASE("registry and allocator: leases and reservations of a dead owner are released", "[registry_actor]") {
  registry_world w(64);
  w.store(1, 0, 40);
  CHECK(w.matched(0, 40) == 40);
  const auto wanted = w.reservation(2, 100, 20);
  const auto open = w.pages(wanted, w.ask(w.shards[0], wanted).value<reserve_reply>());
  CHECK(w.counts().leases == 1);
  CHECK(w.counts().reservations == 20);
  CHECK(w.ask(w.shards[0], owner_died_atom_v, owner_id{7}).code() == errc::ok);
  // In bounded parts, but without a timer between them.
  CHECK(w.counts().leases == 0);
  CHECK(w.counts().reservations == 0);
  CHECK(w.slots().quarantined == 20);
  CHECK(w.codes_of(w.ask(w.shards[0], commit_atom_v, open).value<finish_reply>()) == std::vector(20, errc::expired));
  CHECK(w.answer_fences() == 20);
  CHECK(w.slots().free == 24);
  CHECK(w.slots().live == 40);
  w.check_conservation();
}

TEST_CASE("registry and allocator: slots granted after the owner's death are released", "[registry_actor]") {
  registry_world w(4);
  w.store(1, 0, 4);
  const auto number = w.begin(w.shards[0], w.reservation(2, 100, 3, 0, 66));
  CHECK_FALSE(w.client().answer_to(number).came);
  CHECK(w.ask(w.shards[0], owner_died_atom_v, owner_id{66}).code() == errc::ok);
  while (w.answer_fences() > 0) {
  }
  CHECK(w.client().answer_to(number).code() == errc::expired);
  while (w.answer_fences() > 0) {
  }
  CHECK(w.slots().reserved == 0);
  w.check_conservation();
}

TEST_CASE("registry and allocator: a removal continues only when the allocator has answered", "[registry_actor]") {
  registry_world w(4);
  w.store(1, 0, 4);
  const auto reserving = w.begin(w.shards[0], w.reservation(2, 100, 3));
  CHECK_FALSE(w.client().answer_to(reserving).came);
  const remove_namespace_request wanted{w.ns_id, true};
  CHECK(w.ask(w.shards[0], wanted).value<remove_namespace_reply>().more);
  const auto waits = w.begin(w.shards[0], wanted);
  w.run();
  CHECK_FALSE(w.client().answer_to(waits).came);
  while (w.answer_fences() > 0) {
  }
  CHECK(w.client().answer_to(waits).value<remove_namespace_reply>().more);
  CHECK_FALSE(w.ask(w.shards[0], wanted).value<remove_namespace_reply>().more);
  CHECK(w.client().answer_to(reserving).code() != errc::ok);
}

TEST_CASE("registry and allocator: a fence that fails frees nothing", "[registry_actor]") {
  registry_world w(4);
  const auto wanted = w.reservation(1, 0, 2);
  const auto open = w.pages(wanted, w.ask(w.shards[0], wanted).value<reserve_reply>());
  CHECK(w.ask(w.shards[0], abort_atom_v, open).code() == errc::ok);
  CHECK(w.slots().quarantined == 2);
  // A worker that cannot say when its transfers have ended may still have some under way.
  for (const auto& x : w.worker.take<fence_atom, slot_batch>())
    w.worker.reply_error(x, errc::io_error);
  w.run();
  CHECK(w.slots().quarantined == 2);
  CHECK(w.slots().free == 2);
  w.check_conservation();
}

TEST_CASE("registry and allocator: reservations and leases expire", "[registry_actor]") {
  registry_world w;
  w.store(1, 0, 2);
  CHECK(w.matched(0, 2) == 2);
  CHECK(w.codes_of(w.ask(w.shards[0], w.reservation(2, 100, 2)).value<reserve_reply>()) == std::vector(2, errc::ok));
  w.advance(std::chrono::seconds(4));
  CHECK(w.counts().leases == 1);
  w.advance(std::chrono::seconds(2));
  CHECK(w.counts().leases == 0);
  CHECK(w.counts().expired_leases == 1);
  CHECK(w.counts().reservations == 2);
  w.advance(std::chrono::seconds(26));
  CHECK(w.counts().reservations == 0);
  CHECK(w.slots().quarantined == 2);
}

TEST_CASE("registry and allocator: a reservation for an unknown rank or an unbound registry is refused",
          "[registry_actor]") {
  registry_world w;
  CHECK(w.ask(w.shards[0], w.reservation(1, 0, 2, 5)).code() == errc::out_of_range);
  const auto alone = w.spawn<registry>(registry_options{}, std::vector{w.ns}, metrics_actor{});
  CHECK(w.codes_of(w.ask(alone, w.reservation(1, 0, 2)).value<reserve_reply>()) == std::vector(2, errc::full));
}

TEST_CASE("registry and allocator: their shutdown answers waiting requests", "[registry_actor]") {
  registry_world w(2);
  w.store(1, 0, 2);
  const auto reserving = w.begin(w.shards[0], w.reservation(2, 100, 2));
  const auto taking = w.begin(w.allocators[0], take_atom_v, std::uint32_t{2}, duration(std::chrono::hours(1)));
  SECTION("the registry") {
    w.end(w.shards[0]);
    CHECK(w.client().answer_to(reserving).code() == errc::shutting_down);
  }
  SECTION("the allocator") {
    w.end(w.allocators[0]);
    CHECK(w.client().answer_to(taking).code() == errc::shutting_down);
    CHECK(w.codes_of(w.client().answer_to(reserving).value<reserve_reply>()) == std::vector(2, errc::full));
  }
}

TEST_CASE("registry and allocator: the deaths of many owners leave one timer per actor", "[registry_actor]") {
  registry_world w(64);
  // Each leaves more than one tick's work.
  for (std::uint64_t owner = 100; owner < 110; ++owner) {
    CHECK(w.ask(w.shards[0], w.reservation(1, owner * 1000, 40, 0, owner)).code() == errc::ok);
    CHECK(w.ask(w.shards[0], owner_died_atom_v, owner_id{owner}).code() == errc::ok);
    while (w.answer_fences() > 0) {
    }
    CHECK(w.counts().reservations == 0);
  }
  CHECK(w.pending_timeouts() <= 2); // of the registry and of the allocator
  CHECK(w.slots().free == 64);
}

TEST_CASE("registry and allocator: latencies are sent to the metrics", "[registry_actor]") {
  registry_world w;
  w.store(1, 0, 2);
  w.advance(std::chrono::milliseconds(500));
  std::size_t samples = 0;
  for (const auto& x : w.metrics.take<latency_batch>())
    samples += x.get<latency_batch>(0).samples.size();
  CHECK(samples == 2);
}

TEST_CASE("registry and allocator: several shards share the ranks", "[registry_actor]") {
  registry_world w(16, 3);
  const auto keys = test_task(12).keys;
  std::size_t stored = 0;
  for (std::uint32_t shard = 0; shard < 3; ++shard) {
    reserve_request wanted{w.ns_id, 0, w.ticket_of(1), std::chrono::seconds(30), {}, {}};
    for (const auto& k : keys)
      if (shard_of(k, 3) == shard)
        wanted.keys.items.push_back(k);
    if (wanted.keys.empty())
      continue;
    CHECK(w.ask(w.shards[(shard + 1) % 3], wanted).code() == errc::invalid_argument); // not its keys
    const auto granted = w.ask(w.shards[shard], wanted).value<reserve_reply>();
    stored += w.pages(wanted, granted).pages.size();
    CHECK(w.ask(w.shards[shard], commit_atom_v, w.pages(wanted, granted)).code() == errc::ok);
  }
  CHECK(stored == 12);
  CHECK(w.slots().live == 12);
  CHECK(w.counts(0).keys + w.counts(1).keys + w.counts(2).keys == 12);
  w.check_conservation();
}

TEST_CASE("registry: other shards are notified of removed children before their slots are released",
          "[registry_actor]") {
  // An allocator that has slots back may ask the other shards for more. The keys that they may evict depend on which of
  // their keys have children, so notifications of that must not come later. One probe is the allocator and the other
  // shard.
  sim w;
  const auto ns = small_namespace();
  probe metrics(w.system());
  probe others(w.system());
  registry_options how;
  how.shard_count = 2;
  const auto shard = w.spawn<registry>(how, std::vector{ns}, metrics.as<metrics_actor>());
  const registry_peers peers{{shard, others.as<registry_actor>()}, {others.as<allocator_actor>()}, {ns.id()}, {0}};
  REQUIRE(w.ask(shard, bind_atom_v, peers).code() == errc::ok);

  key_digest child, parent;
  for (std::uint64_t n = 0; child.is_null() || parent.is_null(); ++n)
    (shard_of(key(n), 2) == 0 ? child : parent) = key(n);
  const reserve_request wanted{ns.id(), 0, {7, 1}, std::chrono::seconds(30), std::vector{child}, std::vector{parent}};
  const auto number = w.begin(shard, wanted);
  CHECK(others.take_one<children_request>().get<children_request>(0).changes.items ==
        std::vector{child_delta{parent, 1}});
  others.reply(others.take_one<take_atom, std::uint32_t, duration>(),
               caf::make_message(take_reply{std::vector{slot_ref{3, 5}}}));
  w.run();
  const auto granted = w.client().answer_to(number).value<reserve_reply>();
  const finish_request written{ns.id(), 0, {7, 1}, std::vector{page_ref{child, granted.results[0].where}}};
  REQUIRE(w.ask(shard, commit_atom_v, written).code() == errc::ok);

  REQUIRE(w.ask(shard, evict_request{ns.id(), 0, 1}).value<evict_reply>().slots == 1);
  const auto link = others.take_one<children_request>();
  CHECK(link.get<children_request>(0).changes.items == std::vector{child_delta{parent, -1, 1}});
  const auto release = others.take_one<release_atom, slot_batch>();
  CHECK(release.get<slot_batch>(1).slots.items == std::vector{slot_ref{3, 5}});
  // Requests of one actor are numbered as they are sent.
  CHECK(link.id.integer_value() < release.id.integer_value());
}

} // namespace registry_test
