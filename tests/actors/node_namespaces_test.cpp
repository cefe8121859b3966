#include "tests/actors/node_support.hpp"
#include "tests/catch.hpp"

namespace node_namespaces_test {

using namespace troupe;
using namespace troupe::test;

/// Attaching to namespaces that the node creates for its clients.

namespace {

struct making_world : node_world {
  probe allocator{system()};
  probe worker{system()};
  probe link{system()};
  namespace_spec ns = made_namespace();

  making_world() {
    makes = true;
    start();
    run();
    CHECK(namespaces.take<bind_atom, node_actor>().size() == 1);
  }

  static namespace_spec made_namespace() {
    auto out = small_namespace(1);
    out.name = "made";
    out.salt = "of its own";
    return out;
  }

  attach_request wanted(namespace_wish wish = namespace_wish::made) const {
    auto out = request();
    out.wish = wish;
    out.ns = ns;
    return out;
  }

  served_namespace served() {
    return {ns, {{0, 12, 99, worker.as<io_worker_actor>(), allocator.as<allocator_actor>()}}};
  }

  /// The requests to the namespaces actor.
  received asked() { return namespaces.take_one<make_namespace_request>(); }

  /// A client attaches to the namespace, which is made, and asks for something: so it may have frames.
  attach_reply attach_and_ask() {
    const auto number = begin(supervisor, wanted(), link.as<>());
    run();
    namespaces.reply(asked(), caf::make_message(served()));
    run();
    auto reply = client().answer_to(number).value<attach_reply>();
    begin(reply.ranks.front().worker, fetch_atom_v, frame_request{{}, std::chrono::seconds(1)});
    CHECK(worker.take<fetch_atom, owner_id, frame_request>().size() == 1);
    return reply;
  }
};

} // namespace

TEST_CASE_METHOD(making_world, "node: a namespace is created by the first attach and is then like any other",
                 "[node]") {
  const auto first = begin(supervisor, wanted(), link.as<>());
  run();
  const auto wish = asked();
  CHECK(wish.get<make_namespace_request>(0).spec == ns);
  probe other(system());
  const auto second = begin(supervisor, wanted(), other.as<>());
  run();
  const auto again = asked();
  // Others attach meanwhile.
  probe third(system());
  CHECK(attached(third) != 0);
  namespaces.reply(wish, caf::make_message(served()));
  namespaces.reply(again, caf::make_message(served()));
  run();
  for (const auto number : {first, second}) {
    const auto reply = client().answer_to(number).value<attach_reply>();
    CHECK(reply.owner != 0);
    CHECK(reply.ns.name == "made");
    CHECK(reply.ns_id == ns.id());
    CHECK(reply.ns.salt.empty());
    REQUIRE(reply.ranks.size() == 1);
    CHECK(reply.ranks[0].slots == 12);
  }
  // Its io worker is notified of dead clients, and the death of the io worker ends the node.
  link.die();
  run();
  CHECK(worker.take<owner_died_atom, owner_id>().size() == 1);
  probe by_name(system());
  CHECK(attach(by_name, request("made")).code() == errc::ok);
  CHECK(attach(by_name, wanted(namespace_wish::exact)).code() == errc::ok);
  CHECK(namespaces.take<make_namespace_request>().empty());
}

TEST_CASE_METHOD(making_world, "node: clients that wait for a namespace that cannot be created receive the reason",
                 "[node]") {
  const auto number = begin(supervisor, wanted(), link.as<>());
  run();
  namespaces.reply_error(asked(), errc::no_space);
  run();
  CHECK(client().answer_to(number).code() == errc::no_space);
  CHECK(attach(link, wanted(namespace_wish::exact)).code() == errc::unknown_namespace);
  ns = options->namespaces[0];
  ns.model = "another";
  CHECK(attach(link, wanted()).code() == errc::identity_mismatch);
  CHECK(namespaces.take<make_namespace_request>().empty());
}

TEST_CASE_METHOD(making_world, "node: a namespace is released when no former client can access its memory", "[node]") {
  const auto reply = attach_and_ask();
  const auto id = ns.id();
  CHECK(ask(supervisor, leave_namespace_request{id, false}).code() == errc::busy);
  CHECK(ask(supervisor, leave_namespace_request{options->namespaces[0].id(), true}).code() == errc::unknown_namespace);
  CHECK(ask(supervisor, leave_namespace_request{id, true}).code() == errc::ok);
  CHECK(attach(link, wanted()).code() == errc::busy);
  const auto waits = begin(supervisor, unbind_atom_v, id);
  run();
  CHECK_FALSE(client().answer_to(waits).came);
  CHECK(ask(supervisor, owner_quiesced_atom_v, reply.owner).code() == errc::ok);
  run();
  CHECK(client().answer_to(waits).code() == errc::ok);
  // It may die now, and be made again.
  worker.die();
  allocator.die();
  run();
  probe later(system());
  CHECK(attached(later) != 0);
  begin(supervisor, wanted(), link.as<>());
  run();
  CHECK(namespaces.take<make_namespace_request>().size() == 1);
}

TEST_CASE_METHOD(making_world, "node: a namespace is released when clients that may access its memory are overdue",
                 "[node]") {
  const auto reply = attach_and_ask();
  const auto id = ns.id();
  CHECK(ask(supervisor, leave_namespace_request{id, true}).code() == errc::ok);
  const auto waits = begin(supervisor, unbind_atom_v, id);
  advance(node_state::quiesce_expected - std::chrono::seconds(1));
  CHECK_FALSE(client().answer_to(waits).came);
  advance(std::chrono::seconds(2));
  CHECK(client().answer_to(waits).code() == errc::ok);
  // It may still report that it is quiesced.
  CHECK(ask(supervisor, owner_quiesced_atom_v, reply.owner).code() == errc::ok);
}

} // namespace node_namespaces_test
