#include "actors/node/registry/registry_options.hpp"
#include "http/native/native.hpp"
#include "tests/actors/http_world.hpp"
#include "tests/catch.hpp"

namespace http_native_refusals_test {

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

http_world::add_routes native_routes(std::uint32_t max_items = 100) {
  return [max_items](http::router& r, const auto& service) {
    http::native::options options;
    options.max_items = max_items;
    http::native::add_routes(r, service, options);
  };
}

struct refused_request {
  std::string path;
  std::string body;
  int code;
  /// The beginning of the error text.
  std::string detail;
};

} // namespace

TEST_CASE("http native refusals: an invalid request is refused with the reason and its position", "[http][native]") {
  const http_world w(native_routes());
  REQUIRE(w.post("/v1/namespaces", {{"name", "a"}, {"model", "m"}}).code == 201);
  REQUIRE(w.post("/v1/namespaces/a/ranks", {{"rank", 0}, {"slots", 8}}).code == 204);
  const std::string a = "/v1/namespaces/a/";
  const std::string token = R"("token":{"owner":1,"sequence":1})";
  json too_many = json::array();
  for (int i = 0; i < 101; ++i)
    too_many.push_back("k");
  const auto shaped = [](const std::string& groups) {
    return R"({"name":"x","model":"m","kv_cache":{"layers":1,"further_layers":)" + groups + "}}";
  };
  const std::string group = R"({"layers":1,"heads":1,"head_size":1})";
  json too_many_groups = json::array();
  for (int i = 0; i < 65; ++i)
    too_many_groups.push_back(json::parse(group));
  const std::vector<refused_request> all{
      {"/v1/namespaces", "", 400, "the body is empty"},
      {"/v1/namespaces", "{", 400, "the body is not JSON"},
      {"/v1/namespaces", "[]", 422, "body: expected an object"},
      {"/v1/namespaces", R"({"model":"m"})", 422, "name: is missing"},
      {"/v1/namespaces", R"({"name":"x"})", 422, "model: is missing"},
      {"/v1/namespaces", R"({"name":"a b","model":"m"})", 422, "name: expected a name"},
      {"/v1/namespaces", R"({"name":"0123456789abcdef0123456789abcdef","model":"m"})", 422, "name: 32 hex"},
      {"/v1/namespaces", R"({"name":"x","model":"m","world_size":0})", 422, "world_size: "},
      {"/v1/namespaces", R"({"name":"x","model":"m","world_size":65536})", 422, "world_size: "},
      {"/v1/namespaces", R"({"name":"x","model":"m","automatic":true,"world_size":2})", 422, "world_size: "},
      {"/v1/namespaces", R"({"name":"x","model":"m","kv_cache":{"layers":0}})", 422, "kv_cache.layers: "},
      {"/v1/namespaces", R"({"name":"x","model":"m","kv_cache":3})", 422, "kv_cache: "},
      {"/v1/namespaces", shaped("7"), 422, "kv_cache.further_layers: expected an array"},
      {"/v1/namespaces", shaped("[[]]"), 422, "kv_cache.further_layers[0]: expected an object"},
      {"/v1/namespaces", shaped(R"([{"heads":1,"head_size":1}])"), 422,
       "kv_cache.further_layers[0].layers: is missing"},
      {"/v1/namespaces", shaped("[" + group + R"(,{"layers":1,"head_size":1}])"), 422,
       "kv_cache.further_layers[1].heads: is missing"},
      {"/v1/namespaces", shaped(R"([{"layers":1,"heads":1,"head_size":null}])"), 422,
       "kv_cache.further_layers[0].head_size: is missing"},
      {"/v1/namespaces", shaped(R"([{"layers":1025,"heads":1,"head_size":1}])"), 422,
       "kv_cache.further_layers[0].layers: "},
      {"/v1/namespaces", shaped(R"([{"layers":1,"parts":3,"heads":1,"head_size":1}])"), 422,
       "kv_cache.further_layers[0].parts: "},
      {"/v1/namespaces", shaped(R"([{"layers":1,"heads":1,"head_size":1,"element_bytes":5}])"), 422,
       "kv_cache.further_layers[0].element_bytes: "},
      {"/v1/namespaces", shaped(too_many_groups.dump()), 413, "kv_cache.further_layers: at most 64"},
      {a + "ranks", R"({"rank":0})", 422, "slots: is missing"},
      {a + "ranks", R"({"rank":0,"slots":0})", 422, "slots: expected a whole number, 1 to "},
      {a + "ranks", R"({"rank":4294967295,"slots":1})", 422, "rank: "},
      {a + "reserve", R"({"rank":0})", 422, "keys: is missing"},
      {a + "reserve", R"({"keys":["k"]})", 422, "rank: is missing"},
      {a + "reserve", R"({"rank":"0","keys":["k"]})", 422, "rank: expected a whole number"},
      {a + "reserve", R"({"rank":0,"keys":["k",1]})", 422, "keys[1]: expected a string"},
      {a + "reserve", R"({"rank":0,"keys":["k"],"parents":[]})", 422, "parents: must have one item for each key"},
      {a + "reserve", R"({"rank":0,"keys":["k"],"parents":[3]})", 422, "parents[0]: expected a string"},
      {a + "reserve", R"({"rank":0,"keys":["k"],"token":{"owner":0,"sequence":1}})", 422, "token.owner: "},
      {a + "reserve", R"({"rank":0,"keys":["k"],"token":{"owner":1}})", 422, "token.sequence: is missing"},
      {a + "reserve", R"({"rank":0,"keys":["k"],"token":7})", 422, "token: expected an object"},
      {a + "reserve", R"({"rank":0,"keys":["k"],"expires_in_ms":0})", 422, "expires_in_ms: "},
      {a + "reserve", R"({"rank":0,"keys":["k"],"expires_in_ms":60001})", 422, "expires_in_ms: "},
      {a + "reserve", R"({"rank":5,"keys":["k"]})", 400, "rank 5"},
      {a + "reserve", json{{"rank", 0}, {"keys", too_many}}.dump(), 413, "keys: at most 100"},
      {a + "commit", R"({"rank":0,"pages":[]})", 422, "token: is missing"},
      {a + "commit", R"({"rank":0,)" + token + "}", 422, "pages: is missing"},
      {a + "commit", R"({"rank":0,)" + token + R"(,"pages":[{"slot":1,"generation":1}]})", 422, "pages[0].key: is mis"},
      {a + "commit", R"({"rank":0,)" + token + R"(,"pages":[{"key":"k","slot":1}]})", 422, "pages[0]: slot and gen"},
      {a + "commit", R"({"rank":0,)" + token + R"(,"pages":[{"key":"k","slot":-1,"generation":1}]})", 422,
       "pages[0].slot: "},
      {a + "commit", R"({"rank":0,)" + token + R"(,"pages":[7]})", 422, "pages[0]: expected an object"},
      {a + "abort", R"({"rank":0,)" + token + R"(,"pages":[]})", 422, "pages: is empty"},
      {a + "match", R"({"keys":{}})", 422, "keys: expected an array"},
      {a + "match", R"({"keys":["k"],"lease_for_ms":600001})", 422, "lease_for_ms: "},
      {a + "match", R"({"keys":["k"],"lease":{"owner":1.5,"sequence":1}})", 422, "lease.owner: "},
      {a + "locate", R"({"keys":["k"]})", 422, "rank: is missing"},
      {a + "renew", R"({})", 422, "lease: is missing"},
      {a + "renew", R"({"lease":{"owner":1,"sequence":1}})", 404, "no such lease"},
      {a + "exists", R"({"keys":["k"],"rank":1})", 400, "rank 1"},
      {a + "erase", R"({"rank":0})", 422, "keys: is missing"},
      {a + "clear", R"({"rank":-1})", 422, "rank: "},
      {"/v1/namespaces/b/match", R"({"keys":["k"]})", 404, "no namespace has the name \"b\""},
      {"/v1/namespaces/0123456789abcdef0123456789abcdef/match", R"({"keys":["k"]})", 404, ""},
      {"/v1/namespaces/a/nothing", "{}", 404, ""},
  };
  for (const auto& x : all) {
    INFO(x.path << " " << x.body);
    const auto got = w.call("POST", x.path, x.body);
    INFO(got.text);
    CHECK(got.code == x.code);
    CHECK(got.detail().starts_with(x.detail));
    CHECK_FALSE(got.detail().empty());
  }
  // None of it has left anything behind.
  CHECK(w.get("/v1/namespaces").body.at("namespaces").size() == 1);
  CHECK(w.get("/v1/namespaces/a").body.at("reservations") == 0);
  CHECK(w.get("/v1/namespaces/a").body.at("leases") == 0);
}

