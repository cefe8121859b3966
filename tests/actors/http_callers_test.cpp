// Ownership over HTTP: callers with tokens of their own, limits per caller, and namespaces of other callers.

#include "http/hf3fs/hf3fs.hpp"
#include "http/native/native.hpp"
#include "http/sglang/sglang.hpp"
#include "tests/actors/http_world.hpp"
#include "tests/catch.hpp"

#include <set>

namespace http_callers_test {

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

using words = std::vector<std::string>;

config::http_config with_tokens(const http::scratch_directory& directory) {
  auto out = http::test_config();
  out.tokens_file = directory.write("tokens", "admin admin-admin-admin\n"
                                              "write alice-alice-alice name=alice\n"
                                              "write bob-bob-bob-bob-bob name=bob\n"
                                              "write bob-has-another-one name=bob\n"
                                              "read reader-reader-reader name=reader\n"
                                              "read second-second-reader\n"
                                              "write tenant-tenant-tenant name=tenant namespaces=a,team-*\n"
                                              "admin owner-owner-owner-owner namespaces=team-*,hf3fs,sglang-kv\n"
                                              "read guest-guest-guest-guest namespaces=team-1\n");
  return out;
}

struct caller_world {
  explicit caller_world(const http::native::options& options = {})
      : world(
            [&](http::router& r, const auto& service) {
              http::native::add_routes(r, service, options);
              http::slots::options shared;
              shared.limits = options.limits;
              http::hf3fs::add_routes(r, service, {shared, "hf3fs", 0});
              http::sglang::add_routes(r, service, {shared});
            },
            with_tokens(directory)) {}

  http_answer call(std::string_view token, std::string_view method, std::string_view path,
                   const json& body = {}) const {
    return world.call(method, path, body.is_null() ? std::string{} : body.dump(),
                      "Authorization: Bearer " + std::string{token} + "\r\n");
  }
  http_answer post(std::string_view token, std::string_view path, const json& body) const {
    return call(token, "POST", path, body);
  }
  http_answer get(std::string_view token, std::string_view path) const { return call(token, "GET", path); }

  json must(std::string_view token, std::string_view path, const json& body, int code = 200) const {
    const auto x = post(token, path, body);
    INFO(path << " " << body.dump() << " → " << x.code << " " << x.text);
    REQUIRE(x.code == code);
    return x.body;
  }

  void make(const std::string& name = "a", std::uint32_t slots = 64) const {
    must(admin, "/v1/namespaces", {{"name", name}, {"model", name}}, 201);
    must(admin, "/v1/namespaces/" + name + "/ranks", {{"rank", 0}, {"slots", slots}}, 204);
  }

  static json pages(const json& keys, const json& reserved) {
    json out = json::array();
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (const auto& x = reserved.at("results").at(i); x.at("status") == "ok")
        out.push_back({{"key", keys.at(i)}, {"slot", x.at("slot")}, {"generation", x.at("generation")}});
    return out;
  }

  void store(const json& keys, const std::string& ns = "a") const {
    const auto path = "/v1/namespaces/" + ns;
    const auto reserved = must(admin, path + "/reserve", {{"rank", 0}, {"keys", keys}});
    const auto done =
        must(admin, path + "/commit", {{"rank", 0}, {"token", reserved.at("token")}, {"pages", pages(keys, reserved)}});
    CHECK(statuses(done) == words(keys.size(), "ok"));
  }

  static words statuses(const json& answer) {
    words out;
    for (const auto& x : answer.at("results"))
      out.push_back(x.at("status"));
    return out;
  }

  std::uint64_t leases_of(const std::string& key, const std::string& ns = "a") const {
    return get(admin, "/v1/namespaces/" + ns + "/keys/" + key).body.at("leases").get<std::uint64_t>();
  }

