#include "actors/node/namespaces/namespaces.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"

namespace namespaces_made_test {

using namespace troupe;
using namespace troupe::test;

// Namespaces that clients make, over real shards; what opens and closes them is a probe, as is the node.

namespace {

struct made_world : registry_world {
  made_world() : registry_world(8, 2) {
    namespaces_config how;
    how.shards = shards;
    how.own = {ns};
    how.names = names;
    how.keeper = keeper.as<namespace_manager_actor>();
    how.judge = [](const namespace_spec& x) -> result<void> {
      if (x.world_size > 4)
        return fail(errc::invalid_argument, "too many ranks");
      return {};
    };
    ns_actor = spawn<namespaces>(how, std::vector<add_namespace_request>{}, std::vector<known_rank>{});
    // Only the node itself reports it, and only once.
    CHECK(ask(ns_actor, bind_atom_v, node.as<node_actor>()).code() == errc::ok);
    CHECK(ask(ns_actor, bind_atom_v, node.as<node_actor>()).code() == errc::exists);
    spec = small_namespace(1);
    spec.name = "made";
    spec.salt = "a secret";
    id = spec.id();
  }

  served_namespace served() {
    return {spec, {{0, 8, 77, worker.as<io_worker_actor>(), allocator.as<allocator_actor>()}}};
  }
  void open() { keeper.reply(keeper.take_one<open_namespace_request>(), caf::make_message(served())); }

  /// Whether every shard knows it, or none does.
  bool known() {
    std::size_t n = 0;
    for (const auto& shard : shards)
      n += ask(shard, describe_request{id}).code() == errc::ok ? 1 : 0;
    CHECK((n == 0 || n == shards.size()));
    return n > 0;
  }

  void make() {
    const auto number = begin(ns_actor, make_namespace_request{spec});
    open();
    run();
    REQUIRE(client().answer_to(number).code() == errc::ok);
  }

