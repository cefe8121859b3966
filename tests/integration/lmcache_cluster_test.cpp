#include "tests/catch.hpp"
#include "tests/integration/clusters.hpp"
#include "tests/integration/lmcache_engine.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/patience.hpp"

#include <csignal>
#include <thread>

namespace lmcache_cluster_test {

/// Nodes that are peers of each other, each with clients of LMCache, which look up in all of them.

using namespace troupe::test;
using stream = process::stream;

namespace {

struct lmcache_nodes : test_cluster {
  explicit lmcache_nodes(bool soon = false) : test_cluster(2) {
    fails_soon = soon;
    change = [](std::size_t, nlohmann::json& config) {
      config["lmcache"] = {{"enabled", true}, {"port", 0}, {"chunk_tokens", lmcache_chunk}};
      config["storage"] = {{"disk_bytes", "256 MiB"}, {"ranks", nlohmann::json::array()}};
      config["memory"] = {{"bytes", "64 MiB"}};
      config["namespaces"] = nlohmann::json::array();
    };
    for (std::size_t i = 0; i < all.size(); ++i)
      start(i);
  }

  lmcache_engine engine_at(std::size_t i, std::int64_t instance, lmcache_engine::shape how = {}) {
    return {lmcache_port(node(i).ready_line()), instance, how};
  }
  /// A namespace that workers make counts when both nodes have it.
  void wait_for_each_other() {
    for (std::size_t i = 0; i < all.size(); ++i)
      wait_for_peers(i, all.size() - 1);
  }
};

} // namespace

TEST_CASE("lmcache cluster: pages stored by LMCache workers on one node are found and correct on another",
          "[lmcache][cluster]") {
  lmcache_nodes nodes;
  auto one = nodes.engine_at(0, 1);
  auto two = nodes.engine_at(1, 2);
  nodes.wait_for_each_other();
  REQUIRE(one.store(1, 5));
  // No node has the chunks behind it.
  CHECK(two.look_up(1, 8, "a") == 5);
  CHECK(two.retrieve(1, 0, 5, "a"));
  CHECK_FALSE(two.scheduler.call(lmcache_operation::end_session, {"a"}));
  CHECK(sum_of_metric(nodes.node(1), "troupe_peer_pages_total") == 5);
  // The one at home goes first, as for any lookup.
  CHECK(eventually([&] { return sum_of_metric(nodes.node(0), "troupe_evict_first_keys") == 5; }));
  CHECK(nodes.status(1).find("node-0") != std::string::npos);
  // They are pages of that node now, and are not asked for twice.
  CHECK(two.look_up(1, 5, "b") == 5);
  CHECK(sum_of_metric(nodes.node(1), "troupe_peer_pages_total") == 5);
  // In the other direction, and behind local chunks.
  REQUIRE(two.store(1, 7));
  REQUIRE(one.store(2, 2));
  REQUIRE(two.store(2, 6));
  CHECK(one.look_up(1, 9, "c") == 7);
  CHECK(one.retrieve(1, 0, 7, "c"));
  CHECK(one.look_up(2, 6, "d") == 6);
  CHECK(one.retrieve(2, 0, 6, "d"));
  CHECK(one.look_up(3, 6, "e") == 0);
  // Fetched pages stay.
  nodes.node(0).program().kill();
  CHECK(two.look_up(1, 7, "f") == 7);
  CHECK(two.retrieve(1, 0, 7, "f"));
  nodes.all[0].reset();
  nodes.stop_all();
}

TEST_CASE("lmcache cluster: a chunk of an engine with several workers is found elsewhere only if all have stored it",
          "[lmcache][cluster]") {
  lmcache_nodes nodes;
  std::vector<lmcache_engine> here;
  std::vector<lmcache_engine> there;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    here.push_back(nodes.engine_at(0, 10 + rank, {64, 2, rank}));
    there.push_back(nodes.engine_at(1, 20 + rank, {64, 2, rank}));
  }
  nodes.wait_for_each_other();
  REQUIRE(here[0].store(1, 5));
  CHECK(there[0].look_up(1, 5, "a") == 0);
  REQUIRE(here[1].store(1, 3));
  CHECK(there[0].look_up(1, 5, "b") == 3);
  for (auto& x : there)
    CHECK(x.retrieve(1, 0, 3, "b"));
  CHECK(sum_of_metric(nodes.node(1), "troupe_peer_pages_total") == 6);
  nodes.stop_all();
}

