#include "tests/catch.hpp"
#include "tests/integration/clusters.hpp"
#include "tests/integration/hybrid_engine.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/patience.hpp"

#include <optional>
#include <string>

namespace capi_groups_cluster_test {

/// Engines with several groups of layers at nodes that are peers of each other.

using namespace troupe::test;
using namespace troupe::test::hybrid;
using stream = process::stream;

namespace {

/// Two nodes whose namespaces are made by their engines.
struct two_nodes {
  explicit two_nodes(bool fails_soon = false) : all(2) {
    all.fails_soon = fails_soon;
    all.change = [](std::size_t, nlohmann::json& config) {
      config["namespaces"] = nlohmann::json::array();
      config["storage"]["ranks"] = nlohmann::json::array();
      config["memory"]["bytes"] = "64 MiB";
      config["cluster"]["hello_interval"] = "300 ms";
    };
    all.start(0);
    all.start(1);
    for (std::size_t i = 0; i < 2; ++i)
      connect(i);
  }

  void connect(std::size_t i) {
    engines[i].reset();
    connections[i] = connect_to(all.node(i).address());
    engines[i].emplace(connections[i].get(), three_groups());
  }
  /// Until the node can ask the other one about all three groups.
  void wait_for_sessions(std::size_t i, std::size_t from = 0) { all.wait_for_peers(i, 3, from); }

  double fetched() { return sum_of_metric(all.node(1), "troupe_peer_pages_total"); }

  test_cluster all;
  std::array<capi_handle<troupe_connection>, 2> connections{};
  std::array<std::optional<hybrid_engine>, 2> engines{};
};

const table_list blocks_for_load{
    {{30, 31, 32}, {none, none, none, 33, 34, 35}, {none, none, none, 36, 37, 38}, {none, none, 39}}};

void load(hybrid_engine& engine, const std::string& id, const std::vector<std::uint32_t>& prompt) {
  engine.allocated(id, blocks_for_load, 96);
  engine.until([&] { return engine.received(id); });
  CHECK_FALSE(engine.failed(id));
  for (std::uint32_t t = 0; t < tables; ++t)
    for (std::size_t i = 0; i < blocks_for_load[t].size(); ++i)
      if (blocks_for_load[t][i] != none)
        CHECK(engine.holds(t, blocks_for_load[t][i], hybrid_engine::content(prompt, t, i)));
  CHECK_FALSE(engine.finish(id));
}

} // namespace

TEST_CASE("capi groups cluster: a hybrid model finds at another node what one saved, and only what the hit needs moves",
          "[capi]") {
  two_nodes x;
  x.wait_for_sessions(1);
  const auto prompt = prompt_from(3);
  save(*x.engines[0], prompt);
  REQUIRE(x.engines[1]->matched("load", prompt) == 96);
  // Three pages of full attention, two with the last 47 tokens of the window, one state.
  CHECK(x.fetched() == 6);
  const auto fetched = x.engines[1]->fetched_for("load");
  CHECK(fetched.pages == 6);
  // A search and a fetch of each group.
  CHECK(fetched.requests == 6);
  CHECK(fetched.seconds > 0);
  load(*x.engines[1], "load", prompt);
  // They are here now.
  CHECK(x.engines[1]->matched("again", prompt) == 96);
  CHECK(x.engines[1]->fetched_for("again").pages == 0);
  CHECK(x.engines[1]->fetched_for("unknown").requests == 0);
  CHECK_FALSE(x.engines[1]->finish("again"));
  CHECK(x.fetched() == 6);
  // What the engine has itself is not fetched for a longer prompt that ends elsewhere.
  CHECK(x.engines[1]->matched("unknown", prompt_from(4)) == 0);
  CHECK(x.fetched() == 6);
  // The copies where they came from are evicted first.
  CHECK(eventually([&] { return sum_of_metric(x.all.node(0), "troupe_evict_first_keys") == 6; }));
  x.engines = {};
  x.all.stop_all();
}

TEST_CASE("capi groups cluster: a group of which a peer has nothing allows no hit, and no page of others moves",
          "[capi]") {
  two_nodes x;
  x.wait_for_sessions(1);
  const auto prompt = prompt_from(7);
  save(*x.engines[0], prompt);
  const auto* const emptied = GENERATE("model.window-48", "model.state", "model.full");
  CHECK(http(x.all.node(0), "POST", std::string("/v1/namespaces/") + emptied + "/clear").status == 200);
  CHECK(x.engines[1]->matched("load", prompt) == 0);
  CHECK(x.fetched() == 0);
  x.engines = {};
  x.all.stop_all();
}

TEST_CASE("capi groups cluster: a peer that serves only some groups of a model is no source for it", "[capi]") {
  two_nodes x;
  x.wait_for_sessions(1);
  const auto prompt = prompt_from(9);
  save(*x.engines[0], prompt);
  x.engines[0].reset();
  REQUIRE(http(x.all.node(0), "DELETE", "/v1/namespaces/model.state?force=true").status < 300);
  CHECK(x.engines[1]->matched("load", prompt) == 0);
  CHECK(x.fetched() == 0);
  x.engines = {};
  x.all.stop_all();
}

TEST_CASE("capi groups cluster: a node that ends costs a hybrid model its hits, and is used again when it returns",
          "[capi]") {
  two_nodes x(true);
  x.wait_for_sessions(1);
  const auto prompt = prompt_from(11);
  save(*x.engines[0], prompt);
  x.all.node(0).program().kill();
  CHECK(x.engines[1]->matched("lost", prompt) == 0);
  CHECK_FALSE(x.engines[1]->finish("lost"));
  CHECK(x.fetched() == 0);
  x.engines[0].reset();
  x.connections[0].reset();
  x.all.all[0].reset();
  const auto seen = x.all.node(1).log_mark();
  x.all.start(0);
  x.connect(0);
  x.wait_for_sessions(1, seen);
  const auto other = prompt_from(500);
  save(*x.engines[0], other);
  REQUIRE(x.engines[1]->matched("found", other) == 96);
  load(*x.engines[1], "found", other);
  x.engines = {};
  x.all.stop_all();
}

} // namespace capi_groups_cluster_test