  probe keeper{system()};
  probe node{system()};
  probe worker{system()};
  probe allocator{system()};
  std::shared_ptr<namespace_names> names = std::make_shared<namespace_names>();
  namespaces_actor ns_actor;
  namespace_spec spec;
  namespace_id id;
};

} // namespace

TEST_CASE("namespaces: a namespace created by a client is known everywhere when the reply is sent", "[namespaces]") {
  made_world w;
  const auto first = w.begin(w.ns_actor, make_namespace_request{w.spec});
  const auto second = w.begin(w.ns_actor, make_namespace_request{w.spec});
  CHECK(w.known());
  CHECK_FALSE(w.names->find("made"));
  CHECK(w.ask(w.ns_actor, add_namespace_request{w.spec, {}}).code() == errc::busy);
  w.open();
  w.run();
  for (const auto number : {first, second}) {
    const auto made = w.client().answer_to(number).value<served_namespace>();
    CHECK(made.spec == w.spec);
    CHECK(made.ranks.size() == 1);
  }
  CHECK(w.names->find("made") == w.id);
  CHECK(w.names->kept_here(w.id));
  const auto info = w.ask(w.shards[1], describe_request{w.id}).value<describe_reply>().namespaces.at(0);
  CHECK(info.options.origin == namespace_origin::client);
  CHECK(info.ranks[0].slots == 8);
  // No client can register its ranks.
  CHECK(w.ask(w.ns_actor, register_rank_request{w.id, 0, 8}).code() == errc::not_owner);
  // Made again: there it is.
  CHECK(w.ask(w.ns_actor, make_namespace_request{w.spec}).code() == errc::ok);
  CHECK(w.keeper.take<open_namespace_request>().empty());
}

TEST_CASE("namespaces: a failed creation leaves nothing behind", "[namespaces]") {
  made_world w;
  SECTION("it does not fit the node") {
    w.spec.world_size = 5;
    CHECK(w.ask(w.ns_actor, make_namespace_request{w.spec}).code() == errc::invalid_argument);
    w.id = w.spec.id();
  }
  SECTION("it cannot be opened") {
    const auto number = w.begin(w.ns_actor, make_namespace_request{w.spec});
    w.keeper.reply_error(w.keeper.take_one<open_namespace_request>(), errc::no_space);
    w.run();
    CHECK(w.client().answer_to(number).code() == errc::no_space);
  }
  SECTION("its name belongs to a namespace whose salt is not disclosed") {
    auto other = w.spec;
    other.salt = "another secret";
    w.make();
    const auto refused = w.ask(w.ns_actor, make_namespace_request{other});
    CHECK(refused.code() == errc::identity_mismatch);
    CHECK(refused.failure.text.find("secret") == std::string::npos);
    w.id = other.id();
  }
  SECTION("a slot client has created it") {
    REQUIRE(w.ask(w.ns_actor, add_namespace_request{w.spec, {}}).code() == errc::ok);
    CHECK(w.ask(w.ns_actor, make_namespace_request{w.spec}).code() == errc::identity_mismatch);
    REQUIRE(w.ask(w.ns_actor, remove_namespace_request{w.id, false}).code() == errc::ok);
  }
  CHECK_FALSE(w.known());
  CHECK(w.keeper.take<open_namespace_request>().empty());
  CHECK(w.keeper.take<close_namespace_request>().empty());
  CHECK_FALSE(w.names->kept_here(w.id));
}

TEST_CASE("namespaces: a namespace created by a client is removed when the node reports it unused", "[namespaces]") {
  made_world w;
  w.make();
  auto number = w.begin(w.ns_actor, remove_namespace_request{w.id, false});
  w.node.reply_error(w.node.take_one<leave_namespace_request>(), errc::busy);
  w.run();
  CHECK(w.client().answer_to(number).code() == errc::busy);
  CHECK(w.node.take<bind_atom, namespace_id>().size() == 1);
  CHECK(w.known());
  number = w.begin(w.ns_actor, remove_namespace_request{w.id, true});
  const auto leave = w.node.take_one<leave_namespace_request>();
  CHECK(leave.get<leave_namespace_request>(0).force);
  w.node.reply(leave, caf::make_message());
  w.run();
  // First the shards, then the node, then the files.
  CHECK_FALSE(w.known());
  CHECK(w.keeper.take<close_namespace_request>().empty());
  w.node.reply(w.node.take_one<unbind_atom, namespace_id>(), caf::make_message());
  w.run();
  CHECK_FALSE(w.client().answer_to(number).came);
  w.keeper.reply(w.keeper.take_one<close_namespace_request>(), caf::make_message());
  w.run();
  CHECK(w.client().answer_to(number).code() == errc::ok);
  CHECK_FALSE(w.names->find("made"));
  w.make();
  CHECK(w.known());
}

TEST_CASE("namespaces: a namespace that a slot client adds too stays the client's and is removed completely",
          "[namespaces]") {
  made_world w;
  w.make();
  CHECK(w.ask(w.ns_actor, add_namespace_request{w.spec, {}}).code() == errc::ok);
  CHECK(w.ask(w.ns_actor, add_namespace_request{w.spec, {.slot_index = true}}).code() == errc::identity_mismatch);
  const auto number = w.begin(w.ns_actor, remove_namespace_request{w.id, false});
  w.node.reply(w.node.take_one<leave_namespace_request>(), caf::make_message());
  w.run();
  w.node.reply(w.node.take_one<unbind_atom, namespace_id>(), caf::make_message());
  w.run();
  w.keeper.reply(w.keeper.take_one<close_namespace_request>(), caf::make_message());
  w.run();
  CHECK(w.client().answer_to(number).code() == errc::ok);
  CHECK_FALSE(w.names->find("made"));
  w.make();
  CHECK(w.known());
}

TEST_CASE("namespaces: a removal that one shard refuses removes nothing from the others", "[namespaces]") {
  made_world w;
  w.make();
  // A reservation, in one shard.
  std::uint64_t key = 1;
  while (shard_of(test_task(1, key).keys.items.front(), 2) != 1)
    ++key;
  const reserve_request wanted{w.id, 0, {7, 1}, std::chrono::seconds(30), test_task(1, key).keys, {}};
  const auto reserved = w.begin(w.shards[1], wanted);
  w.run();
  w.allocator.reply(w.allocator.take_one<take_atom, std::uint32_t, duration>(),
                    caf::make_message(take_reply{{std::vector{slot_ref{3, 100}}}}));
  w.run();
  REQUIRE(w.client().answer_to(reserved).code() == errc::ok);
  const auto number = w.begin(w.ns_actor, remove_namespace_request{w.id, false});
  w.node.reply(w.node.take_one<leave_namespace_request>(), caf::make_message());
  w.run();
  CHECK(w.client().answer_to(number).code() == errc::busy);
  CHECK(w.node.take<bind_atom, namespace_id>().size() == 1);
  CHECK(w.known());
  CHECK(w.names->find("made") == w.id);
}

} // namespace namespaces_made_test
