#include "tests/actors/node_support.hpp"
#include "tests/catch.hpp"

namespace node_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE_METHOD(node_world, "node: a client gets what it needs to work", "[node]") {
  probe link(system());
  const auto reply = attach(link).value<attach_reply>();
  CHECK(reply.owner != 0);
  CHECK(reply.node_name == "test node");
  CHECK(reply.space == options->namespaces[0]);
  CHECK(reply.limits.batch_keys == options->registry.max_batch_keys);
  CHECK(reply.limits.lease == options->registry.lease_max);
  CHECK(reply.limits.reservation == options->registry.reservation_deadline);
  CHECK(reply.limits.segment_bytes == options->io.client_buffer_bytes);
  CHECK(reply.space_id == options->namespaces[0].id());
  CHECK(reply.shards.size() == 1);
  REQUIRE(reply.ranks.size() == 2);
  CHECK(reply.ranks[1].rank == 1);
  CHECK(reply.ranks[1].slots == 10);

  probe second(system());
  const auto other = attach(second, request("other")).value<attach_reply>();
  CHECK(other.owner != reply.owner);
  CHECK(other.space_id == options->namespaces[1].id());
  CHECK(other.space.name == "other");
  CHECK(other.space.salt == "");
  CHECK(other.ranks.empty());
}

TEST_CASE_METHOD(node_world, "node: a namespace it does not have is refused with those it has", "[node]") {
  probe link(system());
  const auto refused = attach(link, request("tiny"));
  CHECK(refused.code() == errc::unknown_namespace);
  CHECK(refused.failure.text.find("tiny") != std::string::npos);
  CHECK(refused.failure.text.find("small") != std::string::npos);
  CHECK(refused.failure.text.find("other") != std::string::npos);
}

TEST_CASE_METHOD(node_world, "node: another protocol is refused, as is a client that cannot be watched", "[node]") {
  probe link(system());
  auto wanted = request();
  wanted.protocol = protocol_version + 1;
  CHECK(attach(link, wanted).code() == errc::unsupported);
  CHECK(ask(supervisor, request(), caf::actor{}).code() == errc::invalid_argument);
  CHECK(dead().empty());
}

TEST_CASE_METHOD(node_world, "node: nobody attaches with an actor of the node", "[node]") {
  for (auto* child : {&shard, &worker0, &allocator1, &metrics, &namespaces})
    CHECK(ask(supervisor, request(), child->as<caf::actor>()).code() == errc::invalid_argument);
  CHECK(dead().empty());
  worker0.die(); // still watched
  run();
  CHECK(ask(supervisor, stats_atom_v).code() == errc::unreachable);
}

TEST_CASE_METHOD(node_world, "node: so many clients and no more, until one leaves or dies", "[node]") {
  probe a(system());
  probe b(system());
  probe c(system());
  probe d(system());
  const auto first = attached(a);
  attached(b);
  attached(c);
  CHECK(attach(d).code() == errc::limit_exceeded);
  CHECK(ask(supervisor, caf::leave_atom_v, first, a.as<>()).code() == errc::ok);
  CHECK(dead() == std::vector{first});
  attached(d);
  CHECK(attach(a).code() == errc::limit_exceeded);
  b.die();
  run();
  CHECK(dead().size() == 1);
  attached(a);
}

TEST_CASE_METHOD(node_world, "node: the dead and those who leave are declared dead to all, once", "[node]") {
  probe a(system());
  probe b(system());
  const auto first = attached(a);
  const auto second = attached(b);
  CHECK(ask(supervisor, caf::leave_atom_v, first, b.as<>()).code() == errc::not_found);
  CHECK(ask(supervisor, caf::leave_atom_v, first, caf::actor{}).code() == errc::not_found);
  CHECK(dead().empty()); // nobody sends another one away
  CHECK(ask(supervisor, caf::leave_atom_v, first, a.as<>()).code() == errc::ok);
  CHECK(dead() == std::vector{first});
  CHECK(ask(supervisor, caf::leave_atom_v, first, a.as<>()).code() == errc::not_found);
  CHECK(ask(supervisor, caf::leave_atom_v, owner_id{0}, a.as<>()).code() == errc::not_found);
  a.die();
  run();
  CHECK(dead().empty());
  b.die();
  run();
  CHECK(dead() == std::vector{second});
}

TEST_CASE_METHOD(node_world, "node: a link that attaches again replaces itself", "[node]") {
  probe link(system());
  const auto first = attached(link);
  const auto second = attached(link);
  CHECK(first != second);
  CHECK(dead() == std::vector{first});
  for (int i = 0; i < 10; ++i)
    attached(link); // whatever the limit of clients
  CHECK(dead().size() == 10);
  link.die();
  run();
  CHECK(dead().size() == 1);
}

