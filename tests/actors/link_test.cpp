#include "tests/actors/link_support.hpp"
#include "tests/catch.hpp"

#include <caf/io/all.hpp>
#include <caf/io/network/test_multiplexer.hpp>

#include <unistd.h>

namespace link_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE_METHOD(link_world, "link: attaches with its protocol, name, process and namespace, and can be watched",
                 "[link]") {
  const auto x = attaching();
  const auto& wanted = x.get<attach_request>(0);
  CHECK(wanted.protocol == protocol_version);
  CHECK(wanted.client_name == "an engine");
  CHECK(wanted.process == ::getpid());
  CHECK(wanted.namespace_name == "small");
  CHECK(x.get<caf::actor>(1) == caf::actor_cast<caf::actor>(session));
}

TEST_CASE_METHOD(link_world, "link: waits are answered when it is attached, and at once from then on", "[link]") {
  const auto first = wait();
  const auto second = wait();
  CHECK(attached_as() == 0);
  CHECK_FALSE(came(first));
  attach();
  const auto reply = client().answer_to(first).value<attach_reply>();
  CHECK(reply.owner == owner);
  CHECK(reply.ns == small_namespace(2));
  CHECK(reply.ranks.size() == 2);
  CHECK(client().answer_to(second).code() == errc::ok);
  CHECK(client().answer_to(wait(duration::zero())).value<attach_reply>().owner == owner);
  CHECK(attached_as() == owner);
}

TEST_CASE_METHOD(link_world, "link: a wait ends at its limit with the last error and other waits continue", "[link]") {
  const auto short_wait = wait(std::chrono::milliseconds(300));
  const auto short_bind = bind(std::chrono::milliseconds(300));
  const auto long_wait = wait(std::chrono::hours(1));
  const auto endless = wait(duration::max());
  const auto none = wait(duration::zero());
  const auto before = wait(duration::min());
  advance(std::chrono::milliseconds(100));
  CHECK(client().answer_to(none).code() == errc::unreachable);
  CHECK(client().answer_to(before).code() == errc::unreachable);
  CHECK_FALSE(came(short_wait));
  advance(std::chrono::milliseconds(250));
  const auto ended = client().answer_to(short_wait);
  CHECK(ended.code() == errc::unreachable);
  CHECK_FALSE(ended.failure.text.empty());
  CHECK(client().answer_to(short_bind).code() == errc::unreachable);
  attach();
  CHECK_FALSE(came(long_wait));
  bind_all();
  CHECK(client().answer_to(long_wait).code() == errc::ok);
  CHECK(client().answer_to(endless).code() == errc::ok);
}

TEST_CASE_METHOD(link_world, "link: a refusal by a node in the same process is final", "[link]") {
  const auto waiting = wait();
  const auto binding = bind();
  auto expected = GENERATE(errc::unsupported, errc::unknown_namespace, errc::limit_exceeded, errc::timeout);
  const auto asked = attaching();
  if (expected == errc::timeout)
    advance(timeout + std::chrono::milliseconds(20));
  else
    node.reply_error(asked, expected);
  run();
  CHECK(client().answer_to(waiting).code() == expected);
  CHECK(client().answer_to(binding).code() == expected);
  CHECK(ask(session, wait_attached_atom_v, duration(limit)).code() == expected);
  CHECK(ask(session, bind_atom_v, parts(), duration(limit)).code() == expected);
  answer(node, asked, welcome()); // too late
  CHECK(attached_as() == 0);
  advance(std::chrono::minutes(1));
  CHECK(node.take<attach_request, caf::actor>().empty());
  CHECK(lookup.take<bind_atom, lookup_binding>().empty());
}

TEST_CASE_METHOD(link_world, "link: the death of a node before its answer does not end waits", "[link]") {
  const auto waiting = wait();
  node.die();
  run();
  CHECK(client().answer_to(waiting).code() == errc::unreachable);
  CHECK(ask(session, wait_attached_atom_v, duration(limit)).code() == errc::unreachable);
}

