#include "http/admin.hpp"
#include "http/explain/explain_routes.hpp"
#include "http/handshake/handshake.hpp"
#include "http/native/native.hpp"
#include "http/status/status_routes.hpp"
#include "tests/actors/http_world.hpp"
#include "tests/actors/openapi_shape.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

namespace http_openapi_test {

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

std::string lower(std::string_view text) {
  std::string out{text};
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

/// "get /v1/stats" → operation.
std::map<std::string, json> described_operations(const json& document) {
  std::map<std::string, json> out;
  for (const auto& [path, item] : document.at("paths").items())
    for (const auto& [method, operation] : item.items())
      if (method != "parameters")
        out.emplace(method + " " + path, operation);
  return out;
}

void collect_references(const json& x, std::set<std::string>& out) {
  if (x.is_object() && x.contains("$ref"))
    out.insert(x.at("$ref").get<std::string>());
  if (x.is_structured())
    for (const auto& child : x)
      collect_references(child, out);
}

template <class Routes>
void check_described(const Routes& routes, const std::map<std::string, json>& described,
                     std::set<std::string>& served) {
  for (const auto& x : routes) {
    const auto name = lower(to_string(x.method)) + " " + std::string{x.pattern};
    INFO(name);
    served.insert(name);
    REQUIRE(described.contains(name));
    CHECK(described.at(name).at("operationId") == x.name);
    CHECK(described.at(name).at("x-role") == to_string(x.needs));
  }
}

} // namespace

TEST_CASE("http openapi: the OpenAPI description lists every route and every listed route exists", "[http][openapi]") {
  const auto document = json::parse(http::native::openapi_text());
  CHECK(document.at("openapi").get<std::string>().starts_with("3."));
  const auto described = described_operations(document);
  std::set<std::string> served;
  check_described(http::native::described_routes(), described, served);
  check_described(http::handshake::described_routes(), described, served);
  check_described(http::node_status::described_routes(), described, served);
  check_described(http::explain::described_routes(), described, served);
  for (const auto* x : {"get /health", "get /ready", "get /version", "get /metrics"}) {
    INFO(x);
    served.insert(x);
    CHECK(described.contains(x));
  }
  for (const auto& [name, operation] : described) {
    INFO(name);
    CHECK(served.contains(name));
  }

  // The tables match the routes of a router.
  http::router routes;
  http::native::add_routes(routes, nullptr, {});
  caf::actor_system_config options;
  caf::actor_system system(options);
  http::handshake::add_routes(routes, system, directory_actor{}, {4096, std::chrono::seconds(60), true});
  http::node_status::add_routes(routes, nullptr);
  http::explain::add_routes(routes, nullptr);
  http::add_admin_routes(routes, {});
  REQUIRE(routes.check());
  http::route_match found;
  for (const auto& [name, operation] : described) {
    INFO(name);
    auto method = name.substr(0, name.find(' '));
    std::ranges::transform(method, method.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    routes.match(http::method_from(method), name.substr(name.find(' ') + 1), found);
    REQUIRE(found.route != nullptr);
    CHECK(found.route->name == operation.at("operationId").get<std::string>());
    CHECK(to_string(found.route->needs) == operation.at("x-role").get<std::string>());
  }
}

TEST_CASE("http openapi: the OpenAPI description has no dangling references and no unused parts", "[http][openapi]") {
  const auto document = json::parse(http::native::openapi_text());
  std::set<std::string> references;
  collect_references(document, references);
  for (const auto& x : references) {
    INFO(x);
    CHECK(document.contains(json::json_pointer{x.substr(1)}));
  }
  for (const auto* kind : {"schemas", "responses", "parameters"})
    for (const auto& [name, value] : document.at("components").at(kind).items()) {
      INFO(name);
      CHECK(references.contains("#/components/" + std::string{kind} + "/" + name));
    }
}

TEST_CASE("http openapi: replies match the OpenAPI description", "[http][openapi]") {
  const http_world w([](http::router& r, const auto& service) {
    http::native::add_routes(r, service, {});
    http::admin_options admin;
    admin.version = "1.2.3";
    http::add_admin_routes(r, admin);
  });
  const auto document = json::parse(http::native::openapi_text());
  const auto described = described_operations(document);
  std::set<std::string> unseen;
  constexpr std::array<std::string_view, 4> of_a_node{"get /v1/status", "get /v1/config", "get /v1/log",
                                                      "get /v1/explain"};
  for (const auto& [name, operation] : described)
    // Routes of a whole node are checked with one.
    if (!name.ends_with("handshake") && name.find("/handshake/") == std::string::npos &&
        std::ranges::find(of_a_node, name) == of_a_node.end())
      unseen.insert(operation.at("operationId").get<std::string>());
  json last;
  const auto check = [&](const std::string& name, const std::string& path, const json& body = nullptr) {
    const auto method = name.substr(0, name.find(' '));
    const auto& operation = described.at(name);
    unseen.erase(operation.at("operationId").get<std::string>());
    const auto got = w.call(method == "get"    ? "GET"
                            : method == "post" ? "POST"
                                               : "DELETE",
                            path, body.is_null() ? "" : body.dump());
    INFO(name << " " << body.dump() << " → " << got.code << " " << got.text);
    const auto code = std::to_string(got.code);
    REQUIRE(operation.at("responses").contains(code));
    auto response = operation.at("responses").at(code);
    if (response.contains("$ref"))
      response = document.at(json::json_pointer{response.at("$ref").get<std::string>().substr(1)});
    if (!body.is_null() && got.code < 300)
      CHECK(what_is_wrong(document, operation.at("requestBody").at("content").at("application/json").at("schema"), body,
                          "body") == "");
    if (!response.contains("content"))
      CHECK(got.text.empty());
    else if (const auto& content = response.at("content"); content.contains("application/json"))
      CHECK(what_is_wrong(document, content.at("application/json").at("schema"), got.body, "answer") == "");
    last = got.body;
    return got.code;
  };
  const std::string a = "/v1/namespaces/{namespace}";
  const std::string at = "/v1/namespaces/a";
  CHECK(check("get /health", "/health") == 200);
  CHECK(check("get /ready", "/ready") == 200);
  CHECK(check("get /version", "/version") == 200);
  CHECK(check("get /metrics", "/metrics") == 200);
  CHECK(check("get /openapi.json", "/openapi.json") == 200);
  CHECK(check("post /v1/namespaces", "/v1/namespaces",
              {{"name", "a"},
               {"model", "m"},
               {"kv_cache",
                {{"layers", 1}, {"further_layers", {{{"layers", 1}, {"heads", 1}, {"head_size", 132}}}}}}}) == 201);
  CHECK(check("post /v1/namespaces", "/v1/namespaces", {{"name", "a"}, {"model", "n"}}) == 409);
  CHECK(check("post /v1/namespaces", "/v1/namespaces", json::object()) == 422);
  CHECK(check("post " + a + "/ranks", at + "/ranks", {{"rank", 0}, {"slots", 4}}) == 204);
  CHECK(check("post " + a + "/ranks", at + "/ranks", {{"rank", 0}, {"slots", 5}}) == 409);
  const json keys{"k", "l"};
  CHECK(check("post " + a + "/reserve", at + "/reserve",
              {{"rank", 0}, {"keys", keys}, {"parents", {nullptr, "k"}}, {"expires_in_ms", 5000}}) == 200);
  const auto reserved = last;
  json pages = json::array();
  for (std::size_t i = 0; i < keys.size(); ++i)
    pages.push_back({{"key", keys[i]},
                     {"slot", reserved["results"][i]["slot"]},
                     {"generation", reserved["results"][i]["generation"]}});
  CHECK(check("post " + a + "/commit", at + "/commit", {{"rank", 0}, {"token", reserved["token"]}, {"pages", pages}}) ==
        200);
  CHECK(check("post " + a + "/abort", at + "/abort", {{"rank", 0}, {"token", reserved["token"]}}) == 200);
  CHECK(check("post " + a + "/abort", at + "/abort",
              {{"rank", 0}, {"token", reserved["token"]}, {"pages", {{{"key", "k"}}}}}) == 200);
  CHECK(check("post " + a + "/match", at + "/match", {{"keys", keys}, {"lease_for_ms", 5000}}) == 200);
  const json lease{{"lease", last.at("lease")}};
  CHECK(check("post " + a + "/locate", at + "/locate", {{"rank", 0}, {"keys", {"k", "x"}}}) == 200);
  CHECK(check("post " + a + "/exists", at + "/exists", {{"keys", keys}}) == 200);
  CHECK(check("post " + a + "/renew", at + "/renew", lease) == 204);
  CHECK(check("post " + a + "/release", at + "/release", lease) == 204);
  CHECK(check("post " + a + "/renew", at + "/renew", lease) == 404);
  CHECK(check("get " + a + "/keys/{key}", at + "/keys/l") == 200);
  CHECK(check("get " + a + "/keys/{key}", at + "/keys/x") == 404);
  CHECK(check("get /v1/namespaces", "/v1/namespaces") == 200);
  CHECK(check("get " + a, at) == 200);
  CHECK(check("get /v1/stats", "/v1/stats") == 200);
  CHECK(check("get /v1/cluster", "/v1/cluster") == 200);
  CHECK(check("post " + a + "/erase", at + "/erase", {{"keys", keys}}) == 200);
  CHECK(check("post " + a + "/clear", at + "/clear") == 200);
  CHECK(check("delete " + a, at) == 409);
  CHECK(check("delete " + a, at + "?force=true") == 204);
  // Routes of the directory are checked with one.
  std::erase_if(unseen, [](const std::string& x) { return x.starts_with("handshake_"); });
  CHECK(unseen.empty());
}

TEST_CASE("http openapi: the examples of the documentation work", "[http][openapi]") {
  if (std::system("python3 -c '' 2>&1 && curl --version > /dev/null 2>&1") != 0) {
    WARN("skipped: needs python3 and curl");
    return;
  }
  const http_world w([](http::router& r, const std::shared_ptr<const metadata_service>& service) {
    http::native::add_routes(r, service, {});
    http::admin_options admin;
    admin.version = "0.1.0";
    admin.protocol = protocol_version;
    http::add_admin_routes(r, admin);
  });
  const auto command = "python3 -B " TROUPE_SOURCE_DIR "/tests/conformance/run_examples.py --url http://127.0.0.1:" +
                       std::to_string(w.port());
  CHECK(std::system(command.c_str()) == 0);
}

} // namespace http_openapi_test
