#include "http/native/native.hpp"
#include "http/server/request_metrics.hpp"
#include "tests/actors/http_world.hpp"
#include "tests/catch.hpp"

#include <set>
#include <thread>

namespace http_native_test {

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

struct native_world : http_world {
  explicit native_world(const http::native::options& options = {}, std::uint32_t shards = 3)
      : http_world([&](http::router& r, const auto& service) { http::native::add_routes(r, service, options); },
                   http::test_config(), shards) {}

  /// A namespace "a" with so many ranks of so many slots.
  void make(std::uint32_t ranks = 1, std::uint32_t slots = 64) const {
    REQUIRE(post("/v1/namespaces", {{"name", "a"}, {"model", "m"}, {"world_size", ranks}}).code == 201);
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      REQUIRE(post("/v1/namespaces/a/ranks", {{"rank", rank}, {"slots", slots}}).code == 204);
  }

  json must(std::string_view operation, const json& body, int code = 200) const {
    const auto x = post("/v1/namespaces/a/" + std::string{operation}, body);
    INFO(operation << " " << body.dump() << " → " << x.text);
    REQUIRE(x.code == code);
    return x.body;
  }

  /// The pages that a reservation may write.
  static json pages(const json& keys, const json& reserved) {
    json out = json::array();
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (const auto& x = reserved.at("results").at(i); x.at("status") == "ok")
        out.push_back({{"key", keys.at(i)}, {"slot", x.at("slot")}, {"generation", x.at("generation")}});
    return out;
  }

  void store(const json& keys, std::uint32_t rank = 0) const {
    const auto reserved = must("reserve", {{"rank", rank}, {"keys", keys}});
    const auto committed =
        must("commit", {{"rank", rank}, {"token", reserved.at("token")}, {"pages", pages(keys, reserved)}});
    for (const auto& x : committed.at("results"))
      REQUIRE(x.at("status") == "ok");
    REQUIRE(committed.at("results").size() == keys.size());
  }

  static std::vector<std::string> statuses(const json& answer) {
    std::vector<std::string> out;
    for (const auto& x : answer.at("results"))
      out.push_back(x.at("status"));
    return out;
  }

  using words = std::vector<std::string>;
};

json many_keys(int count, const std::string& prefix = "block ") {
  json out = json::array();
  for (int i = 0; i < count; ++i)
    out.push_back(prefix + std::to_string(i));
  return out;
}

} // namespace