TEST_CASE("http native refusals: a reservation that one shard refuses leaves no slots reserved on others",
          "[http][native]") {
  const auto most = registry_options{}.max_batch;
  const http_world w(native_routes(most + 10));
  REQUIRE(w.post("/v1/namespaces", {{"name", "a"}, {"model", "m"}}).code == 201);
  REQUIRE(w.post("/v1/namespaces/a/ranks", {{"rank", 0}, {"slots", 8}}).code == 204);
  // One key of the first shard, and more of the second one than it takes at once.
  json few = json::array();
  json many = json::array();
  for (std::uint64_t n = 1; many.size() <= most || few.empty(); ++n) {
    const key_digest key{n, n};
    if (const auto shard = shard_of(key, 3); shard == 0 && few.empty())
      few.push_back(to_string(key));
    else if (shard == 1 && many.size() <= most)
      many.push_back(to_string(key));
  }
  auto all = few;
  all.insert(all.end(), many.begin(), many.end());
  const auto reservations = [&] { return w.get("/v1/namespaces/a").body.at("reservations").get<int>(); };
  REQUIRE(w.post("/v1/namespaces/a/reserve", {{"rank", 0}, {"keys", all}}).code == 429);
  CHECK(reservations() == 0);
  // With a token of the caller the reservations stay, and the caller can end them.
  const json token{{"owner", 5}, {"sequence", 9}};
  REQUIRE(w.post("/v1/namespaces/a/reserve", {{"rank", 0}, {"keys", all}, {"token", token}}).code == 429);
  CHECK(reservations() == 1);
  CHECK(w.post("/v1/namespaces/a/abort", {{"rank", 0}, {"token", token}}).code == 200);
  CHECK(reservations() == 0);
}

