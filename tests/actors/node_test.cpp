#include "io/page.hpp"
#include "tests/actors/node_support.hpp"
#include "tests/catch.hpp"

namespace node_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE_METHOD(node_world, "node: an attach reply has all that a client needs", "[node]") {
  probe link(system());
  const auto reply = attach(link).value<attach_reply>();
  CHECK(reply.owner != 0);
  CHECK(reply.node_name == "test node");
  CHECK(reply.ns == options->namespaces[0]);
  CHECK(reply.limits.batch_keys == options->registry.max_batch_keys);
  CHECK(reply.limits.lease == options->registry.lease_max);
  CHECK(reply.limits.reservation == options->registry.reservation_deadline);
  CHECK(reply.limits.pinned_bytes == 2 * io::slot_bytes(options->namespaces[0].geometry.page_bytes())); // of little
  CHECK(reply.arena.bytes == 4 * 8192);
  CHECK(reply.arena.extent_bytes == 8192);
  CHECK(reply.arena.name == packed<std::uint8_t>(extents->info().name));
  CHECK(reply.ns_id == options->namespaces[0].id());
  CHECK(reply.shards.size() == 1);
  REQUIRE(reply.ranks.size() == 2);
  CHECK(reply.ranks[1].rank == 1);
  CHECK(reply.ranks[1].slots == 10);

  probe second(system());
  const auto other = attach(second, request("other")).value<attach_reply>();
  CHECK(other.owner != reply.owner);
  CHECK(other.ns_id == options->namespaces[1].id());
  CHECK(other.ns.name == "other");
  CHECK(other.ns.salt == "");
  CHECK(other.ranks.empty());
}

TEST_CASE_METHOD(node_world, "node: an unknown namespace is refused with a list of the known ones", "[node]") {
  probe link(system());
  const auto refused = attach(link, request("tiny"));
  CHECK(refused.code() == errc::unknown_namespace);
  CHECK(refused.failure.text.find("tiny") != std::string::npos);
  CHECK(refused.failure.text.find("small") != std::string::npos);
  CHECK(refused.failure.text.find("other") != std::string::npos);
}

TEST_CASE_METHOD(node_world, "node: another protocol version and a client that cannot be monitored are refused",
                 "[node]") {
  probe link(system());
  auto wanted = request();
  wanted.protocol = protocol_version + 1;
  CHECK(attach(link, wanted).code() == errc::unsupported);
  CHECK(ask(supervisor, request(), caf::actor{}).code() == errc::invalid_argument);
  CHECK(dead().empty());
}

TEST_CASE_METHOD(node_world, "node: a client cannot attach with an actor of the node", "[node]") {
  for (auto* child : {&shard, &worker0, &allocator1, &metrics, &namespaces})
    CHECK(ask(supervisor, request(), child->as<caf::actor>()).code() == errc::invalid_argument);
  CHECK(dead().empty());
  worker0.die(); // still watched
  run();
  CHECK(ask(supervisor, stats_atom_v).code() == errc::unreachable);
}

