#include "actors/node/supervisor/peer_terms.hpp"
#include "actors/support/listeners/node_roles.hpp"
#include "tests/catch.hpp"

#include <vector>

namespace cluster_terms_test {

using namespace troupe;

TEST_CASE("peers: nodes of one cluster and version accept each other, and others get the reason", "[cluster]") {
  const cluster_card own{"ours", "a", 5};
  CHECK(judge_peer(own, 10, {10, {"ours", "b", 6}}));
  const auto other = judge_peer(own, 10, {10, {"theirs", "b", 6}});
  REQUIRE_FALSE(other);
  CHECK(other.error().code == errc::identity_mismatch);
  CHECK(other.error().text.find("'a' is part of cluster 'ours', not of 'theirs'") != std::string::npos);
  const auto old = judge_peer(own, 10, {9, {"ours", "b", 6}});
  REQUIRE_FALSE(old);
  CHECK(old.error().code == errc::unsupported);
  const auto alone = judge_peer(cluster_card{"", "a", 5}, "ours");
  REQUIRE_FALSE(alone);
  CHECK(alone.error().code == errc::unsupported);
}

TEST_CASE("peers: a connection with a client certificate may not act as a node until it disconnects", "[cluster]") {
  node_roles roles;
  CHECK(roles.may_be_node("x"));
  roles.came_as_client("x");
  CHECK_FALSE(roles.may_be_node("x"));
  CHECK(roles.may_be_node("y"));
  roles.left("x");
  CHECK(roles.may_be_node("x"));
}

} // namespace cluster_terms_test