TEST_CASE("http native refusals: batches may be empty, and as large as the limit", "[http][native]") {
  const http_world w(native_routes());
  REQUIRE(w.post("/v1/namespaces", {{"name", "a"}, {"model", "m"}}).code == 201);
  REQUIRE(w.post("/v1/namespaces/a/ranks", {{"rank", 0}, {"slots", 200}}).code == 204);
  const json none = json::array();
  CHECK(w.post("/v1/namespaces/a/reserve", {{"rank", 0}, {"keys", none}}).body.at("results").empty());
  CHECK(w.post("/v1/namespaces/a/match", {{"keys", none}}).body.at("matched") == 0);
  CHECK(w.post("/v1/namespaces/a/locate", {{"rank", 0}, {"keys", none}}).body.at("results").empty());
  json all = json::array();
  for (int i = 0; i < 100; ++i)
    all.push_back("k" + std::to_string(i));
  CHECK(w.post("/v1/namespaces/a/reserve", {{"rank", 0}, {"keys", all}}).body.at("results").size() == 100);
}

TEST_CASE("http native refusals: each operation requires its role", "[http][native]") {
  const http::scratch_directory directory;
  auto config = http::test_config();
  config.tokens_file = directory.write("tokens", "read read-token-0123456789\nwrite write-token-0123456789\n"
                                                 "admin admin-token-0123456789\n");
  const http_world w(native_routes(), config);
  for (const auto& route : http::native::described_routes()) {
    std::string path{route.pattern};
    if (const auto at = path.find("{namespace}"); at != std::string::npos)
      path.replace(at, 11, "a");
    if (const auto at = path.find("{key}"); at != std::string::npos)
      path.replace(at, 5, "k");
    INFO(to_string(route.method) << " " << path);
    const auto code = [&](const std::string& token) {
      const auto header = token.empty() ? "" : "Authorization: Bearer " + token + "\r\n";
      return w.call(to_string(route.method), path, {}, header).code;
    };
    // Neither body nor namespace: an authorized caller gets another error than 403.
    const auto may = [&](const std::string& token) {
      const auto x = code(token);
      return x != 401 && x != 403;
    };
    CHECK(may("") == (route.needs == http::role::none));
    CHECK(may("read-token-0123456789") == (route.needs <= http::role::read));
    CHECK(may("write-token-0123456789") == (route.needs <= http::role::write));
    CHECK(may("admin-token-0123456789"));
  }
}

} // namespace http_native_refusals_test
