// `/v1/explain` of a whole node: what its clients do is what it explains.

#include "http/native/native.hpp"
#include "http/native/native_body.hpp"
#include "tests/actors/node_with_http.hpp"
#include "tests/actors/openapi_shape.hpp"
#include "tests/catch.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace explain_http_test {

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

/// A node, and a namespace "a" whose pages an HTTP client keeps.
struct explained_node : node_with_http {
  explicit explained_node(bool at_once = true) : node_with_http(at_once) {}

  void make(const std::string& name, std::uint32_t ranks = 1, std::uint32_t slots = 64,
            const std::string& dtype = "bfloat16", const std::string& salt = "") const {
    REQUIRE(post("/v1/namespaces",
                 {{"name", name}, {"model", "m"}, {"dtype", dtype}, {"salt", salt}, {"world_size", ranks}})
                .code == 201);
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      REQUIRE(post("/v1/namespaces/" + name + "/ranks", {{"rank", rank}, {"slots", slots}}).code == 204);
  }

  json must(const std::string& ns, const std::string& operation, const json& body) const {
    const auto x = post("/v1/namespaces/" + ns + "/" + operation, body);
    INFO(operation << " " << body.dump() << " → " << x.text);
    REQUIRE(x.code == 200);
    return x.body();
  }

  void store(const std::string& ns, const std::vector<std::string>& keys, std::uint32_t rank = 0) const {
    const auto reserved = must(ns, "reserve", {{"rank", rank}, {"keys", keys}});
    json pages = json::array();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto& x = reserved.at("results").at(i);
      REQUIRE(x.at("status") == "ok");
      pages.push_back({{"key", keys[i]}, {"slot", x.at("slot")}, {"generation", x.at("generation")}});
    }
    must(ns, "commit", {{"rank", rank}, {"token", reserved.at("token")}, {"pages", pages}});
  }

  /// Looks up keys, and gives the lease back.
  void look_up(const std::string& ns, const std::vector<std::string>& keys) const {
    const auto found = must(ns, "match", {{"keys", keys}});
    post("/v1/namespaces/" + ns + "/release", {{"lease", found.at("lease")}});
  }

  json explained(const std::string& query = "") const {
    const auto got = get("/v1/explain" + query);
    INFO(got.text);
    REQUIRE(got.code == 200);
    const auto document = json::parse(http::native::openapi_text());
    const auto& schema = document.at("components").at("schemas").at("explanation");
    CHECK(what_is_wrong(document, schema, got.body(), "/v1/explain") == "");
    return got.body();
  }

  /// The only reason of the newest lookup.
  json reason(const std::string& ns, const std::vector<std::string>& keys) const {
    look_up(ns, keys);
    const auto all = explained("?last=1").at("lookups");
    REQUIRE(all.size() == 1);
    REQUIRE(all.at(0).at("ends").size() == 1);
    return all.at(0).at("ends").at(0);
  }
};

namespace_id id_of(const json& text) {
  return http::native::read_namespace_id(text.get<std::string>()).value();
}

bool says(const json& end, std::string_view what) {
  INFO(end.dump());
  CHECK(end.at("text").get<std::string>().find(what) != std::string::npos);
  return end.at("text").get<std::string>().find(what) != std::string::npos;
}

} // namespace

TEST_CASE_METHOD(explained_node, "explain: a lookup with what it found, by whom and where", "[explain]") {
  make("a");
  CHECK(explained().at("kept") == true);
  CHECK(explained().at("lookups").empty());
  store("a", {"1", "2"});
  look_up("a", {"1", "2", "3"});
  look_up("a", {"1", "2"});
  const auto all = explained().at("lookups");
  REQUIRE(all.size() == 2);
  CHECK(all.at(0).at("asked") == 2);
  CHECK(all.at(0).at("found") == 2);
  CHECK(all.at(0).at("ends").empty());
  const auto& x = all.at(1);
  CHECK(x.at("namespace") == "a");
  CHECK(x.at("client") == "anonymous");
  CHECK(x.at("asked") == 3);
  CHECK(x.at("found") == 2);
  CHECK(x.at("ends").at(0).at("reason") == "never_saved");
  CHECK(x.at("ends").at(0).at("key").get<std::string>().size() == 32);

  // By its id, by client, by namespace.
  const auto id = x.at("id").get<std::string>();
  const auto one = explained("?request=" + id).at("lookups");
  REQUIRE(one.size() == 1);
  CHECK(one.at(0) == x);
  CHECK(explained("?client=anonymous").at("lookups").size() == 2);
  CHECK(explained("?client=" + id.substr(0, 16) + "&last=1").at("lookups").size() == 1);
  CHECK(explained("?namespace=a").at("lookups").size() == 2);
  CHECK(explained("?namespace=small").at("lookups").empty());
  // What is no id of a lookup is an engine's name of a request.
  CHECK(explained("?request=7").at("lookups").empty());
  CHECK(get("/v1/explain?client=unknown").code == 404);
  CHECK(get("/v1/explain?namespace=none").code == 404);
  for (const auto* bad : {"last=0", "last=1001", "last=x", "last=1x"})
    CHECK(get(std::string("/v1/explain?") + bad).code == 400);
}

