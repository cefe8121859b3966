#include "tests/actors/garbage_support.hpp"
#include "tests/actors/link_support.hpp"
#include "tests/actors/node_support.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

namespace garbage_node_test {

using namespace troupe;
using namespace troupe::test;

/// A node and a client's link answer whatever they are asked, and whatever the other side says.

TEST_CASE_METHOD(node_world, "garbage: clients that attach with dead handles do not take the slots of live ones",
                 "[garbage][node]") {
  quiet_log quiet;
  for (int i = 0; i < 10; ++i) {
    auto dead_one = std::make_unique<probe>(system());
    const auto handle = dead_one->as<>();
    dead_one->die();
    CHECK(ask(supervisor, request(), handle).came);
  }
  CHECK(dead().size() == 10);
  probe living(system());
  CHECK(attached(living) != 0);
}

TEST_CASE("garbage: a node answers every client, whatever the client sends", "[garbage][node]") {
  quiet_log quiet;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    INFO("seed " << seed);
    node_world w;
    probe a(w.system());
    probe b(w.system());
    probe c(w.system());
    hostile_filler make(seed, w.options->namespaces[0].id(), 10, {&a, &b, &c});
    questioner asks(w);
    std::vector<owner_id> owners;
    std::set<owner_id> gone;
    std::vector<owner_id> expected_gone;
    for (int i = 0; i < 300; ++i) {
      auto wanted = make.make<attach_request>();
      if (make.one_in(2))
        wanted.protocol = protocol_version;
      if (!make.one_in(4))
        wanted.wish = namespace_wish::named;
      if (make.one_in(2))
        wanted.process = 1;
      switch (make.below(6)) {
      case 0:
        asks.ask(w.supervisor, wanted, make.make<caf::actor>());
        break;
      case 1:
        if (const auto got = w.attach(make.one_in(2) ? a : b); got.code() == errc::ok) {
          const auto reply = got.value<attach_reply>();
          CHECK(reply.owner != 0);
          CHECK(std::find(owners.begin(), owners.end(), reply.owner) == owners.end());
          owners.push_back(reply.owner);
        }
        break;
      case 2: {
        const auto leaves = owners.empty() || make.one_in(2) ? make.make<owner_id>() : make.one_of(owners);
        const bool attached = std::find(owners.begin(), owners.end(), leaves) != owners.end() && !gone.contains(leaves);
        const bool by_a = w.ask(w.supervisor, caf::leave_atom_v, leaves, a.as<>()).code() == errc::ok;
        const bool by_b = w.ask(w.supervisor, caf::leave_atom_v, leaves, b.as<>()).code() == errc::ok;
        CHECK_FALSE((by_a && by_b));
        CHECK_FALSE(w.ask(w.supervisor, caf::leave_atom_v, leaves, make.make<caf::actor>()).code() == errc::ok);
        if (attached)
          expected_gone.push_back(leaves);
        break;
      }
      case 3:
        asks.ask(w.supervisor, stats_atom_v);
        break;
      case 4:
        asks.ask(w.supervisor, owner_quiesced_atom_v,
                 owners.empty() || make.one_in(2) ? make.make<owner_id>() : make.one_of(owners));
        break;
      default:
        w.advance(std::chrono::milliseconds(200));
      }
      for (const auto x : w.dead())
        CHECK(gone.insert(x).second); // each dies once
      for (const auto x : expected_gone)
        CHECK(gone.contains(x));
      // Children that answer when they like, or say no.
      for (const auto& x : w.shard.take<stats_atom>())
        if (make.one_in(2))
          w.shard.reply(x, caf::make_message(make.make<registry_stats>()));
      for (auto* worker : {&w.worker0, &w.worker1})
        for (const auto& x : worker->take<stats_atom>())
          if (make.one_in(2))
            worker->reply(x, caf::make_message(make.make<io_stats>()));
      for (auto* slots : {&w.allocator0, &w.allocator1})
        for (const auto& x : slots->take<stats_atom>())
          if (make.one_in(8))
            slots->reply_error(x, errc::internal);
          else
            slots->reply(x, caf::make_message(make.make<allocator_stats>()));
      w.run();
    }
    w.advance(std::chrono::seconds(6));
    asks.check_all_answered();
    CHECK(asks.accepted() > 5);
    CHECK(asks.refused() > 20);
    for (auto* x : {&a, &b, &c})
      x->die();
    w.run();
    probe last(w.system());
    CHECK(w.attached(last) != 0);
    asks.ask(w.supervisor, drain_atom_v);
    asks.ask(w.supervisor, drain_atom_v);
    w.advance(std::chrono::seconds(4));
    asks.check_all_answered();
  }
}

