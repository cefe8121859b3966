#include "actors/cluster/passing_memory.hpp"
#include "actors/node/supervisor/peer_terms.hpp"
#include "actors/support/doors/node_roles.hpp"
#include "gpu/host_page_mover.hpp"
#include "tests/catch.hpp"

#include <cstring>
#include <vector>

namespace cluster_terms_test {

using namespace troupe;
using namespace troupe::cluster;

TEST_CASE("peers: nodes of one cluster and one version take each other, and others hear why not", "[cluster]") {
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

TEST_CASE("peers: who came with the certificate of a client is no node until it has left", "[cluster]") {
  node_roles roles;
  CHECK(roles.may_be_node("x"));
  roles.came_as_client("x");
  CHECK_FALSE(roles.may_be_node("x"));
  CHECK(roles.may_be_node("y"));
  roles.left("x");
  CHECK(roles.may_be_node("x"));
}

TEST_CASE("peers: a page passes through memory as it is, whatever its layers are", "[cluster]") {
  kv_geometry geometry{2, 2, 3, 8, 2, 4, {}};
  if (GENERATE(false, true))
    geometry.further.push_back({3, {1, 1, 20, 1}});
  passing_memory memory(geometry, 5);
  REQUIRE(validate(memory.view()));
  const auto mover = make_host_page_mover(memory.view());
  REQUIRE(mover);
  const auto bytes = geometry.page_bytes();
  std::vector<std::byte> from(bytes);
  std::vector<std::byte> to(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    from[i] = static_cast<std::byte>(i * 7 + 1);
  for (std::uint32_t block = 0; block < 5; ++block) {
    std::vector<block_move> in{{block, from.data(), bytes}};
    REQUIRE((*mover)->scatter(in));
    // A block is a page, in one piece.
    CHECK(std::memcmp(memory.view().layers.front().base + block * bytes, from.data(), bytes) == 0);
    std::vector<block_move> out{{block, to.data(), bytes}};
    REQUIRE((*mover)->gather(out));
    CHECK(to == from);
  }
  CHECK(passing_blocks(1000, 100) == 10);
  CHECK(passing_blocks(10, 100) == 4);
}

TEST_CASE("peers: blocks of passing memory are taken once", "[cluster]") {
  block_shelf shelf(4);
  const auto some = shelf.take(3);
  CHECK(some == std::vector<std::uint32_t>{2, 1, 0});
  CHECK(shelf.free() == 1);
  shelf.give_back(some);
  CHECK(shelf.free() == 4);
}

} // namespace cluster_terms_test