TEST_CASE("http native: namespaces are created, shown and removed over HTTP", "[http][native]") {
  const native_world w;
  CHECK(w.get("/v1/namespaces").body == json{{"namespaces", json::array()}});
  const json wanted{
      {"name", "b"},
      {"model", "m"},
      {"dtype", "bf16"},
      {"world_size", 2},
      {"kv_cache", {{"layers", 2}, {"heads", 4}, {"head_size", 8}, {"element_bytes", 2}, {"block_tokens", 16}}}};
  const auto made = w.post("/v1/namespaces", wanted);
  CHECK(made.code == 201);
  CHECK(made.body.at("name") == "b");
  const auto id = made.body.at("id").get<std::string>();
  CHECK(id.size() == 32);
  // The same request again succeeds; another namespace under the same name is refused.
  CHECK(w.post("/v1/namespaces", wanted).code == 201);
  auto different = wanted;
  different["dtype"] = "fp8";
  const auto refused = w.post("/v1/namespaces", different);
  CHECK(refused.code == 409);
  CHECK(refused.detail().find("dtype") != std::string::npos);
  REQUIRE(w.post("/v1/namespaces", {{"name", "a"}, {"model", "m"}, {"automatic", true}, {"max_ranks", 2}}).code == 201);

  // Sorted by name; the same by name and by id.
  const auto all = w.get("/v1/namespaces").body.at("namespaces");
  REQUIRE(all.size() == 2);
  CHECK(all[0].at("name") == "a");
  CHECK(all[0].at("world_size") == 0);
  CHECK(all[0].at("automatic") == true);
  CHECK(w.get("/v1/namespaces/b").body == all[1]);
  CHECK(w.get("/v1/namespaces/" + id).body == all[1]);
  CHECK(all[1].at("page_bytes") == 2 * 2 * 4 * 8 * 2 * 16);

  CHECK(w.post("/v1/namespaces/b/ranks", {{"rank", 1}, {"slots", 10}}).code == 204);
  CHECK(w.post("/v1/namespaces/b/ranks", {{"rank", 1}, {"slots", 10}}).code == 204);
  const auto other_slots = w.post("/v1/namespaces/b/ranks", {{"rank", 1}, {"slots", 11}});
  CHECK(other_slots.code == 409);
  CHECK(other_slots.detail().find("10") != std::string::npos);
  CHECK(w.post("/v1/namespaces/b/ranks", {{"rank", 2}, {"slots", 10}}).code == 400);
  // A rank that has not registered has no slots.
  const auto ranks = w.get("/v1/namespaces/b").body.at("ranks");
  REQUIRE(ranks.size() == 2);
  CHECK(ranks[0].at("slots") == 0);
  CHECK(ranks[1] == json{{"rank", 1}, {"slots", 10}, {"live", 0}, {"reserved", 0}, {"withheld", 0}});

  CHECK(w.call("DELETE", "/v1/namespaces/" + id).code == 204);
  CHECK(w.get("/v1/namespaces/b").code == 404);
  CHECK(w.get("/v1/namespaces/" + id).code == 404);
  CHECK(w.call("DELETE", "/v1/namespaces/b").code == 404);
  CHECK(w.get("/v1/namespaces").body.at("namespaces").size() == 1);
}

TEST_CASE("http native: a namespace over HTTP can have layers of several shapes", "[http][native]") {
  const native_world w;
  const json indexer{{"layers", 2}, {"parts", 1}, {"heads", 1}, {"head_size", 132}, {"element_bytes", 1}};
  const json draft{{"layers", 1}, {"heads", 2}, {"head_size", 8}};
  json wanted{{"name", "a"},
              {"model", "m"},
              {"kv_cache",
               {{"layers", 2},
                {"parts", 1},
                {"heads", 1},
                {"head_size", 576},
                {"block_tokens", 4},
                {"further_layers", {indexer, draft}}}}};
  REQUIRE(w.post("/v1/namespaces", wanted).code == 201);
  CHECK(w.post("/v1/namespaces", wanted).code == 201);
  const auto made = w.get("/v1/namespaces/a").body;
  // Omitted fields have their defaults.
  auto shown = draft;
  shown["parts"] = 2;
  shown["element_bytes"] = 2;
  CHECK(made.at("kv_cache").at("further_layers") == json{indexer, shown});
  CHECK(made.at("page_bytes") == 4 * (2 * 576 * 2 + 2 * 132 + 2 * 2 * 8 * 2));

  auto& groups = wanted["kv_cache"]["further_layers"];
  groups[0]["head_size"] = 128;
  auto refused = w.post("/v1/namespaces", wanted);
  CHECK(refused.code == 409);
  CHECK(refused.detail().find("further_layers[0].head_size 132 is not 128") != std::string::npos);
  groups = {indexer};
  refused = w.post("/v1/namespaces", wanted);
  CHECK(refused.code == 409);
  CHECK(refused.detail().find("number of further_layers 2 is not 1") != std::string::npos);
  groups = nullptr;
  CHECK(w.post("/v1/namespaces", wanted).code == 409);
  // None is the same as not saying so.
  wanted["name"] = "b";
  REQUIRE(w.post("/v1/namespaces", wanted).code == 201);
  groups = json::array();
  CHECK(w.post("/v1/namespaces", wanted).code == 201);
  CHECK(w.get("/v1/namespaces/b").body.at("kv_cache").at("further_layers") == json::array());
  // As many and as large as there can be.
  wanted["name"] = "c";
  wanted["kv_cache"]["block_tokens"] = 4096;
  for (int i = 0; i < 64; ++i)
    groups.push_back({{"layers", 1024}, {"heads", 1024}, {"head_size", 16384}, {"element_bytes", 4}});
  REQUIRE(w.post("/v1/namespaces", wanted).code == 201);
  CHECK(w.get("/v1/namespaces/c").body.at("page_bytes").get<std::uint64_t>() ==
        (std::uint64_t{1} << 55U) + 4096 * 2304);
}