TEST_CASE_METHOD(link_world, "garbage: a link refuses a node that assigns no owner id", "[garbage][link]") {
  quiet_log quiet;
  auto unbound = welcome();
  unbound.owner = 0;
  const auto waiting = wait();
  attach(unbound);
  const auto refused = client().answer_to(waiting);
  CHECK(refused.code() == errc::invalid_argument);
  CHECK_FALSE(refused.failure.text.empty());
  CHECK(attached_as() == 0);
}

TEST_CASE_METHOD(link_world, "garbage: a binding that contains a null actor ends with an error", "[garbage][link]") {
  quiet_log quiet;
  attach();
  auto broken = parts();
  const auto which = GENERATE(0, 1, 2, 3);
  if (which == 0)
    broken.lookup = lookup_actor{};
  else if (which == 1)
    broken.ranks[0].copier = copy_engine_actor{};
  else if (which == 2)
    broken.ranks[0].load = transfer_actor{};
  else
    broken.ranks[0].save = transfer_actor{};
  const auto number = begin(session, bind_atom_v, broken, duration(limit));
  for (const auto& x : ranks[0]->copier.take<bind_atom, owner_id, arena_info>())
    answer(ranks[0]->copier, x);
  const auto refused = client().answer_to(number);
  CHECK(refused.came);
  CHECK_FALSE(refused.failure.text.empty());
  CHECK(attached_as() == 0);
  check_left();
}

TEST_CASE("garbage: a link answers its client, whatever node and client send", "[garbage][link]") {
  quiet_log quiet;
  std::size_t accepted = 0;
  std::size_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    link_world w;
    hostile_filler make(seed, small_namespace(2).id(), 10, {&w.node, &w.shard, &w.ranks[0]->worker});
    questioner asks(w);
    const auto answer_one = [&](probe& from, const received& x, auto sound, auto strange) {
      const auto kind = make.below(20);
      if (kind < 14)
        from.reply(x, sound());
      else if (kind < 16)
        from.reply(x, strange());
      else if (kind < 17)
        from.reply_error(x, make.one_of(std::vector{errc::expired, errc::limit_exceeded, errc::ok}));
      else if (kind < 18)
        from.reply(x, caf::make_message(std::string("what?")));
      w.run();
    };
    const auto nothing = [] { return caf::make_message(); };
    const auto text = [] { return caf::make_message(std::string("what?")); };
    const auto round = [&] {
      for (const auto& x : w.node.take<attach_request, caf::actor>())
        answer_one(
            w.node, x, [&] { return caf::make_message(w.welcome()); },
            [&] { return caf::make_message(make.make<attach_reply>()); });
      for (const auto& x : w.lookup.take<bind_atom, lookup_binding>())
        answer_one(w.lookup, x, nothing, text);
      for (auto& rank : w.ranks) {
        for (const auto& x : rank->copier.take<bind_atom, owner_id, arena_info>())
          answer_one(rank->copier, x, nothing, text);
        for (const auto& x : rank->copier.take<unbind_atom, owner_id>())
          answer_one(rank->copier, x, nothing, text);
        for (auto* one : {&rank->load, &rank->save})
          for (const auto& x : one->take<bind_atom, coordinator_binding>())
            answer_one(*one, x, nothing, text);
      }
    };
    for (int i = 0; i < 30; ++i) {
      const duration time = make.make<duration>();
      switch (make.below(6)) {
      case 0:
        asks.ask(w.session, wait_attached_atom_v, time);
        break;
      case 1:
        asks.ask(w.session, bind_atom_v, w.parts(), time);
        break;
      case 2:
        if (make.one_in(6))
          asks.ask(w.session, bind_atom_v, make.make<client_parts>(), time);
        break;
      case 3:
        asks.ask(w.session, attached_atom_v);
        break;
      case 4:
        w.advance(std::chrono::milliseconds(50));
        break;
      default:
        round();
      }
    }
    w.advance(std::chrono::milliseconds(1100));
    asks.check_all_answered();
    accepted += asks.accepted();
    refused += asks.refused();
    // Ended or attached, and its answers are consistent with that.
    const auto owner = w.attached_as();
    const auto waiting = w.begin(w.session, wait_attached_atom_v, duration::zero());
    w.advance(std::chrono::milliseconds(100));
    const auto answered = w.client().answer_to(waiting);
    CHECK(answered.came);
    if (owner == 0)
      CHECK(answered.code() != errc::ok);
    else if (answered.code() == errc::ok)
      CHECK(answered.value<attach_reply>().owner == owner);
  }
  CHECK(accepted > 20);
  CHECK(refused > 20);
}

} // namespace garbage_node_test