TEST_CASE_METHOD(explained_node, "explain: evicted, erased, damaged and aborted keys", "[explain]") {
  make("a", 1, 8);
  store("a", {"1"});
  for (int i = 2; i <= 16; ++i)
    store("a", {std::to_string(i)});
  const auto evicted = reason("a", {"1"});
  CHECK(evicted.at("reason") == "evicted");
  CHECK(says(evicted, "because rank 0 needed slots"));

  must("a", "erase", {{"keys", {"16"}}});
  CHECK(reason("a", {"16"}).at("reason") == "erased");

  const auto reserved = must("a", "reserve", {{"rank", 0}, {"keys", {"20"}}});
  CHECK(reason("a", {"20"}).at("reason") == "being_saved");
  must("a", "abort", {{"rank", 0}, {"token", reserved.at("token")}});
  CHECK(reason("a", {"20"}).at("reason") == "save_ended");
}

TEST_CASE_METHOD(explained_node, "explain: a damaged page, and the rank that lacks it", "[explain]") {
  make("a", 2);
  store("a", {"1"}, 0);
  auto end = reason("a", {"1"});
  CHECK(end.at("reason") == "incomplete");
  CHECK(end.at("rank") == 1);
  CHECK(says(end, "rank 1 had no page of it, and 1 of 2 ranks had"));

  store("a", {"1"}, 1);
  look_up("a", {"1"});
  CHECK(explained("?last=1").at("lookups").at(0).at("found") == 1);

  const auto key = end.at("key");
  const auto state = get("/v1/namespaces/a/keys/1").body();
  INFO(state.dump());
  const auto& page = state.at("pages").at(1);
  invalidate_request damaged{};
  damaged.ns = id_of(get("/v1/namespaces/a").body().at("id"));
  damaged.rank = 1;
  damaged.pages.items.push_back({{id_of(key).hi, id_of(key).lo}, {page.at("slot"), page.at("generation")}});
  REQUIRE(ask_shards<finish_reply>(damaged));
  end = reason("a", {"1"});
  CHECK(end.at("reason") == "incomplete");
  CHECK(says(end, "the page of rank 1 was damaged"));
}

TEST_CASE_METHOD(explained_node, "explain: another namespace has the key, and differs in these fields", "[explain]") {
  make("a");
  make("b", 1, 64, "float8", "a secret");
  store("b", {"1"});
  const auto end = reason("a", {"1"});
  CHECK(end.at("reason") == "other_namespace");
  REQUIRE(end.at("other_namespaces").size() == 1);
  const auto& other = end.at("other_namespaces").at(0);
  CHECK(other.at("namespace") == "b");
  CHECK(other.at("complete") == true);
  CHECK(other.at("differs") ==
        json::array({{{"field", "dtype"}, {"here", "\"bfloat16\""}, {"there", "\"float8\""}}, {{"field", "salt"}}}));
  CHECK(end.dump().find("secret") == std::string::npos);
}

TEST_CASE_METHOD(explained_node, "explain: a key that was saved since", "[explain]") {
  make("a");
  look_up("a", {"1"});
  store("a", {"1"});
  const auto end = explained().at("lookups").at(0).at("ends").at(0);
  CHECK(end.at("complete_now") == true);
  CHECK(end.at("reason") == "never_saved");
}