TEST_CASE_METHOD(node_world, "node: the client limit holds until a client detaches or dies", "[node]") {
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

TEST_CASE_METHOD(node_world, "node: the death or detach of a client is reported to all children once", "[node]") {
  probe a(system());
  probe b(system());
  const auto first = attached(a);
  const auto second = attached(b);
  CHECK(ask(supervisor, caf::leave_atom_v, first, b.as<>()).code() == errc::not_found);
  CHECK(ask(supervisor, caf::leave_atom_v, first, caf::actor{}).code() == errc::not_found);
  CHECK(dead().empty()); // a client cannot detach another one
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

TEST_CASE_METHOD(node_world, "node: a client whose process is on another host is refused", "[node]") {
  probe link(system());
  const auto refused = attach(link, request_of(3));
  CHECK(refused.code() == errc::unreachable);
  CHECK(processes.watched == 0);
  const auto owner = attached(link);
  CHECK(processes.watched == 1);
  // It stays what it was.
  CHECK(attach(link, request_of(3)).code() == errc::unreachable);
  CHECK(dead().empty());
  CHECK(ask(supervisor, caf::leave_atom_v, owner, link.as<>()).code() == errc::ok);
}

TEST_CASE_METHOD(node_world, "node: a disconnected client is quiesced only when its process has exited", "[node]") {
  probe link(system());
  const auto owner = busy_client(link);
  SECTION("it dies") {
    link.die();
    run();
  }
  SECTION("it detaches") {
    CHECK(ask(supervisor, caf::leave_atom_v, owner, link.as<>()).code() == errc::ok);
  }
  CHECK(dead() == std::vector{owner});
  advance(std::chrono::seconds(2));
  CHECK(rested().empty());
  CHECK(processes.looks >= 20);
  CHECK(processes.watched == 1);
  processes.alive.erase(1);
  advance(std::chrono::milliseconds(100));
  CHECK(rested() == std::vector{owner});
  CHECK(processes.watched == 0);
  // No process is watched any more.
  CHECK(pending_timeouts() == 0);
  const auto looks = processes.looks;
  advance(std::chrono::seconds(2));
  CHECK(processes.looks == looks);
  CHECK(rested().empty());
}

TEST_CASE_METHOD(node_world, "node: a disconnected client is quiesced once when it reports so", "[node]") {
  probe link(system());
  const auto process = GENERATE(1, process_table::own);
  const auto owner = busy_client(link, process);
  CHECK(processes.watched == (process == 1 ? 1U : 0U));
  const auto early = ask(supervisor, owner_quiesced_atom_v, owner);
  CHECK(early.code() == errc::busy);
  CHECK(rested().empty());
  link.die();
  run();
  CHECK(dead() == std::vector{owner});
  advance(std::chrono::seconds(1));
  CHECK(rested().empty());
  CHECK(ask(supervisor, owner_quiesced_atom_v, owner).code() == errc::ok);
  CHECK(rested() == std::vector{owner});
  CHECK(ask(supervisor, owner_quiesced_atom_v, owner).code() == errc::ok);
  CHECK(ask(supervisor, owner_quiesced_atom_v, owner_id{4711}).code() == errc::ok);
  processes.alive.erase(1);
  advance(std::chrono::seconds(1));
  CHECK(rested().empty());
  CHECK(pending_timeouts() == 0);
}

TEST_CASE_METHOD(node_world, "node: a client that never sent a request is quiesced when it disconnects", "[node]") {
  probe link(system());
  const auto first = attached(link); // and the reply was lost, for example
  const auto second = attached(link);
  CHECK(dead() == std::vector{first});
  CHECK(rested() == std::vector{first});
  link.die();
  run();
  CHECK(dead() == std::vector{second});
  CHECK(rested() == std::vector{second});
  CHECK(processes.watched == 0);
}

TEST_CASE_METHOD(node_world, "node: the death of a client is reported before its quiescence", "[node]") {
  probe link(system());
  const auto owner = attached(link);
  link.die();
  run();
  for (auto* worker : {&worker0, &worker1}) {
    const auto death = worker->take_one<owner_died_atom, owner_id>();
    const auto rest = worker->take_one<owner_quiesced_atom, owner_id>();
    CHECK(rest.get<owner_id>(1) == owner);
    CHECK(death.id.request_id().integer_value() < rest.id.request_id().integer_value());
  }
}

TEST_CASE_METHOD(node_world,
                 "node: disconnected clients that are not quiesced count against the limit and in statistics",
                 "[node]") {
  probe a(system());
  probe b(system());
  probe c(system());
  const auto first = busy_client(a);
  busy_client(b, 2);
  busy_client(c);
  a.die();
  b.die();
  run();
  probe d(system());
  const auto refused = attach(d);
  CHECK(refused.code() == errc::limit_exceeded);
  CHECK(refused.failure.text.find("1 clients are attached") != std::string::npos);
  CHECK(refused.failure.text.find("2 have disconnected") != std::string::npos);
  CHECK(refused.failure.text.find("io.max_clients") != std::string::npos);
  const auto counting = begin(supervisor, stats_atom_v);
  shard.reply(shard.take_one<stats_atom>(), caf::make_message(registry_stats{}));
  for (auto* x : {&allocator0, &allocator1})
    x->reply(x->take_one<stats_atom>(), caf::make_message(allocator_stats{}));
  for (auto* x : {&worker0, &worker1})
    x->reply(x->take_one<stats_atom>(), caf::make_message(io_stats{}));
  run();
  const auto stats = client().answer_to(counting).value<node_stats>();
  CHECK(stats.clients == 1);
  CHECK(stats.disconnected_clients == 2);
  SECTION("one reports it") {
    CHECK(ask(supervisor, owner_quiesced_atom_v, first).code() == errc::ok);
  }
  SECTION("a process exits") {
    processes.alive.erase(2);
    advance(std::chrono::milliseconds(100));
  }
  attached(d);
  probe e(system());
  CHECK(attach(e).code() == errc::limit_exceeded);
}

TEST_CASE_METHOD(node_world, "node: its shutdown stops watching the processes of its clients", "[node]") {
  probe a(system());
  probe b(system());
  busy_client(a);
  busy_client(b, 2);
  a.die();
  run();
  CHECK(processes.watched == 2);
  end(supervisor);
  CHECK(processes.watched == 0);
}

TEST_CASE_METHOD(node_world, "node: a second attach of a link replaces the first", "[node]") {
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

TEST_CASE_METHOD(node_world, "node: the death of a child ends it and the other children", "[node]") {
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

TEST_CASE_METHOD(node_world, "node: its shutdown ends the children", "[node]") {
  end(supervisor);
  for (auto* child : {&shard, &worker0, &worker1, &allocator0, &allocator1, &metrics})
    CHECK(child->take<caf::exit_msg>().size() == 1);
}

TEST_CASE_METHOD(node_world, "node: a drain waits for the workers and refuses new clients", "[node]") {
  probe link(system());
  const auto first = begin(supervisor, drain_atom_v);
  const auto second = begin(supervisor, drain_atom_v);
  CHECK(attach(link).code() == errc::shutting_down);
  worker0.reply(worker0.take_one<drain_atom>(), caf::make_message());
  run();
  CHECK_FALSE(client().answer_to(first).came);
  SECTION("which are drained") {
    worker1.reply(worker1.take_one<drain_atom>(), caf::make_message());
    run();
  }
  SECTION("but only for a limited time") {
    advance(std::chrono::seconds(4));
  }
  CHECK(client().answer_to(first).code() == errc::ok);
  CHECK(client().answer_to(second).code() == errc::ok);
  // Asked again, after a lost answer: at once.
  CHECK(ask(supervisor, drain_atom_v).code() == errc::ok);
}

TEST_CASE_METHOD(node_world, "node: its shutdown answers pending drains and statistics requests", "[node]") {
  const auto draining = begin(supervisor, drain_atom_v);
  const auto counting = begin(supervisor, stats_atom_v);
  end(supervisor);
  CHECK(client().answer_to(draining).code() == errc::shutting_down);
  CHECK(client().answer_to(counting).code() == errc::shutting_down);
}

TEST_CASE_METHOD(node_world, "node: statistics get one reply with those of all children or the first error", "[node]") {
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
  SECTION("all children answer") {
    worker1.reply(worker1.take_one<stats_atom>(), caf::make_message(io));
    run();
    const auto stats = client().answer_to(number).value<node_stats>();
    CHECK(stats.clients == 1);
    CHECK(stats.registry.keys == 9);
    REQUIRE(stats.ranks.size() == 2);
    CHECK(stats.ranks[1].rank == 1);
    CHECK(stats.ranks[1].slots.total == 10);
    CHECK(stats.ranks[1].io.read_pages == 4);
    CHECK(stats.ranks[0].namespace_name == "small");
    CHECK(metrics.take<node_stats>().size() == 1);
  }
  SECTION("one child refuses") {
    worker1.reply_error(worker1.take_one<stats_atom>(), errc::shutting_down);
    run();
    CHECK(client().answer_to(number).code() == errc::shutting_down);
  }
  SECTION("one child does not answer") {
    advance(std::chrono::seconds(6));
    CHECK(client().answer_to(number).code() == errc::timeout);
  }
}

TEST_CASE("node: statistics are collected at their interval even if some fail", "[node]") {
  node_world w;
  w.end(w.supervisor);
  w.options->statistics_interval = std::chrono::seconds(10);
  w.start();
  w.advance(std::chrono::seconds(21));
  CHECK(w.shard.take<stats_atom>().size() == 2);
  CHECK(w.pending_timeouts() <= 6);
}

TEST_CASE("node: a client whose process has exited frees its slot although its link stays", "[node]") {
  node_world w;
  w.end(w.supervisor);
  w.options->statistics_interval = std::chrono::seconds(1);
  w.start();
  probe first(w.system());
  probe second(w.system());
  // A forked child keeps the connection open, so the link does not end.
  const auto a = w.busy_client(first, 1);
  w.busy_client(second, 2);
  w.advance(std::chrono::seconds(2));
  CHECK(w.dead().empty());
  w.processes.alive.erase(1);
  w.advance(std::chrono::seconds(2));
  CHECK(w.dead() == std::vector{a});
  CHECK(w.rested() == std::vector{a});
  CHECK(w.processes.watched == 1);

  // An actor of the node's own process may still use the frames of a client: it ends the attachment itself.
  probe third(w.system());
  auto wanted = w.request_of(2);
  wanted.home = home_in_node;
  const auto c = w.ask(w.supervisor, wanted, third.as<>()).value<attach_reply>().owner;
  w.processes.alive.erase(2);
  w.advance(std::chrono::seconds(2));
  CHECK(w.dead() != std::vector{c});
  CHECK(w.processes.watched == 1);
}

} // namespace node_test