TEST_CASE_METHOD(link_world, "link: binds every actor with its own streams and windows", "[link]") {
  const auto bound = bind();
  attach();
  const auto looking = binding_lookup();
  const auto& seen = looking.get<lookup_binding>(1);
  CHECK(seen.owner == owner);
  CHECK(seen.ticket_stream == 0);
  CHECK(seen.ns == small_namespace(2).id());
  CHECK(seen.limits.lease == std::chrono::seconds(60));
  CHECK(seen.shards == std::vector{shard.as<client_shard_actor>()});
  answer(lookup, looking);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    auto& x = *ranks[rank];
    const auto map = mapping(rank);
    CHECK(map.get<owner_id>(1) == owner);
    CHECK(map.get<arena_info>(2).bytes == 640 * slot);
    CHECK(map.get<arena_info>(2).extent_bytes == 64 * slot);
    CHECK(map.get<arena_info>(2).name.items == std::vector<std::uint8_t>{7, 8, 9});
    CHECK(x.load.take<bind_atom, coordinator_binding>().empty());
    answer(x.copier, map);
    const auto load = binding(x.load);
    const auto save = binding(x.save);
    for (const auto* one : {&load, &save}) {
      const auto& node_side = one->get<coordinator_binding>(1);
      CHECK(node_side.owner == owner);
      CHECK(node_side.shards == std::vector{shard.as<client_shard_actor>()});
      CHECK(node_side.worker == x.worker.as<client_worker_actor>());
      CHECK(node_side.limits.reservation == std::chrono::seconds(50));
    }
    CHECK(load.get<coordinator_binding>(1).ticket_stream == 1 + 2 * rank);
    CHECK(load.get<coordinator_binding>(1).window_pages == 2);
    CHECK(save.get<coordinator_binding>(1).ticket_stream == 2 + 2 * rank);
    CHECK(save.get<coordinator_binding>(1).window_pages == 3);
    CHECK_FALSE(came(bound));
    answer(x.load, load);
    answer(x.save, save);
  }
  CHECK(client().answer_to(bound).code() == errc::ok);
}

TEST_CASE_METHOD(link_world, "link: no wait is answered before the last of the client's actors is bound", "[link]") {
  attach();
  const auto bound = bind();
  const auto waiting = wait();
  std::vector<std::pair<probe*, received>> asked{{&lookup, binding_lookup()}};
  for (std::size_t rank = 0; rank < 2; ++rank) {
    auto& x = *ranks[rank];
    answer(x.copier, mapping(rank));
    asked.emplace_back(&x.load, binding(x.load));
    asked.emplace_back(&x.save, binding(x.save));
  }
  const auto last = GENERATE(0U, 1U, 2U, 3U, 4U);
  for (std::size_t i = 0; i < asked.size(); ++i)
    if (i != last)
      answer(*asked[i].first, asked[i].second);
  CHECK_FALSE(came(bound));
  CHECK_FALSE(came(waiting));
  answer(*asked[last].first, asked[last].second);
  CHECK(client().answer_to(bound).code() == errc::ok);
  CHECK(client().answer_to(waiting).code() == errc::ok);
}

TEST_CASE_METHOD(link_world, "link: an actor that cannot be bound ends the attachment, with its reason", "[link]") {
  attach();
  const auto bound = bind();
  const auto waiting = wait();
  const auto which = GENERATE(0, 1, 2, 3);
  auto& x = *ranks[1];
  const auto fail_with = [&](probe& from, const received& to) {
    from.reply_error(to, errc::identity_mismatch);
    run();
  };
  if (which == 0)
    fail_with(lookup, binding_lookup());
  else
    answer(lookup, binding_lookup());
  if (which > 0) {
    bind_rank(0);
    if (which == 1)
      fail_with(x.copier, mapping(1));
    else
      answer(x.copier, mapping(1));
  }
  if (which == 2)
    fail_with(x.load, binding(x.load));
  if (which == 3) {
    answer(x.load, binding(x.load));
    fail_with(x.save, binding(x.save));
  }
  CHECK(client().answer_to(bound).code() == errc::identity_mismatch);
  CHECK(client().answer_to(waiting).code() == errc::identity_mismatch);
  CHECK(ask(session, wait_attached_atom_v, duration(limit)).code() == errc::identity_mismatch);
  check_left();
  check_unbound();
  CHECK(attached_as() == 0);
}

