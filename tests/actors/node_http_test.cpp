#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/system_config.hpp"
#include "base/bound_socket.hpp"
#include "base/log.hpp"
#include "http/node_http.hpp"
#include "io/page.hpp"
#include "tests/actors/node_with_http.hpp"
#include "tests/patience.hpp"
#include "tests/unit/http_support.hpp"
#include "tests/unit/io_support.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace node_http_test {

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

/// Knows of one other node, and of etcd.
cluster_actor::behavior_type one_peer(cluster_actor::pointer) {
  return {[](const prefix_fetch_request&) { return prefix_fetch_reply{}; },
          [](const search_peers_request&) { return search_peers_reply{}; },
          [](const fetch_pages_request&) { return prefix_fetch_reply{}; },
          [](stats_atom) {
            cluster_stats out{"ours", {}};
            out.peers.emplace_back().address = "there:7000";
            out.etcd.endpoints = "there:2379";
            return out;
          },
          [](caf::tick_atom) {}};
}

} // namespace

TEST_CASE_METHOD(node_with_http, "node over HTTP: a namespace of the config cannot be changed", "[node_http]") {
  CHECK(post("/v1/namespaces", spec()).code == 201);
  CHECK(post("/v1/namespaces/small/ranks", {{"rank", 0}, {"slots", node_slots}}).code == 204);
  const auto other = post("/v1/namespaces/small/ranks", {{"rank", 0}, {"slots", node_slots + 1}});
  CHECK(other.code == 409);
  CHECK(other.says("storage.ranks"));
  CHECK(post("/v1/namespaces/small/ranks", {{"rank", 2}, {"slots", node_slots}}).code == 400);
  auto different = spec();
  different["dtype"] = "float16";
  const auto refused = post("/v1/namespaces", different);
  CHECK(refused.code == 409);
  CHECK(refused.says("dtype"));
  for (const auto* path : {"/v1/namespaces/small", "/v1/namespaces/small?force=true"}) {
    const auto removed = call("DELETE", path);
    CHECK(removed.code == 409);
    CHECK(removed.says("config"));
  }
  // Only the node writes its slabs.
  const json keys{"a", "b"};
  const json token{{"owner", 1}, {"sequence", 1}};
  const json pages{{{"key", "a"}, {"slot", 0}, {"generation", 1}}};
  for (const auto& [call, body] : {std::pair<const char*, json>{"reserve", {{"rank", 0}, {"keys", keys}}},
                                   {"commit", {{"rank", 0}, {"token", token}, {"pages", pages}}},
                                   {"abort", {{"rank", 0}, {"token", token}, {"pages", pages}}}}) {
    const auto answer = post(std::string("/v1/namespaces/small/") + call, body);
    INFO(call << ": " << answer.text);
    CHECK(answer.code == 409);
    CHECK(answer.says("slab files"));
  }
  // Every authorized caller may inspect, erase and clear.
  CHECK(post("/v1/namespaces/small/exists", {{"keys", keys}}).code == 200);
  CHECK(post("/v1/namespaces/small/locate", {{"rank", 0}, {"keys", keys}}).code == 200);
  CHECK(post("/v1/namespaces/small/erase", {{"keys", keys}}).code == 200);
  CHECK(post("/v1/namespaces/small/clear", json::object()).code == 200);
}

TEST_CASE_METHOD(node_with_http, "node over HTTP: slots of the config's namespaces are reported", "[node_http]") {
  const auto ranks = get("/v1/namespaces/small").body().at("ranks");
  REQUIRE(ranks.size() == world_size);
  for (const auto& x : ranks)
    CHECK(x.at("slots") == node_slots);
  CHECK(get("/metrics").says("\ntroupe_namespace_slots{namespace=\"small\",rank=\"1\",state=\"free\"} 64\n"));
}

TEST_CASE_METHOD(node_with_http, "node over HTTP: ranks beyond the memory are refused, however they are registered",
                 "[node_http][memory]") {
  // Sizes that do not fit into 8 MiB, and sizes that fit into no memory.
  for (const std::uint64_t pages : {1'000'000, 67'108'864}) {
    const auto refused = post("/rank/0/initialize", {{"num_pages", pages}, {"role", "worker"}});
    INFO(refused.text);
    CHECK(refused.code == 507);
    CHECK(refused.says("registry.memory_bytes"));
    CHECK(refused.says("(8 MiB)"));
  }
  CHECK(post("/rank/0/initialize", {{"num_pages", 1000}, {"role", "worker"}}).code == 200);
  REQUIRE(post("/v1/namespaces", {{"name", "a"}, {"model", "m"}}).code == 201);
  CHECK(post("/v1/namespaces/a/ranks", {{"rank", 0}, {"slots", 1'000'000}}).code == 507);
  CHECK(get("/ready").code == 200);
  // An engine that was cleared restarts with another file.
  CHECK(post("/rank/0/initialize", {{"num_pages", 2000}, {"role", "worker"}}).code == 409);
  const auto given =
      post("/keys/batch_allocate", {{"rank", 0}, {"keys", json::array({json::array({"k", ""})})}}).body();
  const auto page = given.at("results").at(0).at(1);
  CHECK(post("/keys/confirm_write", {{"rank", 0},
                                     {"confirmations", json::array({json::array({"k", page})})},
                                     {"pages_to_release", json::array()}})
            .code == 204);
  const auto live = post("/rank/0/initialize", {{"num_pages", 3000}, {"role", "worker"}});
  CHECK(live.code == 409);
  CHECK(live.says("clear"));
  CHECK(post("/clear", json::object()).code == 204);
  CHECK(post("/rank/0/initialize", {{"num_pages", 3000}, {"role", "worker"}}).code == 200);
}

