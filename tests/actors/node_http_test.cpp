#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/system_config.hpp"
#include "base/bound_socket.hpp"
#include "base/log.hpp"
#include "http/node_http.hpp"
#include "io/page.hpp"
#include "tests/actors/registry_support.hpp"
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

// A whole node with slabs of its own, as those see it who come over HTTP.

namespace {

constexpr std::uint32_t world_size = 2;
constexpr std::uint64_t node_slots = 64;

struct http_reply {
  int code = 0;
  std::string text;

  json body() const { return json::parse(text, nullptr, false); }
  bool says(std::string_view what) const { return text.find(what) != std::string::npos; }
};

/// Knows of one other node.
cluster_actor::behavior_type one_peer(cluster_actor::pointer) {
  return {[](const bring_request&) { return bring_reply{}; },
          [](stats_atom) {
            cluster_stats out{"ours", {}};
            out.peers.emplace_back().address = "there:7000";
            return out;
          },
          [](caf::tick_atom) {}};
}

struct node_with_http {
  scratch_directory directory;
  config::node_config options;
  system_config how{options.caf};
  caf::actor_system system{how};
  std::unique_ptr<running_node> node;
  std::unique_ptr<http::node_http> web;

  explicit node_with_http(bool at_once = true) {
    log::set_level("off");
    options.data_dir = directory.path() / "data";
    options.statistics_interval = duration::zero();
    options.namespaces = {small_space(world_size)};
    options.namespaces[0].dtype = "bfloat16";
    const auto slot = io::slot_bytes(options.namespaces[0].geometry.page_bytes());
    for (std::uint32_t rank = 0; rank < world_size; ++rank)
      options.storage.ranks.push_back({node_slots * slot + io::page_alignment, {}});
    options.registry.memory_bytes = 8 * config::mebibyte;
    options.http = http::test_config();
    options.hf3fs.vllm = true;
    if (at_once)
      start();
  }

  void start() {
    for (const auto& wrong : config::validate(options))
      FAIL(to_string(wrong));
    auto started = start_node(system, options, std::make_shared<lmcache::counters>());
    INFO((started ? "" : to_string(started.error())));
    REQUIRE(started);
    node = std::move(*started);
    auto port = bound_socket::open("http", options.http.host, options.http.port);
    REQUIRE(port);
    auto served = http::node_http::start(system, node->services(), options, "test", std::move(*port));
    REQUIRE(served);
    web = std::move(*served);
  }

  void stop() {
    if (!node)
      return;
    web->stop(std::chrono::seconds(20));
    web.reset();
    CHECK(node->stop(system, std::chrono::seconds(20)));
    node.reset();
  }

  ~node_with_http() {
    stop();
    log::set_level("info");
  }

  http_reply call(std::string_view method, std::string_view path, const json& body = nullptr) const {
    http::client c{web->port()};
    std::string request{method};
    request.append(" ").append(path).append(" HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
    const auto text = body.is_null() ? std::string() : body.dump();
    if (!text.empty())
      request.append("Content-Length: ").append(std::to_string(text.size())).append("\r\n");
    const auto reply = c.call(request + "\r\n" + text);
    return {reply.code, reply.body};
  }
  http_reply get(std::string_view path) const { return call("GET", path); }
  http_reply post(std::string_view path, const json& body) const { return call("POST", path, body); }

  static json spec() {
    return {{"name", "small"},
            {"model", "model"},
            {"dtype", "bfloat16"},
            {"world_size", world_size},
            {"kv_cache",
             {{"layers", 2}, {"parts", 2}, {"heads", 2}, {"head_size", 8}, {"element_bytes", 2}, {"block_tokens", 4}}}};
  }

  template <class Reply, class Request>
  result<Reply> ask_shards(const Request& request) {
    result<Reply> out = fail(errc::internal, "nobody was asked");
    caf::scoped_actor self{system};
    for (const auto& shard : node->services().shards)
      self->request(shard, std::chrono::seconds(60), request)
          .receive([&](Reply& x) { out = std::move(x); },
                   [&](const caf::error& e) { out = tl::unexpected<error>(from_caf(e)); });
    return out;
  }
};

} // namespace

TEST_CASE_METHOD(node_with_http, "node over HTTP: a namespace of the config stays as the config has it",
                 "[node_http]") {
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
  // Looking, erasing and clearing are for everybody who may.
  CHECK(post("/v1/namespaces/small/exists", {{"keys", keys}}).code == 200);
  CHECK(post("/v1/namespaces/small/locate", {{"rank", 0}, {"keys", keys}}).code == 200);
  CHECK(post("/v1/namespaces/small/erase", {{"keys", keys}}).code == 200);
  CHECK(post("/v1/namespaces/small/clear", json::object()).code == 200);
}

TEST_CASE_METHOD(node_with_http, "node over HTTP: slots of the config's namespaces are known", "[node_http]") {
  const auto ranks = get("/v1/namespaces/small").body().at("ranks");
  REQUIRE(ranks.size() == world_size);
  for (const auto& x : ranks)
    CHECK(x.at("slots") == node_slots);
  CHECK(get("/metrics").says("\ntroupe_namespace_slots{namespace=\"small\",rank=\"1\",state=\"free\"} 64\n"));
}

TEST_CASE_METHOD(node_with_http, "node over HTTP: ranks beyond the memory are refused, however they are registered",
                 "[node_http][memory]") {
  // What 8 MiB have no room for, and what any size of memory has none for.
  for (const std::uint64_t pages : {1'000'000, 67'108'864}) {
    const auto refused = post("/rank/0/initialize", {{"num_pages", pages}, {"role", "worker"}});
    INFO(refused.text);
    CHECK(refused.code == 507);
    CHECK(refused.says("registry.memory_bytes"));
    CHECK(refused.says("8388608"));
  }
  CHECK(post("/rank/0/initialize", {{"num_pages", 1000}, {"role", "worker"}}).code == 200);
  REQUIRE(post("/v1/namespaces", {{"name", "a"}, {"model", "m"}}).code == 201);
  CHECK(post("/v1/namespaces/a/ranks", {{"rank", 0}, {"slots", 1'000'000}}).code == 507);
  CHECK(get("/ready").code == 200);
  // An engine that was cleared comes back with another file.
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

TEST_CASE("node over HTTP: ranks of an earlier run that do not fit keep a node from starting, and are not forgotten",
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
  CHECK(refused.error().code == errc::no_space);
  CHECK(refused.error().text.find("200000") != std::string::npos);
  CHECK(refused.error().text.find("registry.memory_bytes") != std::string::npos);
  x.options.registry.memory_bytes = 8 * config::mebibyte;
  x.start();
  CHECK(x.get("/v1/namespaces/a").body().at("ranks").at(0).at("slots") == 200'000);
}

TEST_CASE_METHOD(node_with_http, "node over HTTP: a slab that is gone makes the node not ready, and nothing is saved",
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

TEST_CASE_METHOD(node_with_http, "node over HTTP: every metric is in a table of the docs, and nothing else is",
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