TEST_CASE("http native: a namespace in use is removed only with force", "[http][native]") {
  const native_world w;
  w.make();
  static_cast<void>(w.must("reserve", {{"rank", 0}, {"keys", {"x"}}}));
  const auto busy = w.call("DELETE", "/v1/namespaces/a");
  CHECK(busy.code == 409);
  CHECK(busy.detail().find("reservations") != std::string::npos);
  CHECK(w.call("DELETE", "/v1/namespaces/a?force=false").code == 409);
  CHECK(w.call("DELETE", "/v1/namespaces/a?force=maybe").code == 400);
  CHECK(w.call("DELETE", "/v1/namespaces/a?force=true").code == 204);
  CHECK(w.get("/v1/namespaces/a").code == 404);
}

TEST_CASE("http native: pages are reserved, written, found and released over HTTP", "[http][native]") {
  const native_world w;
  w.make(2);
  const auto keys = many_keys(20);
  const auto reserved = w.must("reserve", {{"rank", 0}, {"keys", keys}});
  CHECK(native_world::statuses(reserved) == native_world::words(20, "ok"));
  const auto pages = native_world::pages(keys, reserved);
  std::set<std::uint32_t> slots;
  for (const auto& x : pages)
    slots.insert(x.at("slot").get<std::uint32_t>());
  CHECK(slots.size() == 20);

  // The same ticket gets the same answer, another one does not.
  json again{{"rank", 0}, {"keys", keys}, {"token", reserved.at("token")}};
  CHECK(w.must("reserve", again) == reserved);
  CHECK(native_world::statuses(w.must("reserve", {{"rank", 0}, {"keys", keys}})) == native_world::words(20, "busy"));

  const json commit{{"rank", 0}, {"token", reserved.at("token")}, {"pages", pages}};
  CHECK(native_world::statuses(w.must("commit", commit)) == native_world::words(20, "ok"));
  CHECK(native_world::statuses(w.must("commit", commit)) == native_world::words(20, "ok"));

  // One rank of two: there, but not complete.
  CHECK(native_world::statuses(w.must("exists", {{"keys", keys}, {"rank", 0}})) == native_world::words(20, "ok"));
  CHECK(native_world::statuses(w.must("exists", {{"keys", keys}})) == native_world::words(20, "not_found"));
  CHECK(w.must("match", {{"keys", keys}}).at("matched") == 0);
  auto half = keys;
  half.erase(half.begin() + 7);
  w.store(half, 1);
  CHECK(w.must("match", {{"keys", keys}}).at("matched") == 7);
  w.store(json::array({keys[7]}), 1);

  const auto matched = w.must("match", {{"keys", keys}, {"lease", {{"owner", 5}, {"sequence", 9}}}});
  CHECK(matched.at("matched") == 20);
  CHECK(matched.at("lease") == json{{"owner", 5}, {"sequence", 9}});
  auto asked = keys;
  asked.push_back("unknown");
  const auto located = w.must("locate", {{"rank", 0}, {"keys", asked}});
  REQUIRE(located.at("results").size() == 21);
  for (std::size_t i = 0; i < 20; ++i) {
    CHECK(located["results"][i]["slot"] == pages[i]["slot"]);
    CHECK(located["results"][i]["generation"] == pages[i]["generation"]);
  }
  CHECK(located["results"][20] == json{{"status", "not_found"}});

  // Two leases, and a third of 7 keys from before.
  CHECK(w.get("/v1/namespaces/a").body.at("leases") == 3);
  for (const auto& lease : {matched.at("lease"), located.at("lease")}) {
    static_cast<void>(w.must("renew", {{"lease", lease}, {"lease_for_ms", 1000}}, 204));
    static_cast<void>(w.must("release", {{"lease", lease}}, 204));
    static_cast<void>(w.must("release", {{"lease", lease}}, 204));
    const auto gone = w.post("/v1/namespaces/a/renew", {{"lease", lease}});
    CHECK(gone.code == 404);
    CHECK_FALSE(gone.detail().empty());
  }
  CHECK(w.get("/v1/namespaces/a").body.at("leases") == 1);

  CHECK(native_world::statuses(w.must("erase", {{"keys", {keys[0], "unknown"}}, {"rank", 1}})) ==
        native_world::words{"ok", "not_found"});
  CHECK(native_world::statuses(w.must("exists", {{"keys", {keys[0]}}})) == native_world::words{"not_found"});
  CHECK(native_world::statuses(w.must("exists", {{"keys", {keys[0]}}, {"rank", 0}})) == native_world::words{"ok"});
  CHECK(w.must("clear", {{"rank", 1}}).at("pages") == 19);
  CHECK(w.call("POST", "/v1/namespaces/a/clear").body.at("pages") == 20);
  CHECK(w.get("/v1/namespaces/a").body.at("keys") == 0);
  CHECK(w.get("/v1/stats").body.at("erased_pages") == 40);
}