  static constexpr std::string_view admin = "admin-admin-admin";
  static constexpr std::string_view alice = "alice-alice-alice";
  static constexpr std::string_view bob = "bob-bob-bob-bob-bob";
  static constexpr std::string_view bob_again = "bob-has-another-one";
  static constexpr std::string_view reader = "reader-reader-reader";
  static constexpr std::string_view second_reader = "second-second-reader";
  static constexpr std::string_view tenant = "tenant-tenant-tenant";
  static constexpr std::string_view owner = "owner-owner-owner-owner";
  static constexpr std::string_view guest = "guest-guest-guest-guest";

  http::scratch_directory directory;
  http_world world;
};

json many_keys(int count, int first = 0) {
  json out = json::array();
  for (int i = 0; i < count; ++i)
    out.push_back("key-" + std::to_string(first + i));
  return out;
}

} // namespace

TEST_CASE("http callers: a lookup over several shards leases exactly the keys that it found", "[http][native]") {
  const caller_world w;
  w.make();
  auto keys = many_keys(20);
  auto stored = keys;
  stored.erase(stored.begin() + 7);
  w.store(stored);
  json asked{{"keys", keys}, {"lease", {{"owner", 5}, {"sequence", 9}}}};
  const auto path = "/v1/namespaces/a/match";
  const auto leased = [&] {
    std::string out;
    for (std::size_t i = 0; i < stored.size(); ++i)
      out += w.leases_of(stored[i].get<std::string>()) > 0 ? '1' : '0';
    return out;
  };
  // Repeating it changes nothing.
  for (int i = 0; i < 3; ++i) {
    CHECK(w.must(w.alice, path, asked).at("matched") == 7);
    CHECK(leased() == "1111111000000000000");
  }
  // The same lease for other keys: only the earlier keys stay leased.
  json others = json::array();
  for (const auto i : {12, 1, 13, 7, 14, 15, 16, 17, 18})
    others.push_back(keys[static_cast<std::size_t>(i)]);
  asked["keys"] = others;
  CHECK(w.must(w.alice, path, asked).at("matched") == 3);
  CHECK(leased() == "1111111000011000000");
}

TEST_CASE("http callers: a caller cannot use leases and reservations of another caller", "[http][native]") {
  const caller_world w;
  w.make();
  const auto keys = many_keys(4);
  w.store(keys);
  const std::string path = "/v1/namespaces/a";
  const json own{{"owner", 1}, {"sequence", 1}};
  const auto brought = GENERATE(true, false);
  CAPTURE(brought);
  json locate{{"rank", 0}, {"keys", keys}};
  json reserve{{"rank", 0}, {"keys", {"new"}}};
  if (brought) {
    locate["lease"] = own;
    reserve["token"] = own;
  }
  const auto lease = w.must(w.alice, path + "/locate", locate).at("lease");
  const auto reserved = w.must(w.alice, path + "/reserve", reserve);
  const auto token = reserved.at("token");
  if (brought) {
    CHECK(lease == own);
    CHECK(token == own);
    // A repeated request gets the first answer.
    CHECK(w.must(w.alice, path + "/reserve", reserve) == reserved);
  }
  const auto pages = caller_world::pages(json{"new"}, reserved);
  for (const auto who : {w.bob, w.admin, w.reader}) {
    INFO(who);
    CHECK(w.post(who, path + "/release", {{"lease", lease}}).code == 404);
    CHECK(w.post(who, path + "/renew", {{"lease", lease}}).code == 404);
    CHECK(w.leases_of("key-0") == 1);
    if (who == w.reader)
      continue;
    CHECK(caller_world::statuses(w.must(who, path + "/commit", {{"rank", 0}, {"token", token}, {"pages", pages}})) ==
          words{"not_owner"});
    CHECK(caller_world::statuses(
              w.must(who, path + "/abort", {{"rank", 0}, {"token", token}, {"pages", {{{"key", "new"}}}}})) ==
          words{"not_owner"});
    CHECK(w.post(who, path + "/abort", {{"rank", 0}, {"token", token}}).code == 404);
    // The same ticket from another caller is another reservation.
    CHECK(caller_world::statuses(w.must(who, path + "/reserve", {{"rank", 0}, {"keys", {"new"}}, {"token", token}})) ==
          words{"busy"});
  }
  CHECK(caller_world::statuses(w.must(w.alice, path + "/commit", {{"rank", 0}, {"token", token}, {"pages", pages}})) ==
        words{"ok"});
  CHECK(caller_world::statuses(w.must(w.bob, path + "/commit", {{"rank", 0}, {"token", token}, {"pages", pages}})) ==
        words{"not_owner"});
  CHECK(w.post(w.alice, path + "/renew", {{"lease", lease}}).code == 204);
  CHECK(w.post(w.alice, path + "/release", {{"lease", lease}}).code == 204);
  CHECK(w.leases_of("key-0") == 0);
}