TEST_CASE("explain: shards are joined, and what is not kept is not explained", "[explain]") {
  explained_node x(false);
  SECTION("several shards") {
    x.options.registry.shards = 4;
    x.start();
    x.make("a", 1, 1024);
    std::vector<std::string> keys;
    for (int i = 0; i < 40; ++i)
      keys.push_back(std::to_string(i));
    x.store("a", keys);
    x.must("a", "erase", {{"keys", {"17"}}});
    x.look_up("a", keys);
    const auto all = x.explained().at("lookups");
    REQUIRE(all.size() == 1);
    CHECK(all.at(0).at("asked") == 40);
    CHECK(all.at(0).at("found") == 17);
    REQUIRE(all.at(0).at("ends").size() == 1);
    CHECK(all.at(0).at("ends").at(0).at("reason") == "erased");
  }
  SECTION("switched off") {
    x.options.registry.explain_lookups = 0;
    x.start();
    x.make("a");
    x.look_up("a", {"1"});
    CHECK(x.explained().at("kept") == false);
    CHECK(x.explained().at("lookups").empty());
  }
  SECTION("fewer than there were") {
    x.options.registry.explain_lookups = 2;
    x.start();
    x.make("a");
    for (int i = 0; i < 5; ++i)
      x.look_up("a", {"1"});
    CHECK(x.explained().at("lookups").size() == 2);
  }
}

TEST_CASE("explain: a limited caller sees nothing of other namespaces", "[explain]") {
  explained_node x(false);
  const auto tokens = x.directory.path() / "tokens";
  std::ofstream(tokens) << "admin admin-0123456789abcdef name=boss\n"
                           "write alice-0123456789abcdef name=alice namespaces=a\n";
  std::filesystem::permissions(tokens, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  x.options.http.tokens_file = tokens;
  x.start();
  const auto call = [&](std::string_view token, std::string_view method, const std::string& path,
                        const json& body = nullptr) {
    http::client c{x.web->port()};
    const auto text = body.is_null() ? std::string() : body.dump();
    const auto reply = c.call(std::string(method) + " " + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n" +
                              "Authorization: Bearer " + std::string(token) + "-0123456789abcdef\r\nContent-Length: " +
                              std::to_string(text.size()) + "\r\n\r\n" + text);
    return http_reply{reply.code, reply.body};
  };
  for (const auto* name : {"a", "b"}) {
    const auto path = std::string("/v1/namespaces/") + name;
    REQUIRE(call("admin", "POST", "/v1/namespaces", {{"name", name}, {"model", name}}).code == 201);
    REQUIRE(call("admin", "POST", path + "/ranks", {{"rank", 0}, {"slots", 8}}).code == 204);
    REQUIRE(call("admin", "POST", path + "/match", {{"keys", {"1"}}}).code == 200);
  }
  // "b" has the key that "a" lacks.
  const auto reserved = call("admin", "POST", "/v1/namespaces/b/reserve", {{"rank", 0}, {"keys", {"1"}}}).body();
  const auto& slot = reserved.at("results").at(0);
  const json page{{"key", "1"}, {"slot", slot.at("slot")}, {"generation", slot.at("generation")}};
  REQUIRE(call("admin", "POST", "/v1/namespaces/b/commit",
               {{"rank", 0}, {"token", reserved.at("token")}, {"pages", {page}}})
              .code == 200);

  const auto everything = call("admin", "GET", "/v1/explain").body().at("lookups");
  REQUIRE(everything.size() == 2);
  CHECK(everything.at(0).at("client") == "boss");
  CHECK(everything.at(1).at("ends").at(0).at("reason") == "other_namespace");

  const auto own = call("alice", "GET", "/v1/explain");
  REQUIRE(own.code == 200);
  const auto lookups = own.body().at("lookups");
  REQUIRE(lookups.size() == 1);
  const auto& end = lookups.at(0).at("ends").at(0);
  CHECK(end.at("reason") == "never_saved");
  CHECK(end.at("other_namespaces").empty());
  CHECK_FALSE(end.contains("key"));
  CHECK(call("alice", "GET", "/v1/explain?namespace=b").code == 404);
  CHECK(call("alice", "GET", "/v1/explain?client=unknown").body().at("lookups").empty());
  const auto id = everything.at(0).at("id").get<std::string>();
  CHECK(call("alice", "GET", "/v1/explain?request=" + id).body().at("lookups").empty());
  CHECK(call("no-one", "GET", "/v1/explain").code == 401);
}

} // namespace explain_http_test