TEST_CASE("lmcache cluster: lookups elsewhere end with local pages when the node with LMCache's pages is killed",
          "[lmcache][cluster]") {
  constexpr std::uint32_t sequences = 10;
  constexpr std::uint32_t chunks = 8;
  const lmcache_engine::shape large{4096, 1, 0};
  lmcache_nodes nodes;
  auto one = nodes.engine_at(0, 1, large);
  auto two = nodes.engine_at(1, 2, large);
  nodes.wait_for_each_other();
  for (std::uint32_t i = 0; i < sequences; ++i)
    REQUIRE(one.store(i, chunks));
  const auto request_of = [](std::uint32_t i) { return "killed-" + std::to_string(i); };
  for (std::uint32_t i = 0; i < sequences; ++i)
    two.begin_lookup(i, chunks, request_of(i));
  REQUIRE(eventually([&] { return sum_of_metric(nodes.node(1), "troupe_peer_pages_total") > 0; }));
  nodes.node(0).program().kill();
  // Each lookup in progress ends, and the pages that it found are right.
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i < sequences; ++i) {
    const auto count = two.found_by(request_of(i));
    CHECK(count <= chunks);
    found += count;
    if (count > 0)
      CHECK(two.retrieve(i, 0, count, request_of(i)));
    CHECK_FALSE(two.scheduler.call(lmcache_operation::end_session, {request_of(i)}));
  }
  INFO(found << " chunks were found");
  nodes.node(1).program().wait_for_line(stream::err, "peer disconnected");
  // A chunk that no node has is a miss without a wait.
  CHECK(two.look_up(100, chunks, "later") == 0);
  CHECK(two.store(100, chunks));
  CHECK(two.look_up(100, chunks, "again") == chunks);

  nodes.all[0].reset();
  nodes.start(0);
  auto anew = nodes.engine_at(0, 1, large);
  nodes.wait_for_peers(0, 1);
  CHECK(anew.look_up(100, chunks, "anew") == chunks);
  CHECK(anew.retrieve(100, 0, chunks, "anew"));
  nodes.stop_all();
}

TEST_CASE("lmcache cluster: a frozen node delays lookups of LMCache clients elsewhere by the limit at most",
          "[lmcache][cluster]") {
  lmcache_nodes nodes(true);
  auto one = nodes.engine_at(0, 1);
  auto two = nodes.engine_at(1, 2);
  nodes.wait_for_each_other();
  REQUIRE(one.store(1, 5));
  REQUIRE(two.store(1, 2));
  nodes.node(0).program().send(SIGSTOP);
  two.begin_lookup(1, 5, "a");
  two.begin_lookup(1, 5, "cancelled");
  CHECK_FALSE(two.scheduler.call(lmcache_operation::end_session, {"cancelled"}));
  // All other requests are served meanwhile.
  CHECK(two.store(2, 3));
  CHECK(two.look_up(2, 3, "b") == 3);
  CHECK(two.found_by("a") == 2);
  CHECK(two.retrieve(1, 0, 2, "a"));
  CHECK(two.found_by("cancelled") == 0);
  nodes.node(0).program().send(SIGCONT);
  CHECK(eventually([&] { return two.look_up(1, 5, "c") == 5; }, std::chrono::milliseconds(50)));
  CHECK(two.retrieve(1, 0, 5, "c"));
  nodes.stop_all();
}

} // namespace lmcache_cluster_test