TEST_CASE("http callers: tokens of one name are one caller", "[http][native]") {
  const caller_world w;
  w.make();
  w.store(many_keys(1));
  const std::string path = "/v1/namespaces/a";
  const auto lease = w.must(w.bob, path + "/locate", {{"rank", 0}, {"keys", many_keys(1)}}).at("lease");
  CHECK(w.post(w.bob_again, path + "/release", {{"lease", lease}}).code == 204);
  CHECK(w.leases_of("key-0") == 0);
}

TEST_CASE("http callers: generated lease identifiers cannot be predicted from each other", "[http][native]") {
  const caller_world w;
  w.make();
  w.store(many_keys(1));
  std::set<std::uint64_t> numbers;
  for (int i = 0; i < 8; ++i) {
    const auto lease = w.must(w.alice, "/v1/namespaces/a/match", {{"keys", many_keys(1)}}).at("lease");
    for (const auto* part : {"owner", "sequence"}) {
      const auto x = lease.at(part).get<std::uint64_t>();
      CHECK(x < (std::uint64_t{1} << 53U));
      numbers.insert(x);
    }
  }
  CHECK(numbers.size() == 16);
  // For 16 random numbers of 53 bits, the chance that all are smaller is 2 to the power of -128.
  CHECK(*numbers.rbegin() > (std::uint64_t{1} << 45U));
}

