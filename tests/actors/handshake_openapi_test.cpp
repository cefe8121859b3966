#include "actors/node/directory/directory.hpp"
#include "http/handshake/handshake.hpp"
#include "http/native/native.hpp"
#include "tests/actors/http_world.hpp"
#include "tests/actors/openapi_shape.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <map>
#include <set>
#include <string>

namespace handshake_openapi_test {

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

/// Compares replies with the description.
class shape_check {
public:
  explicit shape_check(const http_world& w) : world_(w) {
    for (const auto& [path, item] : document_.at("paths").items())
      for (const auto& [method, operation] : item.items())
        if (method != "parameters" && operation.at("operationId").get<std::string>().starts_with("handshake_")) {
          described_.emplace(method + " " + path, operation);
          unseen_.insert(method + " " + path);
        }
  }

  /// Asks, and compares the answer with what the description says of `name`, as in "get /v1/handshake".
  int operator()(const std::string& name, const std::string& path, const std::string& body = {},
                 const std::string& more_headers = {}) {
    auto method = name.substr(0, name.find(' '));
    std::ranges::transform(method, method.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const auto& operation = described_.at(name);
    unseen_.erase(name);
    const auto got = world_.call(method, path, body, more_headers);
    INFO(name << " " << path << " " << body << " → " << got.code << " " << got.text);
    const auto code = std::to_string(got.code);
    REQUIRE(operation.at("responses").contains(code));
    auto response = operation.at("responses").at(code);
    if (response.contains("$ref"))
      response = document_.at(json::json_pointer{response.at("$ref").get<std::string>().substr(1)});
    last_ = got.body;
    if (!response.contains("content")) {
      CHECK(got.text.empty());
      return got.code;
    }
    const std::string label = "\r\nContent-Type: ";
    const auto begin = got.head.find(label) + label.size();
    const auto type = got.head.substr(begin, got.head.find_first_of(";\r", begin) - begin);
    INFO(type);
    REQUIRE(response.at("content").contains(type));
    if (type == "application/json")
      CHECK(what_is_wrong(document_, response.at("content").at(type).at("schema"), got.body, "answer") == "");
    return got.code;
  }

  const json& last() const noexcept { return last_; }
  const std::set<std::string>& unseen() const noexcept { return unseen_; }

private:
  const http_world& world_;
  const json document_ = json::parse(http::native::openapi_text());
  std::map<std::string, json> described_;
  std::set<std::string> unseen_;
  json last_;
};

/// A directory with an actor system of its own.
struct directory_world {
  struct options : caf::actor_system_config {
    options() {
      register_messages(*this);
      set("scheduler.max-threads", std::size_t{2});
    }
  };

  directory_world() {
    handshake::directory_options limits;
    limits.engines_max = 3;
    it = spawn_actor<directory>(system, limits);
  }
  ~directory_world() {
    caf::anon_send(it, drain_atom_v);
    caf::anon_send_exit(it, caf::exit_reason::user_shutdown);
  }
  directory_world(const directory_world&) = delete;
  directory_world& operator=(const directory_world&) = delete;