TEST_CASE_METHOD(node_world, "node: the death of a child ends it, and with it the other children", "[node]") {
  probe link(system());
  attached(link);
  const auto counting = begin(supervisor, stats_atom_v);
  const auto which = GENERATE(0, 1, 2, 3);
  (which == 0 ? shard : which == 1 ? worker1 : which == 2 ? allocator0 : metrics).die();
  run();
  CHECK(ask(supervisor, stats_atom_v).code() == errc::unreachable);
  CHECK(client().answer_to(counting).came);
  std::size_t ended = 0;
  for (auto* child : {&shard, &worker0, &worker1, &allocator0, &allocator1, &metrics})
    ended += child->take<caf::exit_msg>().size();
  CHECK(ended == 5);
}

TEST_CASE_METHOD(node_world, "node: its end ends the children", "[node]") {
  end(supervisor);
  for (auto* child : {&shard, &worker0, &worker1, &allocator0, &allocator1, &metrics})
    CHECK(child->take<caf::exit_msg>().size() == 1);
}

TEST_CASE_METHOD(node_world, "node: a drain waits for the workers, and nobody attaches any more", "[node]") {
  probe link(system());
  const auto first = begin(supervisor, drain_atom_v);
  const auto second = begin(supervisor, drain_atom_v);
  CHECK(attach(link).code() == errc::shutting_down);
  worker0.reply(worker0.take_one<drain_atom>(), caf::make_message());
  run();
  CHECK_FALSE(client().answer_to(first).came);
  SECTION("which come to rest") {
    worker1.reply(worker1.take_one<drain_atom>(), caf::make_message());
    run();
  }
  SECTION("but not for ever") {
    advance(std::chrono::seconds(4));
  }
  CHECK(client().answer_to(first).code() == errc::ok);
  CHECK(client().answer_to(second).code() == errc::ok);
  // Asked again, after a lost answer: at once.
  CHECK(ask(supervisor, drain_atom_v).code() == errc::ok);
}

TEST_CASE_METHOD(node_world, "node: its end answers who waits for a drain or for statistics", "[node]") {
  const auto draining = begin(supervisor, drain_atom_v);
  const auto counting = begin(supervisor, stats_atom_v);
  end(supervisor);
  CHECK(client().answer_to(draining).code() == errc::shutting_down);
  CHECK(client().answer_to(counting).code() == errc::shutting_down);
}

TEST_CASE_METHOD(node_world, "node: statistics of all children, or the first error, once", "[node]") {
  probe link(system());
  attached(link);
  const auto number = begin(supervisor, stats_atom_v);
  registry_stats keys;
  keys.keys = 9;
  allocator_stats slots;
  slots.total = 10;
  io_stats io;
  io.read_pages = 4;
  shard.reply(shard.take_one<stats_atom>(), caf::make_message(keys));
  for (auto* x : {&allocator0, &allocator1})
    x->reply(x->take_one<stats_atom>(), caf::make_message(slots));
  worker0.reply(worker0.take_one<stats_atom>(), caf::make_message(io));
  run();
  CHECK_FALSE(client().answer_to(number).came);
  SECTION("all answer") {
    worker1.reply(worker1.take_one<stats_atom>(), caf::make_message(io));
    run();
    const auto stats = client().answer_to(number).value<node_stats>();
    CHECK(stats.clients == 1);
    CHECK(stats.registry.keys == 9);
    REQUIRE(stats.ranks.size() == 2);
    CHECK(stats.ranks[1].rank == 1);
    CHECK(stats.ranks[1].slots.total == 10);
    CHECK(stats.ranks[1].io.read_pages == 4);
    CHECK(stats.ranks[0].space_name == "small");
    CHECK(metrics.take<node_stats>().size() == 1);
  }
  SECTION("one says no") {
    worker1.reply_error(worker1.take_one<stats_atom>(), errc::shutting_down);
    run();
    CHECK(client().answer_to(number).code() == errc::shutting_down);
  }
  SECTION("one is silent") {
    advance(std::chrono::seconds(6));
    CHECK(client().answer_to(number).code() == errc::timeout);
  }
}

TEST_CASE("node: statistics are gathered at their interval, also when some fail", "[node]") {
  node_world w;
  w.end(w.supervisor);
  w.options->statistics_interval = std::chrono::seconds(10);
  w.start();
  w.advance(std::chrono::seconds(21));
  CHECK(w.shard.take<stats_atom>().size() == 2);
  CHECK(w.pending_timeouts() <= 6);
}

} // namespace node_test