TEST_CASE_METHOD(link_world, "link: a node, which saves nothing at its peers, has its window for loads", "[link]") {
  end(session);
  auto how = options();
  how.cluster = "a cluster";
  node.take<attach_request, caf::actor>();
  session = spawn<troupe::link>(how);
  attach(welcome());
  bind();
  answer(lookup, binding_lookup());
  auto& x = *ranks[0];
  answer(x.copier, mapping(0));
  CHECK(binding(x.load).get<coordinator_binding>(1).window_pages == 4);
  CHECK(binding(x.save).get<coordinator_binding>(1).window_pages == 1);
}

TEST_CASE_METHOD(link_world, "link: a window of less than a page per direction is refused with the setting to change",
                 "[link]") {
  auto narrow = welcome();
  auto way_out = "memory.client_bytes";
  SECTION("because the node allows no more") {
    narrow.limits.pinned_bytes = 2 * slot - 4096;
  }
  SECTION("because the client wants no more") {
    way_out = "transfer.window_bytes";
    end(session);
    auto how = options();
    how.window_bytes = 2 * slot - 4096;
    node.take<attach_request, caf::actor>();
    session = spawn<troupe::link>(how);
  }
  attach(narrow);
  const auto bound = bind();
  const auto refused = client().answer_to(bound);
  CHECK(refused.code() == errc::limit_exceeded);
  CHECK(refused.failure.text.find(way_out) != std::string::npos);
  CHECK(ranks[0]->copier.take<bind_atom, owner_id, arena_info>().empty());
  CHECK(ranks[0]->load.take<bind_atom, coordinator_binding>().empty());
  check_left();
}

TEST_CASE_METHOD(link_world, "link: a namespace whose page size is zero or overflows is refused", "[link]") {
  auto strange = welcome();
  // Together these make a page of 2^64 - 4096 bytes, and a slot of none.
  SECTION("too big") {
    strange.ns.geometry = {4096, 3 * 5 * 53, 157, 1613, 2731, 8191};
  }
  SECTION("nothing") {
    strange.ns.geometry = {};
  }
  const auto waiting = wait();
  attach(strange);
  CHECK(client().answer_to(waiting).code() == errc::invalid_argument);
  check_left();
  CHECK(attached_as() == 0);
}

TEST_CASE_METHOD(link_world, "link: a rank that the node does not serve is refused", "[link]") {
  auto one_rank = welcome();
  one_rank.ranks.pop_back();
  attach(one_rank);
  const auto bound = bind();
  const auto refused = client().answer_to(bound);
  CHECK(refused.code() == errc::out_of_range);
  CHECK(refused.failure.text.find("rank 1") != std::string::npos);
  check_left();
  CHECK(quiesced() == std::vector{owner}); // none of its actors has been bound to the memory
  CHECK(ranks[0]->copier.take<bind_atom, owner_id, arena_info>().empty());
}

TEST_CASE_METHOD(link_world, "link: the death of the node unbinds everything at once", "[link]") {
  work();
  node.die();
  run();
  check_unbound();
  CHECK(attached_as() == 0);
  CHECK(ask(session, wait_attached_atom_v, duration(limit)).code() == errc::unreachable);
  CHECK(ask(session, bind_atom_v, parts(), duration(limit)).code() == errc::unreachable);
  rest();
  CHECK(quiesced().empty()); // a node of this process does not restart
}

TEST_CASE_METHOD(link_world, "link: a node death while binding answers the waits and later replies are ignored",
                 "[link]") {
  attach();
  const auto bound = bind();
  const auto waiting = wait();
  const auto map = mapping(0);
  const auto looking = binding_lookup();
  node.die();
  run();
  CHECK(client().answer_to(bound).code() == errc::unreachable);
  CHECK(client().answer_to(waiting).code() == errc::unreachable);
  check_unbound();
  answer(ranks[0]->copier, map);
  answer(lookup, looking);
  CHECK(ranks[0]->load.take<bind_atom, coordinator_binding>().empty());
  CHECK(attached_as() == 0);
}