TEST_CASE("http native: a reservation can be aborted for single keys or as a whole", "[http][native]") {
  const native_world w;
  w.make(1, 16);
  const auto keys = many_keys(8);
  const auto first = w.must("reserve", {{"rank", 0}, {"keys", keys}});
  const auto some = w.must("abort", {{"rank", 0},
                                     {"token", first.at("token")},
                                     {"pages", {{{"key", keys[0]}}, native_world::pages(keys, first)[1]}}});
  CHECK(native_world::statuses(some) == native_world::words{"ok", "ok"});
  CHECK(w.must("abort", {{"rank", 0}, {"token", first.at("token")}}).at("results").empty());
  CHECK(w.get("/v1/namespaces/a").body.at("reservations") == 0);
  CHECK(native_world::statuses(w.must(
            "commit", {{"rank", 0}, {"token", first.at("token")}, {"pages", native_world::pages(keys, first)}})) ==
        native_world::words(8, "expired"));
  // Another's token.
  const auto second = w.must("reserve", {{"rank", 0}, {"keys", {"x"}}});
  CHECK(native_world::statuses(w.must("commit", {{"rank", 0},
                                                 {"token", {{"owner", 1}, {"sequence", 1}}},
                                                 {"pages", native_world::pages(json::array({"x"}), second)}})) ==
        native_world::words{"not_owner"});
}

TEST_CASE("http native: a key is a digest or text, by one rule", "[http][native]") {
  http::native::options options;
  options.hash_text = [](std::string_view text) { return key_digest{1, text.size()}; };
  const native_world w(options);
  w.make();
  const std::string hex = "0123456789abcdef0123456789ABCDEF";
  w.store(json::array({hex}));
  const auto as_digest = w.get("/v1/namespaces/a/keys/" + hex);
  REQUIRE(as_digest.code == 200);
  CHECK(as_digest.body.at("key") == "0123456789abcdef0123456789abcdef");
  CHECK(w.get("/v1/namespaces/a/keys/0123456789ABCDEF0123456789abcdef").body == as_digest.body);
  // Text is hashed, also text that looks like a digest or is nearly one.
  CHECK(w.get("/v1/namespaces/a/keys/text:" + hex).code == 404);
  w.store(json::array({"text:" + hex}));
  CHECK(w.get("/v1/namespaces/a/keys/text:" + hex).body.at("key") == "00000000000000010000000000000020");
  w.store(json::array({"a/b ü"}));
  CHECK(w.get("/v1/namespaces/a/keys/a%2Fb%20%C3%BC").body.at("key") == "00000000000000010000000000000006");
  w.store(json::array({hex.substr(1)}));
  CHECK(w.get("/v1/namespaces/a/keys/text:" + hex.substr(1)).body.at("key") == "0000000000000001000000000000001f");
  // No keys.
  for (const std::string bad : {"", "text:", "00000000000000000000000000000000"}) {
    INFO(bad);
    const auto x = w.post("/v1/namespaces/a/exists", {{"keys", {"fine", bad}}});
    CHECK(x.code == 422);
    CHECK(x.detail().starts_with("keys[1]: "));
  }
}

