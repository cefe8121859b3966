#include "tests/catch.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"
#include "tests/unit/http_support.hpp"

#include <csignal>
#include <fstream>

/// The directory in the program itself.

namespace handshake_serve_test {

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

constexpr const char* rank_0 = "/v1/handshake/a/ranks/0/0/0";

std::filesystem::path directory_config(const scratch_directory& directory, const json& handshake,
                                       const json& http = {{"enabled", true}, {"port", 0}}) {
  const json config{{"data_dir", (directory / "data").string()},
                    {"actors", {{"socket", "off"}}},
                    {"registry", {{"durability", "strict"}}},
                    {"http", http},
                    {"handshake", handshake}};
  const auto file = directory / "node.json";
  std::ofstream(file) << config;
  return file;
}

/// The port of HTTP, or of handshakes alone.
std::uint16_t port_of(const serving_node& node, const char* what = "http") {
  return json::parse(node.ready_line()).at(what).at("port").get<std::uint16_t>();
}

http::reply call(std::uint16_t port, std::string_view method, std::string_view path, std::string_view body = {},
                 std::string_view more = {}) {
  http::client c{port};
  std::string request{method};
  request.append(" ").append(path).append(" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n").append(more);
  request.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n\r\n").append(body);
  return c.call(request);
}

} // namespace