  options how;
  caf::actor_system system{how};
  directory_actor it;
};

} // namespace

TEST_CASE("handshake openapi: replies of the handshake directory match its OpenAPI description",
          "[http][openapi][handshake]") {
  directory_world directory;
  const http_world w([&](http::router& r, const auto&) {
    http::handshake::add_routes(r, directory.system, directory.it, {1024, std::chrono::seconds(60), true});
  });
  shape_check check(w);
  const std::string engine = "/v1/handshake/{engine_id}";
  const std::string rank = engine + "/ranks/{dp}/{pp}/{tp}";
  const std::string at = "/v1/handshake/a/ranks/0/0/";
  const std::string query = "?incarnation=7&tp_size=2&compat=abc";
  const std::string as_json = "Content-Type: application/json\r\n";
  CHECK(check("put " + rank, at + "0" + query, "bytes") == 201);
  CHECK(check("put " + rank, at + "0" + query, "bytes") == 200);
  CHECK(check("put " + rank, at + "0" + query, "others") == 409);
  CHECK(check("put " + rank, at + "1" + query, R"({"number":18446744073709551615})", as_json) == 201);
  CHECK(check("put " + rank, at + "1" + query, "{", as_json) == 400);
  CHECK(check("put " + rank, at + "0?incarnation=6&tp_size=2", "bytes") == 410);
  CHECK(check("put " + rank, at + "0", "bytes") == 422);
  CHECK(check("put " + rank, at + "0" + query, std::string(1025, 'x')) == 413);
  CHECK(check("get " + rank, at + "0") == 200);
  CHECK(check("get " + rank, at + "1") == 200);
  CHECK(check("get " + rank, at + "1?compat=other") == 409);
  CHECK(check("get " + rank, at + "1?incarnation=6") == 410);
  CHECK(check("get " + rank, at + "2") == 404);
  CHECK(check("get " + rank, at + "x") == 422);
  CHECK(check("get " + engine, "/v1/handshake/a?complete=true") == 200);
  CHECK(check.last().at("ranks").at("0").at("0").at("1").at("payload").is_object());
  CHECK(check("get " + engine, "/v1/handshake/a?dp=0") == 200);
  CHECK(check("get " + engine, "/v1/handshake/a?compat=other") == 409);
  CHECK(check("get " + engine, "/v1/handshake/a?incarnation=6") == 410);
  CHECK(check("get " + engine, "/v1/handshake/b?wait=1ms") == 404);
  CHECK(check("get " + engine, "/v1/handshake/a?complete=maybe") == 422);
  const auto all = w.get("/v1/handshake/a");
  const auto tag = all.head.substr(all.head.find("ETag: ") + 6, 34);
  CHECK(check("get " + engine, "/v1/handshake/a", {}, "If-None-Match: " + tag + "\r\n") == 304);
  CHECK(check("get /v1/handshake", "/v1/handshake") == 200);
  CHECK(check("post " + engine + "/heartbeat", "/v1/handshake/a/heartbeat?incarnation=7&ttl=30s") == 200);
  CHECK(check("post " + engine + "/heartbeat", "/v1/handshake/a/heartbeat?incarnation=6") == 410);
  CHECK(check("post " + engine + "/heartbeat", "/v1/handshake/b/heartbeat") == 404);
  CHECK(check("post " + engine + "/heartbeat", "/v1/handshake/a/heartbeat?ttl=soon") == 422);
  const std::string draft = "get /get_kv_connector_metadata";
  CHECK(check(draft, "/get_kv_connector_metadata") == 200);
  CHECK(check(draft, "/get_kv_connector_metadata?wait=soon") == 422);
  CHECK(check(draft + "/{dp}", "/get_kv_connector_metadata/0") == 200);
  CHECK(check(draft + "/{dp}", "/get_kv_connector_metadata/1?engine_id=a") == 404);
  CHECK(check(draft + "/{dp}/{tp}", "/get_kv_connector_metadata/0/1") == 200);
  CHECK(check(draft + "/{dp}/{tp}", "/get_kv_connector_metadata/0/2") == 404);
  CHECK(check("put " + rank, "/v1/handshake/stages/ranks/0/0/0?incarnation=1&pp_size=2", "bytes") == 201);
  CHECK(check(draft, "/get_kv_connector_metadata?engine_id=stages") == 409);
  CHECK(check(draft, "/get_kv_connector_metadata") == 404);
  CHECK(check("put " + rank, "/v1/handshake/b/ranks/0/0/0?incarnation=1", "bytes") == 201);
  CHECK(check("put " + rank, "/v1/handshake/c/ranks/0/0/0?incarnation=1", "bytes") == 429);
  CHECK(check("delete " + engine, "/v1/handshake/a?incarnation=6") == 410);
  CHECK(check("delete " + engine, "/v1/handshake/a?incarnation=x") == 422);
  CHECK(check("delete " + engine, "/v1/handshake/a?incarnation=7") == 204);
  CHECK(check("delete " + engine, "/v1/handshake/absent") == 404);
  CHECK(check.unseen().empty());
}

} // namespace handshake_openapi_test