TEST_CASE("http native: inspecting a key reports its full state and changes nothing", "[http][native]") {
  const native_world w;
  w.make(2);
  CHECK(w.get("/v1/namespaces/a/keys/child").code == 404);
  const auto reserved =
      w.must("reserve", {{"rank", 0}, {"keys", {"parent", "child"}}, {"parents", {nullptr, "parent"}}});
  static_cast<void>(w.must(
      "commit",
      {{"rank", 0}, {"token", reserved.at("token")}, {"pages", native_world::pages({"parent", "child"}, reserved)}}));
  static_cast<void>(w.must("reserve", {{"rank", 1}, {"keys", {"child"}}}));
  const auto child = w.get("/v1/namespaces/a/keys/child").body;
  const auto parent = w.get("/v1/namespaces/a/keys/parent").body;
  CHECK(child.at("parent") == parent.at("key"));
  CHECK(parent.at("parent") == nullptr);
  CHECK(parent.at("children") == 1);
  CHECK(child.at("complete") == false);
  CHECK(child.at("leases") == 0);
  REQUIRE(child.at("pages").size() == 2);
  CHECK(child["pages"][0]["state"] == "live");
  CHECK(child["pages"][0]["slot"] == reserved["results"][1]["slot"]);
  CHECK(child["pages"][1]["state"] == "reserved");
  CHECK(w.get("/v1/namespaces/a/keys/child").body == child);
}

TEST_CASE("http native: results of requests are counted per key", "[http][native]") {
  http::native::options options;
  options.counts = std::make_shared<http::item_counts>();
  const native_world w(options);
  w.make(1, 8);
  static_cast<void>(w.must("reserve", {{"rank", 0}, {"keys", many_keys(10)}}));
  CHECK(options.counts->of(errc::ok) == 8);
  CHECK(options.counts->of(errc::full) == 2);
  static_cast<void>(w.must("exists", {{"keys", many_keys(10)}}));
  CHECK(options.counts->of(errc::not_found) == 10);
}

TEST_CASE("http native: generated tokens are unique", "[http][native]") {
  const native_world w;
  w.make(1, 64);
  std::set<std::string> tokens;
  for (int i = 0; i < 20; ++i)
    tokens.insert(w.must("reserve", {{"rank", 0}, {"keys", {"key " + std::to_string(i)}}}).at("token").dump());
  CHECK(tokens.size() == 20);
}

TEST_CASE("http native: no slot is given to two of many concurrent clients", "[http][native]") {
  const native_world w({}, 4);
  constexpr int clients = 6;
  constexpr int per_client = 30;
  w.make(1, clients * per_client);
  std::vector<json> reserved(clients);
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i)
    threads.emplace_back([&, i] { // every key is wanted by two
      json keys = json::array();
      for (int k = 0; k < per_client; ++k)
        keys.push_back("key " + std::to_string((i / 2) * per_client + k));
      reserved[static_cast<std::size_t>(i)] = w.post("/v1/namespaces/a/reserve", {{"rank", 0}, {"keys", keys}}).body;
    });
  for (auto& x : threads)
    x.join();
  std::set<std::uint32_t> slots;
  int granted = 0;
  for (const auto& answer : reserved)
    for (const auto& x : answer.at("results")) {
      CHECK((x.at("status") == "ok" || x.at("status") == "busy"));
      if (x.at("status") != "ok")
        continue;
      ++granted;
      slots.insert(x.at("slot").get<std::uint32_t>());
    }
  CHECK(granted == clients / 2 * per_client);
  CHECK(slots.size() == static_cast<std::size_t>(granted));
}

} // namespace http_native_test
