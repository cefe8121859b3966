// The cost of resolving the name of a namespace.

#include "http/native/native.hpp"
#include "tests/actors/http_world.hpp"
#include "tests/catch.hpp"

#include <string>

namespace http_names_test {

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

constexpr std::uint32_t shards = 3;

struct named_world : http_world {
  explicit named_world(const config::http_config& config = http::test_config())
      : http_world([](http::router& r, const auto& service) { http::native::add_routes(r, service, {}); }, config,
                   shards) {}

  /// The messages to shards of one request.
  std::uint64_t cost(std::string_view method, std::string_view path, std::string_view body, int code,
                     std::string_view more_headers = {}) const {
    const auto before = asked_shards();
    const auto answer = call(method, path, body, more_headers);
    INFO(path << " " << answer.text);
    CHECK(answer.code == code);
    return asked_shards() - before;
  }

  std::string make(const std::string& name, std::string_view more_headers = {}) const {
    const auto made = call("POST", "/v1/namespaces", json{{"name", name}, {"model", name}}.dump(), more_headers);
    REQUIRE(made.code == 201);
    REQUIRE(call("POST", "/v1/namespaces/" + name + "/ranks", R"({"rank":0,"slots":8})", more_headers).code == 204);
    return made.body.at("id").get<std::string>();
  }
};

} // namespace

TEST_CASE("http names: resolving a name sends no message to a shard, however many namespaces there are",
          "[http][native]") {
  const named_world w;
  const auto id = w.make("a");
  for (int i = 0; i < 9; ++i)
    w.make("other" + std::to_string(i));
  for (const auto& ns : {id, std::string{"a"}}) {
    const auto path = "/v1/namespaces/" + ns;
    // Before names were known apart from the shards, each of these asked all of them for all namespaces first.
    CHECK(w.cost("POST", path + "/exists", R"({"keys":["k"]})", 200) == 1);
    CHECK(w.cost("POST", path + "/reserve", R"({"rank":0,"keys":["k"],"token":{"owner":1,"sequence":1}})", 200) == 1);
    CHECK(w.cost("POST", path + "/release", R"({"lease":{"owner":1,"sequence":2}})", 404) == shards);
    CHECK(w.cost("GET", path, {}, 200) == shards);
  }
  CHECK(w.cost("POST", "/v1/namespaces/nobody/exists", R"({"keys":["k"]})", 404) == 0);
}

TEST_CASE("http names: a name is known from the creation of its namespace until its removal", "[http][native]") {
  const named_world w;
  CHECK(w.post("/v1/namespaces/a/exists", {{"keys", {"k"}}}).code == 404);
  const auto first = w.make("a");
  CHECK(w.post("/v1/namespaces/a/exists", {{"keys", {"k"}}}).code == 200);
  CHECK(w.call("DELETE", "/v1/namespaces/a").code == 204);
  CHECK(w.post("/v1/namespaces/a/exists", {{"keys", {"k"}}}).code == 404);
  // The name is another namespace's from now on.
  REQUIRE(w.post("/v1/namespaces", {{"name", "a"}, {"model", "other"}}).code == 201);
  const auto second = w.get("/v1/namespaces/a").body;
  CHECK(second.at("model") == "other");
  CHECK(second.at("id") != first);
  // The same namespace under another name keeps its first name.
  REQUIRE(w.post("/v1/namespaces", {{"name", "b"}, {"model", "other"}}).code == 201);
  CHECK(w.get("/v1/namespaces/b").code == 404);
  CHECK(w.get("/v1/namespaces/a").body == second);
}

} // namespace http_names_test