TEST_CASE_METHOD(link_world, "link: a new binding detaches from the node and attaches again", "[link]") {
  work();
  const auto again = bind();
  check_left();
  check_unbound();
  const auto waiting = wait();
  CHECK(quiesced().empty());
  rest();
  CHECK(quiesced() == std::vector{owner});
  auto next = welcome();
  next.owner = owner + 1;
  attach(next);
  CHECK_FALSE(came(again));
  CHECK_FALSE(came(waiting));
  bind_all();
  CHECK(client().answer_to(again).code() == errc::ok);
  CHECK(client().answer_to(waiting).code() == errc::ok);
  CHECK(attached_as() == owner + 1);
}

TEST_CASE_METHOD(link_world, "link: actors of the previous binding are unbound and those of the last one are bound",
                 "[link]") {
  work();
  probe other(system());
  auto fewer = parts();
  fewer.ranks.pop_back();
  fewer.lookup = other.as<lookup_actor>();
  const auto again = begin(session, bind_atom_v, fewer, duration(limit));
  check_unbound();
  rest();
  attach();
  CHECK(lookup.take<bind_atom, lookup_binding>().empty());
  answer(other, other.take_one<bind_atom, lookup_binding>());
  bind_rank(0);
  CHECK(ranks[1]->copier.take<bind_atom, owner_id, arena_info>().empty());
  CHECK(client().answer_to(again).code() == errc::ok);
}

TEST_CASE_METHOD(link_world, "link: replies to an earlier binding are ignored", "[link]") {
  attach();
  const auto first = bind();
  const auto old_lookup = binding_lookup();
  const auto old_map = mapping(0);
  mapping(1);

  const auto second = bind();
  SECTION("late success") {
    answer(ranks[0]->copier, old_map);
    answer(lookup, old_lookup);
    CHECK(ranks[0]->load.take<bind_atom, coordinator_binding>().empty());
  }
  SECTION("late failure") {
    ranks[0]->copier.reply_error(old_map, errc::unreachable);
    lookup.reply_error(old_lookup, errc::internal);
    run();
  }
  CHECK_FALSE(came(first));
  CHECK_FALSE(came(second));
  attach();
  answer(lookup, binding_lookup());
  bind_rank(0);
  answer(ranks[1]->copier, mapping(1));
  answer(ranks[1]->load, binding(ranks[1]->load));
  CHECK_FALSE(came(second)); // the last one is missing, and none of before stands for it
  answer(ranks[1]->save, binding(ranks[1]->save));
  CHECK(client().answer_to(first).code() == errc::ok);
  CHECK(client().answer_to(second).code() == errc::ok);
}

TEST_CASE_METHOD(link_world, "link: its shutdown answers all waits, unbinds the client and detaches from the node",
                 "[link]") {
  attach();
  const auto bound = bind();
  const auto waiting = wait();
  end(session);
  CHECK(client().answer_to(bound).code() == errc::shutting_down);
  CHECK(client().answer_to(waiting).code() == errc::shutting_down);
  check_unbound();
  check_left();
}

TEST_CASE_METHOD(link_world, "link: its shutdown waits until its copy engines are drained and notifies the node",
                 "[link]") {
  work();
  end(session);
  check_left(); // which does not wait
  CHECK(session_lives());
  CHECK(attached_as() == 0);
  CHECK(ask(session, wait_attached_atom_v, duration(limit)).code() == errc::shutting_down);
  const auto first = resting(0);
  const auto second = resting(1);
  CHECK(first.get<owner_id>(1) == owner);
  answer(ranks[1]->copier, second);
  CHECK(session_lives());
  CHECK(quiesced().empty());
  SECTION("when they are drained") {
    answer(ranks[0]->copier, first);
    CHECK(quiesced() == std::vector{owner});
  }
  SECTION("but nothing where one of them fails") {
    ranks[0]->copier.reply_error(first, errc::unreachable);
    run();
    CHECK(quiesced().empty());
  }
  SECTION("nor where one of them does not answer in time") {
    advance(timeout + std::chrono::milliseconds(20));
    CHECK(quiesced().empty());
  }
  CHECK_FALSE(session_lives());
}