TEST_CASE("serve: handshakes survive kill -9, with their deadlines") {
  const scratch_directory directory;
  const auto config = directory_config(directory, json::object());
  {
    serving_node node(config);
    const auto port = port_of(node);
    CHECK(call(port, "PUT", std::string(rank_0) + "?incarnation=7&ttl=10min", "x").code == 201);
    CHECK(call(port, "PUT", "/v1/handshake/b/ranks/0/0/0?incarnation=7&ttl=1ms", "x").code == 201);
    CHECK(call(port, "PUT", "/v1/handshake/c/ranks/0/0/0?incarnation=7&ttl=10min", "x").code == 201);
    CHECK(call(port, "DELETE", "/v1/handshake/c?incarnation=7").code == 204);
    node.program().send(SIGKILL);
    node.program().wait();
  }
  serving_node node(config);
  const auto port = port_of(node);
  CHECK(call(port, "GET", rank_0).body == "x");
  const auto left = json::parse(call(port, "GET", "/v1/handshake").body).at("engines");
  REQUIRE(left.size() == 1);
  CHECK(left[0].at("expires_in_ms").get<int>() < 600'000);
  CHECK(call(port, "PUT", "/v1/handshake/c/ranks/0/0/0?incarnation=7", "x").code == 410);
  CHECK(call(port, "PUT", "/v1/handshake/b/ranks/0/0/0?incarnation=7", "x").code == 201);
  CHECK(node.stop() == 0);
}

TEST_CASE("serve: handshakes can have a separate port") {
  const scratch_directory directory;
  const auto config = directory_config(directory, {{"http", {{"enabled", true}, {"port", 0}}}});
  serving_node node(config);
  const auto own = port_of(node, "handshake");
  CHECK(call(own, "PUT", std::string(rank_0) + "?incarnation=7", "x").code == 201);
  CHECK(call(own, "GET", "/ready").code == 200);
  CHECK(call(own, "GET", "/v1/stats").code == 404);
  CHECK(call(port_of(node), "GET", rank_0).code == 404);
  CHECK(call(port_of(node), "GET", "/v1/stats").code == 200);
  CHECK(node.stop() == 0);
}

TEST_CASE("serve: a node can serve the handshake directory alone") {
  const scratch_directory directory;
  const auto config = directory_config(directory, {{"http", {{"enabled", true}, {"port", 0}}}}, {{"enabled", false}});
  serving_node node(config, {"--set", "actors.make_namespaces=false"});
  CHECK(call(port_of(node, "handshake"), "PUT", std::string(rank_0) + "?incarnation=7", "x").code == 201);
  CHECK(node.stop() == 0);
}

TEST_CASE("serve: the handshake settings of the config take effect") {
  const scratch_directory directory;
  serving_node node(directory_config(directory, {{"vllm_draft", true},
                                                 {"max_payload_bytes", "1 KiB"},
                                                 {"max_engines", 2},
                                                 {"max_ranks", 3},
                                                 {"max_waiting", 1},
                                                 {"max_wait", "10 s"},
                                                 {"ttl_default", "3 min"},
                                                 {"ttl_max", "5 min"},
                                                 {"remember", "1 ms"}}));
  const auto port = port_of(node);
  const auto lives_for = [](const http::reply& x) { return json::parse(x.body).at("expires_in_ms").get<int>(); };
  const auto put = [&](const char* engine, const char* query, std::size_t bytes = 1) {
    return call(port, "PUT", "/v1/handshake/" + std::string(engine) + "/ranks/0/0/0?incarnation=7" + query,
                std::string(bytes, 'x'));
  };
  CHECK(put("a", "", 1025).code == 413);
  CHECK(put("a", "&tp_size=4").code == 422);
  const auto by_default = put("a", "&tp_size=3", 1024);
  CHECK(by_default.code == 201);
  CHECK(lives_for(by_default) <= 180'000);
  CHECK(lives_for(by_default) > 60'000);
  CHECK(call(port, "GET", "/get_kv_connector_metadata?engine_id=a").code == 200);
  const auto longest = put("b", "&ttl=20h");
  CHECK(longest.code == 201);
  CHECK(lives_for(longest) <= 300'000);
  CHECK(put("c", "").code == 429);

  http::client waiting{port};
  waiting.send("GET /v1/handshake/absent?wait=20h HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const auto is_waiting = [&] {
    return call(port, "GET", "/metrics").body.find("\ntroupe_handshake_waiting 1") != std::string::npos;
  };
  CHECK(eventually(is_waiting, std::chrono::milliseconds(10)));
  CHECK(call(port, "GET", "/v1/handshake/absent?wait=20h").code == 429);

  // A start that has ended is remembered for a millisecond.
  CHECK(call(port, "DELETE", "/v1/handshake/b?incarnation=7").code == 204);
  const auto is_forgotten = [&] { return call(port, "GET", "/v1/handshake/b?incarnation=7").code == 404; };
  CHECK(eventually(is_forgotten, std::chrono::milliseconds(10)));
  // No request waits longer than the node allows.
  CHECK(waiting.must_read().code == 404);
  CHECK(node.stop() == 0);
}

TEST_CASE("serve: the example config of a node with the handshake directory alone works") {
  const scratch_directory directory;
  std::ifstream example(std::filesystem::path(TROUPE_SOURCE_DIR) / "configs/handshakes.json");
  auto config = json::parse(example, nullptr, true, true);
  config["data_dir"] = (directory / "data").string();
  config["handshake"]["http"]["port"] = 0;
  const auto file = directory / "node.json";
  std::ofstream(file) << config;
  serving_node node(file);
  CHECK(call(port_of(node, "handshake"), "PUT", std::string(rank_0) + "?incarnation=7", "x").code == 201);
  CHECK_FALSE(std::filesystem::exists(directory / "data" / "troupe.sock"));
  CHECK(node.stop() == 0);
}

TEST_CASE("serve: requests that wait for an engine do not delay a shutdown") {
  const scratch_directory directory;
  serving_node node(directory_config(directory, json::object()));
  http::client waiting{port_of(node)};
  waiting.send("GET /v1/handshake/absent?wait=55s HTTP/1.1\r\nHost: localhost\r\n\r\n");
  // The metrics show that it waits.
  const auto waits = [&] {
    return call(port_of(node), "GET", "/metrics").body.find("\ntroupe_handshake_waiting 1") != std::string::npos;
  };
  CHECK(eventually(waits, std::chrono::milliseconds(10)));
  CHECK(node.stop() == 0);
  // The error says so: if the node had waited for the end of the wait, the answer would be that the engine is missing.
  CHECK(waiting.must_read().code == 503);
}

TEST_CASE("serve: a handshake directory for other machines requires tokens") {
  const scratch_directory directory;
  const auto config = directory_config(directory, {{"http", {{"enabled", true}, {"host", "0.0.0.0"}, {"port", 0}}}});
  const auto refused = run(program_with({"serve", "--config", config.string()}));
  CHECK(refused.code == 2);
  CHECK(refused.err.find("handshake.http.host") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(directory / "data"));

  const auto tokens = directory / "tokens";
  std::ofstream(tokens) << "write writer-writer-writer\nread reader-reader-reader\n";
  std::filesystem::permissions(tokens, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  serving_node node(config, {"--set", "handshake.http.tokens_file=" + tokens.string()});
  const auto own = port_of(node, "handshake");
  CHECK(call(own, "PUT", std::string(rank_0) + "?incarnation=7", "x").code == 401);
  CHECK(call(own, "PUT", std::string(rank_0) + "?incarnation=7", "x", "Authorization: Bearer writer-writer-writer\r\n")
            .code == 201);
  CHECK(call(own, "PUT", std::string(rank_0) + "?incarnation=7", "x", "Authorization: Bearer reader-reader-reader\r\n")
            .code == 403);
  CHECK(call(own, "GET", rank_0, {}, "Authorization: Bearer reader-reader-reader\r\n").code == 200);
  // Tokens of this listener are read again as well.
  std::ofstream(tokens) << "write another-another-another\n";
  node.program().send(SIGHUP);
  node.program().wait_for_line(process::stream::err, "reloaded tokens and certificates");
  CHECK(call(own, "GET", rank_0, {}, "Authorization: Bearer reader-reader-reader\r\n").code == 401);
  CHECK(node.stop() == 0);
}

} // namespace handshake_serve_test