TEST_CASE("node over HTTP: ranks of an earlier run that do not fit prevent a start and are kept",
          "[node_http][memory]") {
  node_with_http x(false);
  x.options.registry.durability = "strict";
  x.options.registry.shards = 4; // each of which has memory for the slots of a rank
  x.start();
  REQUIRE(x.post("/v1/namespaces", {{"name", "a"}, {"model", "m"}, {"slot_index", true}}).code == 201);
  REQUIRE(x.post("/v1/namespaces/a/ranks", {{"rank", 0}, {"slots", 200'000}}).code == 204);
  x.stop();
  x.options.registry.memory_bytes = 4 * config::mebibyte;
  const auto refused = start_node(x.system, x.options);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::no_memory);
  CHECK(refused.error().text.find("200000") != std::string::npos);
  CHECK(refused.error().text.find("registry.memory_bytes") != std::string::npos);
  x.options.registry.memory_bytes = 8 * config::mebibyte;
  x.start();
  CHECK(x.get("/v1/namespaces/a").body().at("ranks").at(0).at("slots") == 200'000);
}

TEST_CASE_METHOD(node_with_http, "node over HTTP: a missing slab makes the node not ready and saves fail",
                 "[node_http][condition]") {
  CHECK(get("/ready").code == 200);
  CHECK(get("/metrics").says("\ntroupe_slab_damaged{namespace=\"small\",rank=\"1\"} 0\n"));
  const auto id = options.namespaces[0].id();
  // Keys of either shard are refused alike: one that this shard does not have is refused for that.
  const auto reserve = [&](rank_number rank) {
    return ask_shards<reserve_reply>(
        reserve_request{id, rank, {7, rank + 1}, std::chrono::seconds(5), packed<key_digest>{}, {}});
  };
  CHECK(reserve(0));
  std::filesystem::remove(options.data_dir / "small.rank-1.slab");
  http_reply ready;
  // The io worker looks at its slab now and then.
  CHECK(eventually([&] { return (ready = get("/ready")).code == 503; }, std::chrono::milliseconds(10)));
  CHECK(ready.says("rank 1"));
  CHECK(ready.says("small"));
  const auto page = get("/metrics");
  CHECK(page.says("\ntroupe_slab_damaged{namespace=\"small\",rank=\"1\"} 1\n"));
  CHECK(page.says("\ntroupe_slab_damaged{namespace=\"small\",rank=\"0\"} 0\n"));
  CHECK(page.says("\ntroupe_degraded{reason=\"slab_damaged\"} 1\n"));
  CHECK(get("/health").code == 200);
  // Also on the rank whose slab is sound.
  for (rank_number rank = 0; rank < world_size; ++rank) {
    const auto refused = reserve(rank);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::slab_damaged);
  }
}

TEST_CASE_METHOD(node_with_http, "node over HTTP: the tables of the docs list exactly the metrics that exist",
                 "[node_http][metrics]") {
  std::ifstream file{std::filesystem::path{TROUPE_SOURCE_DIR} / "docs" / "http-api.md"};
  if (!file) {
    WARN("skipped: the docs are not here");
    return;
  }
  const std::string docs{std::istreambuf_iterator<char>{file}, {}};
  // All names in the first column of the tables.
  std::set<std::string> documented;
  const std::regex row("\n\\| (`troupe_[^|]*)\\|");
  const std::regex name("`(troupe_[a-z_]+)`");
  for (std::sregex_iterator i(docs.begin(), docs.end(), row), end; i != end; ++i) {
    const auto cell = (*i)[1].str();
    for (std::sregex_iterator k(cell.begin(), cell.end(), name); k != end; ++k)
      CHECK(documented.insert((*k)[1].str()).second);
  }
  // Items that were refused are there only when there are some.
  CHECK(
      post("/keys/confirm_write",
           {{"rank", 0}, {"confirmations", json::array({json::array({"k", 1})})}, {"pages_to_release", json::array()}})
          .code == 404);
  REQUIRE(post("/v1/namespaces", {{"name", "a"}, {"model", "m"}}).code == 201);
  REQUIRE(post("/v1/namespaces/a/ranks", {{"rank", 0}, {"slots", 8}}).code == 204);
  REQUIRE(post("/v1/namespaces/a/exists", {{"keys", {"k"}}}).code == 200);
  // Some are there only where there are other nodes.
  {
    caf::scoped_actor self{system};
    self->request(node->supervisor(), caf::infinite, bind_atom_v, cluster_card{"ours", "this", 1},
                  system.spawn(one_peer))
        .receive([] {}, [](const caf::error& e) { FAIL(to_string(from_caf(e))); });
  }
  std::set<std::string> shown;
  std::istringstream lines(get("/metrics").text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash;
    std::string kind;
    std::string family;
    std::string type;
    words >> hash >> kind >> family >> type;
    if (hash != "#" || kind != "TYPE")
      continue;
    INFO(line);
    CHECK(shown.insert(family).second);
    CHECK((type == "counter") == family.ends_with("_total"));
    CHECK(documented.contains(family));
  }
  for (const auto& x : documented) {
    INFO(x);
    CHECK(shown.contains(x));
  }
}

} // namespace node_http_test