namespace {

/// A link to a host on a network that does not answer unless the test lets it.
struct far_world : sim {
  far_world()
      : sim([](caf::actor_system_config& how) {
          how.load<caf::io::middleman, caf::io::network::test_multiplexer>();
          how.set("middleman.attach-utility-actors", true);
          how.set("middleman.manual-multiplexing", true);
        }) {
    link_options how;
    how.where = {"mars", 4600};
    how.attach.reconnect_backoff_min = std::chrono::milliseconds(200);
    how.attach.reconnect_backoff_max = std::chrono::milliseconds(1600);
    how.attach.request_timeout = std::chrono::seconds(2);
    session = spawn<troupe::link>(how);
  }

  caf::io::network::test_multiplexer& network() {
    return dynamic_cast<caf::io::network::test_multiplexer&>(system().middleman().backend());
  }

  link_actor session;
};

} // namespace

TEST_CASE("link: an unreachable node is retried with a growing back-off", "[link]") {
  // The number of pauses between failed attempts before the time has passed, by the attempt that finds a listener
  // there.
  const auto first_try_after = [](duration silent) {
    far_world w;
    w.advance(silent);
    w.network().provide_scribe("mars", 4600, caf::io::connection_handle::from_int(1));
    duration waited{};
    for (; w.network().has_pending_scribe("mars", 4600) && waited < std::chrono::seconds(10);
         waited += std::chrono::milliseconds(10))
      w.advance(std::chrono::milliseconds(10));
    return waited;
  };
  // Pauses are between half of their step and the whole: 0.2, 0.4, 0.8, 1.6, 1.6 … s.
  const auto early = first_try_after(duration::zero());
  CHECK(early >= std::chrono::milliseconds(100));
  CHECK(early <= std::chrono::milliseconds(220));
  CHECK(first_try_after(std::chrono::seconds(60)) <= std::chrono::milliseconds(1620));
  // At any moment of a minute of failures an attempt follows within the longest pause, mostly later than at first.
  duration longest{};
  for (int i = 0; i < 8; ++i)
    longest = std::max(longest, first_try_after(std::chrono::seconds(10) + i * std::chrono::milliseconds(217)));
  CHECK(longest > std::chrono::milliseconds(400));
  CHECK(longest <= std::chrono::milliseconds(1620));
}

TEST_CASE_METHOD(far_world, "link: a wait for an unreachable node ends with its address and the node is retried",
                 "[link]") {
  const auto waiting = begin(session, wait_attached_atom_v, duration(std::chrono::seconds(5)));
  const auto longer = begin(session, wait_attached_atom_v, duration(std::chrono::hours(1)));
  advance(std::chrono::seconds(5) + std::chrono::milliseconds(100));
  const auto ended = client().answer_to(waiting);
  CHECK(ended.code() == errc::unreachable);
  CHECK(ended.failure.text.find("mars:4600") != std::string::npos);
  CHECK_FALSE(client().answer_to(longer).came);
  advance(std::chrono::minutes(10));
  // Neither attempts nor their timeouts accumulate.
  CHECK(pending_timeouts() < 5);
  end(session);
  CHECK(client().answer_to(longer).code() == errc::shutting_down);
}

TEST_CASE("link: its shutdown releases the dialer", "[link]") {
  sim world;
  probe dialer(world.system());
  const auto held = dialer.as<caf::strong_actor_ptr>();
  const auto before = held->strong_refs.load();
  link_options how;
  how.where = {"mars", 4600};
  how.dialer = dialer.as<caf::io::middleman_actor>();
  const auto session = world.spawn<troupe::link>(how);
  how.dialer = nullptr;
  CHECK(held->strong_refs.load() > before);
  // The link itself is held, as it is by a clock that has a message for it.
  world.end(session);
  dialer.take<caf::connect_atom, std::string, std::uint16_t>();
  CHECK(held->strong_refs.load() == before);
}

} // namespace link_test
