#include "tests/actors/node_support.hpp"
#include "tests/catch.hpp"

namespace node_peers_test {

/// The messages of a node to peers of its cluster.

using namespace troupe;
using namespace troupe::test;

namespace {

struct peer_world : node_world {
  probe peers{system()};

  void join() {
    REQUIRE(ask(supervisor, bind_atom_v, cluster_card{"ours", "test node", 5}, peers.as<cluster_actor>()).code() ==
            errc::ok);
  }
  static cluster_hello hello(const char* cluster = "ours") { return {protocol_version, {cluster, "another", 6}}; }
};

} // namespace

TEST_CASE_METHOD(peer_world, "node: it sends the list of its namespaces to peers of its cluster", "[node][cluster]") {
  CHECK(ask(supervisor, hello()).code() == errc::unsupported);
  join();
  const auto welcome = ask(supervisor, hello()).value<cluster_welcome>();
  CHECK(welcome.node.cluster == "ours");
  CHECK(welcome.node.node == "test node");
  CHECK(welcome.node.incarnation == 5);
  REQUIRE(welcome.namespaces.size() == 2);
  CHECK(welcome.namespaces[0].id == options->namespaces[0].id());
  CHECK(welcome.namespaces[1].name == "other");
  CHECK(ask(supervisor, hello("theirs")).code() == errc::identity_mismatch);
  auto old = hello();
  --old.protocol;
  CHECK(ask(supervisor, old).code() == errc::unsupported);
}

TEST_CASE_METHOD(peer_world, "node: engines can request pages of peers and peers cannot", "[node][cluster]") {
  probe before(system());
  CHECK_FALSE(attach(before).value<attach_reply>().cluster);
  join();
  probe engine(system());
  const auto reply = attach(engine).value<attach_reply>();
  REQUIRE(reply.cluster);
  begin(reply.cluster, prefix_fetch_request{reply.ns_id, {}, packed<key_digest>({{1, 2}})});
  CHECK(peers.take<prefix_fetch_request>().size() == 1);
  CHECK(ask(reply.cluster, prefix_fetch_request{options->namespaces[1].id(), {}, {}}).code() ==
        errc::unknown_namespace);

  probe node(system());
  auto wanted = request();
  wanted.cluster = "ours";
  const auto of_node = attach(node, wanted).value<attach_reply>();
  CHECK_FALSE(of_node.cluster);
  const auto refused = ask(of_node.shards.front(),
                           reserve_request{of_node.ns_id, 0, {of_node.owner, 1}, std::chrono::seconds(1), {}, {}});
  CHECK(refused.code() == errc::not_owner);
  wanted.cluster = "theirs";
  probe stranger(system());
  CHECK(attach(stranger, wanted).code() == errc::identity_mismatch);
}

TEST_CASE_METHOD(peer_world, "node: it sends the location of its slabs to peers of its cluster only",
                 "[node][cluster]") {
  join();
  auto wanted = request();
  wanted.home = home_elsewhere;
  probe engine(system());
  const auto of_engine = attach(engine, wanted).value<attach_reply>();
  REQUIRE(of_engine.ranks.size() == 2);
  CHECK(of_engine.ranks[0].slab == shared_slab{});
  wanted.cluster = "ours";
  probe node(system());
  const auto of_node = attach(node, wanted).value<attach_reply>();
  REQUIRE(of_node.ranks.size() == 2);
  CHECK(of_node.ranks[0].slab == slab0);
  CHECK(of_node.ranks[1].slab == shared_slab{});
  // A client that maps the node's memory does not need them.
  probe neighbour(system());
  wanted.home.clear();
  CHECK(attach(neighbour, wanted).value<attach_reply>().ranks[0].slab == shared_slab{});
}

} // namespace node_peers_test