TEST_CASE("http callers: a read-only caller cannot keep writers from getting slots", "[http][native]") {
  const caller_world w;
  constexpr int slots = 96;
  w.make("a", slots);
  const auto keys = many_keys(slots);
  w.store(keys);
  const std::string path = "/v1/namespaces/a";
  // Longer than readers may.
  CHECK(w.post(w.reader, path + "/locate", {{"rank", 0}, {"keys", keys}, {"lease_for_ms", 600'000}}).code == 422);
  int held = 0;
  int refused = 0;
  for (const auto who : {w.reader, w.second_reader})
    for (const auto& key : keys) {
      const auto x = w.post(who, path + "/locate", {{"rank", 0}, {"keys", {key}}, {"lease_for_ms", 60'000}});
      if (x.code == 200) {
        held += x.body.at("results").at(0).at("status") == "ok" ? 1 : 0;
        continue;
      }
      ++refused;
      CHECK(x.code == 429);
      CHECK(x.detail().find("http.limits.") != std::string::npos);
    }
  CHECK(held > 0);
  CHECK(refused > 0);
  // Half of the keys can go, on each shard: so there is room for as many as that.
  std::size_t leased = 0;
  for (const auto& key : keys)
    leased += w.leases_of(key.get<std::string>()) > 0 ? 1 : 0;
  CHECK(leased <= slots / 2 + 3);
  const auto written = w.must(w.alice, path + "/reserve", {{"rank", 0}, {"keys", many_keys(slots / 3, 1000)}});
  CHECK(caller_world::statuses(written) == words(slots / 3, "ok"));
}

TEST_CASE("http callers: one caller is limited in its share of leased keys and in its number of leases",
          "[http][native]") {
  http::native::options options;
  options.limits.leases = 3;
  options.limits.leased_share = 0.25;
  const caller_world w(options);
  w.make("a", 64);
  const auto keys = many_keys(64);
  w.store(keys);
  const std::string path = "/v1/namespaces/a";
  const auto all = w.post(w.alice, path + "/locate", {{"rank", 0}, {"keys", keys}});
  CHECK(all.code == 429);
  CHECK(all.detail().find("leased_share") != std::string::npos);
  // Leases that one shard granted before another one refused are released. The order of messages makes it visible here.
  CHECK(w.post(w.alice, path + "/match", {{"keys", keys}}).code == 429);
  for (const auto& key : keys)
    CHECK(w.leases_of(key.get<std::string>()) == 0);
  // One key is on one shard.
  const auto one = [&](std::string_view who) {
    return w.post(who, path + "/locate", {{"rank", 0}, {"keys", {"key-0"}}});
  };
  for (int i = 0; i < 3; ++i)
    CHECK(one(w.alice).code == 200);
  CHECK(one(w.alice).code == 429);
  CHECK(one(w.bob).code == 200);
}

TEST_CASE("http callers: namespaces outside of a token's scope look as if they did not exist", "[http][native]") {
  const caller_world w;
  w.make("a");
  w.make("team-1");
  w.make("other");
  w.store(many_keys(2), "team-1");
  w.store(many_keys(2), "other");
  const auto names = [&](std::string_view who) {
    words out;
    const auto listed = w.get(who, "/v1/namespaces").body;
    for (const auto& x : listed.at("namespaces"))
      out.push_back(x.at("name"));
    return out;
  };
  CHECK(names(w.admin) == words{"a", "other", "team-1"});
  CHECK(names(w.alice) == words{"a", "other", "team-1"});
  CHECK(names(w.tenant) == words{"a", "team-1"});
  CHECK(names(w.guest) == words{"team-1"});
  // Existing and missing namespaces look the same, by name and by id.
  const auto id = w.get(w.admin, "/v1/namespaces/other").body.at("id").get<std::string>();
  const auto no_id = std::string(32, 'f');
  const json locate{{"rank", 0}, {"keys", many_keys(1)}};
  for (const auto& [there, not_there] : {std::pair<std::string, std::string>{"other", "nowhere"}, {id, no_id}})
    for (const auto* operation : {"reserve", "match", "exists", "locate"}) {
      const auto x = w.post(w.tenant, "/v1/namespaces/" + there + "/" + operation, locate);
      const auto y = w.post(w.tenant, "/v1/namespaces/" + not_there + "/" + operation, locate);
      INFO(operation << " " << there << " " << x.text << " " << y.text);
      CHECK(x.code == 404);
      CHECK(y.code == 404);
      CHECK(x.detail().size() - there.size() == y.detail().size() - not_there.size());
    }
  CHECK(w.get(w.tenant, "/v1/namespaces/" + id).code == 404);
  CHECK(w.call(w.owner, "DELETE", "/v1/namespaces/" + id + "?force=true").code == 404);
  CHECK(w.get(w.admin, "/v1/namespaces/other").code == 200);
  const auto own = w.get(w.admin, "/v1/namespaces/team-1").body.at("id").get<std::string>();
  for (const auto& name : {std::string{"team-1"}, own})
    CHECK(w.must(w.tenant, "/v1/namespaces/" + name + "/exists", {{"keys", many_keys(1)}}).at("results").size() == 1);
  // Administrators of some make some.
  CHECK(w.post(w.owner, "/v1/namespaces", {{"name", "else"}, {"model", "x"}}).code == 403);
  CHECK(w.post(w.owner, "/v1/namespaces", {{"name", "other"}, {"model", "other"}}).code == 403);
  CHECK(w.post(w.owner, "/v1/namespaces", {{"name", "team-2"}, {"model", "x"}}).code == 201);
  // The identity of another one's namespace, under an own name: refused without saying whose it is.
  const auto taken = w.post(w.owner, "/v1/namespaces", {{"name", "team-3"}, {"model", "other"}});
  CHECK(taken.code == 409);
  CHECK(taken.detail().find("other\"") == std::string::npos);
  // Sums over all namespaces are hidden from them.
  CHECK(w.get(w.guest, "/v1/stats").code == 403);
  CHECK(w.get(w.reader, "/v1/stats").code == 200);
}

TEST_CASE("http callers: only administrators see the salt of a namespace", "[http][native]") {
  const caller_world w;
  w.must(w.admin, "/v1/namespaces", {{"name", "a"}, {"model", "m"}, {"salt", "grains"}}, 201);
  CHECK(w.get(w.admin, "/v1/namespaces/a").body.at("salt") == "grains");
  CHECK(w.get(w.admin, "/v1/namespaces").body.at("namespaces").at(0).at("salt") == "grains");
  for (const auto who : {w.reader, w.alice, w.tenant})
    for (const auto* path : {"/v1/namespaces", "/v1/namespaces/a"}) {
      const auto x = w.get(who, path);
      CHECK(x.code == 200);
      CHECK(x.text.find("grains") == std::string::npos);
      CHECK(x.text.find("salt") == std::string::npos);
    }
}

TEST_CASE("http callers: slot client protocols hide namespaces outside of a token's scope", "[http][hf3fs][sglang]") {
  const caller_world w;
  const json pages{{"num_pages", 8}, {"role", "worker"}};
  w.must(w.alice, "/rank/0/initialize", pages);
  w.must(w.alice, "/hf3fs/secret/rank/0/initialize", pages);
  w.must(w.alice, "/0/initialize", {{"num_pages", 8}}, 204);
  w.must(w.alice, "/0/initialize", {{"num_pages", 8}, {"namespace", "secret"}}, 204);
  w.must(w.alice, "/sglang/secret/0/initialize", {{"num_pages", 8}}, 204);
  const json keys{{"rank", 0}, {"keys", {"k"}}};
  const auto pair = json::array({json::array({"k", ""})});
  const json pairs{{"rank", 0}, {"keys", pair}};
  // The owner has vLLM's and SGLang's standard namespaces; the tenant has none in these protocols.
  CHECK(w.post(w.owner, "/keys/batch_exists", keys).code == 200);
  CHECK(w.post(w.owner, "/keys/get_locations", keys).code == 200);
  CHECK(w.post(w.owner, "/0/exists", keys).code == 200);
  CHECK(w.post(w.owner, "/0/get_page_indices", keys).code == 200);
  CHECK(w.post(w.owner, "/0/reserve_and_allocate_page_indices", {{"keys", pair}}).code == 200);
  const auto denied = [&](std::string_view who, const std::string& front, const json& ns) {
    const auto body = [&](json x) {
      x.update(ns);
      return x;
    };
    INFO(who << " " << front << " " << ns.dump());
    words codes;
    if (ns.empty())
      for (const auto* path :
           {"/keys/batch_exists", "/keys/get_locations", "/keys/batch_allocate", "/keys/confirm_write", "/clear"}) {
        const std::string_view name = path;
        const auto x = w.post(who, front + path,
                              name.ends_with("allocate")        ? pairs
                              : name.ends_with("confirm_write") ? json{{"rank", 0}, {"confirmations", json::array()}}
                                                                : keys);
        codes.push_back(std::to_string(x.code));
        CHECK((x.code == 404 || (x.code == 403 && name == "/clear")));
      }
    else
      for (const auto* path : {"/0/exists", "/0/get_page_indices", "/0/reserve_and_allocate_page_indices",
                               "/0/confirm_write", "/0/delete_keys", "/0/clear"}) {
        const std::string_view name = path;
        json what{{"keys", {"k"}}};
        if (name.ends_with("indices") && name.find("reserve") != std::string_view::npos)
          what = {{"keys", pair}};
        else if (name.ends_with("confirm_write"))
          what = {{"written_keys_to_confirm", json::array()}};
        else if (name.ends_with("clear"))
          what = json::object();
        const auto x = w.post(who, front + path, body(what));
        INFO(path << " " << x.code << " " << x.text);
        CHECK((x.code == 404 || (x.code == 403 && (name.ends_with("delete_keys") || name.ends_with("clear")))));
      }
  };
  denied(w.tenant, "", json::object());
  denied(w.tenant, "/hf3fs/secret", json::object());
  denied(w.owner, "/hf3fs/secret", json::object());
  denied(w.tenant, "", {{"namespace", "kv"}});
  denied(w.owner, "", {{"namespace", "secret"}});
  denied(w.tenant, "/sglang/secret", {{"namespace", "kv"}});
  denied(w.owner, "/sglang/secret", {{"namespace", "kv"}});
  CHECK(w.post(w.tenant, "/rank/1/initialize", pages).code == 403);
  CHECK(w.post(w.tenant, "/hf3fs/mine/rank/0/initialize", pages).code == 403);
  CHECK(w.post(w.tenant, "/1/initialize", {{"num_pages", 8}}).code == 403);
  CHECK(w.post(w.tenant, "/sglang/mine/0/initialize", {{"num_pages", 8}}).code == 403);
  CHECK(w.get(w.admin, "/v1/namespaces").body.at("namespaces").size() == 5);
}

TEST_CASE("http callers: slot client protocols limit the share of pages that a read-only caller protects",
          "[http][hf3fs][sglang]") {
  const caller_world w;
  constexpr int pages = 96;
  const auto on_sglang = GENERATE(false, true);
  CAPTURE(on_sglang);
  w.must(w.alice, on_sglang ? "/0/initialize" : "/rank/0/initialize", {{"num_pages", pages}, {"role", "worker"}},
         on_sglang ? 204 : 200);
  const auto wanted = [&](int count, int first) {
    json out = json::array();
    for (int i = 0; i < count; ++i)
      out.push_back(json::array({"key-" + std::to_string(first + i), ""}));
    return json{{"rank", 0}, {"keys", out}};
  };
  const auto given = [&](int count, int first) {
    const auto x = w.must(w.alice, on_sglang ? "/0/reserve_and_allocate_page_indices" : "/keys/batch_allocate",
                          wanted(count, first));
    return x.at(on_sglang ? "indices" : "results");
  };
  json written = json::array();
  const auto places = given(pages, 0);
  for (int i = 0; i < pages; ++i)
    written.push_back(json::array({"key-" + std::to_string(i), places.at(static_cast<std::size_t>(i)).at(1)}));
  w.must(w.alice, on_sglang ? "/0/confirm_write" : "/keys/confirm_write",
         {{"rank", 0}, {on_sglang ? "written_keys_to_confirm" : "confirmations", written}}, 204);

  int refused = 0;
  for (const auto who : {w.reader, w.second_reader})
    for (const auto& key : many_keys(pages)) {
      const auto x =
          w.post(who, on_sglang ? "/0/get_page_indices" : "/keys/get_locations", {{"rank", 0}, {"keys", {key}}});
      if (x.code == 200)
        continue;
      ++refused;
      CHECK(x.code == 429);
      CHECK(x.detail().find("http.limits.readers_share") != std::string::npos);
    }
  CHECK(refused > 0);
  for (const auto& x : given(pages / 3, 1000))
    CHECK(x.at(1) != -1);
  // Writers are not bound.
  CHECK(w.post(w.alice, on_sglang ? "/0/get_page_indices" : "/keys/get_locations",
               {{"rank", 0}, {"keys", many_keys(pages)}})
            .code == 200);
}

} // namespace http_callers_test
