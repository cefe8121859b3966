#include "actors/node/directory/directory.hpp"
#include "http/handshake/handshake.hpp"
#include "http/server/server.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/http_support.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <string>

/// The directory over real HTTP.

namespace handshake_http_test {

using namespace troupe;
using namespace troupe::http;
using nlohmann::json;

namespace {

struct actor_options : caf::actor_system_config {
  actor_options() {
    register_messages(*this);
    set("scheduler.max-threads", std::size_t{2});
    set("work-stealing.moderate-poll-attempts", std::size_t{0});
  }
};

constexpr const char* tokens = "read reader-reader-reader\n"
                               "write writer-writer-writer\n"
                               "admin admin-admin-admin\n"
                               "write tenant-tenant-tenant namespaces=b*\n";

struct world {
  explicit world(bool with_tokens = false, bool vllm_draft = true,
                 const troupe::handshake::directory_options& limits = {},
                 std::uint64_t answer_bytes = std::uint64_t{1} << 30U)
      : it(spawn_actor<directory>(system, limits)) {
    auto config = test_config();
    if (with_tokens)
      config.tokens_file = scratch.write("tokens", tokens);
    config.limits.answer_time = std::chrono::seconds(20);
    router routes;
    troupe::http::handshake::add_routes(routes, system, it, {4096, std::chrono::seconds(60), vllm_draft, answer_bytes});
    proxy = started(config, std::move(routes));
  }
  ~world() {
    caf::anon_send(it, drain_atom_v);
    proxy.reset();
    caf::anon_send_exit(it, caf::exit_reason::user_shutdown);
  }
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  static std::string request(std::string_view method, std::string_view path, std::string_view body = {},
                             std::string_view more = {}) {
    std::string out{method};
    out.append(" ").append(path).append(" HTTP/1.1\r\nHost: test\r\nConnection: close\r\n").append(more);
    out.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n\r\n").append(body);
    return out;
  }
  reply call(std::string_view method, std::string_view path, std::string_view body = {},
             std::string_view more = {}) const {
    client c{proxy->port()};
    return c.call(request(method, path, body, more));
  }
  reply get(std::string_view path, std::string_view more = {}) const { return call("GET", path, {}, more); }
  int put(std::string_view path, std::string_view body, std::string_view more = {}) const {
    return call("PUT", path, body, more).code;
  }

  handshake_stats stats() {
    handshake_stats out;
    caf::scoped_actor self{system};
    self->request(it, troupe::test::test_patience, stats_atom_v)
        .receive([&](const handshake_stats& x) { out = x; }, [](const caf::error& e) { FAIL(to_string(from_caf(e))); });
    return out;
  }
  bool waits(std::uint64_t n) {
    return troupe::test::eventually([&] { return stats().waiting == n; });
  }

  scratch_directory scratch;
  actor_options options;
  caf::actor_system system{options};
  directory_actor it;
  std::unique_ptr<server> proxy;
};

constexpr const char* rank_0 = "/v1/handshake/a/ranks/0/0/0";
constexpr const char* rank_1 = "/v1/handshake/a/ranks/0/0/1";
constexpr const char* as_json = "Content-Type: application/json\r\n";

std::string bearer(std::string_view token) {
  return "Authorization: Bearer " + std::string(token) + "\r\n";
}

/// Without a connection, inside of this process.
std::size_t threads() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Threads:"))
      return std::stoul(line.substr(8));
  return 0;
}

std::string header(const reply& x, std::string_view name) {
  const auto at = x.head.find("\r\n" + std::string(name) + ": ");
  if (at == std::string::npos)
    return {};
  const auto begin = at + name.size() + 4;
  return x.head.substr(begin, x.head.find("\r\n", begin) - begin);
}

} // namespace

TEST_CASE("handshake over HTTP: payload bytes are returned unchanged", "[http][handshake]") {
  const world w;
  const std::string payload("\x82\xa3\0\xff\r\n\r\n", 8);
  const auto put = w.call("PUT", std::string(rank_1) + "?incarnation=7&tp_size=2&compat=abc&ttl=30s", payload);
  CHECK(put.code == 201);
  CHECK(json::parse(put.body).at("incarnation") == "7");
  CHECK(json::parse(put.body).at("complete") == false);
  CHECK(w.put(std::string(rank_1) + "?incarnation=7&tp_size=2&compat=abc&ttl=30s", payload) == 200);
  const auto got = w.get(rank_1);
  CHECK(got.code == 200);
  CHECK(got.body == payload);
  CHECK(header(got, "Troupe-Incarnation") == "7");
  CHECK(header(got, "Content-Type") == "application/octet-stream");
  const auto etag = header(got, "ETag");
  CHECK(etag.size() == 34);
  const auto same = w.get(rank_1, "If-None-Match: " + etag + "\r\n");
  CHECK(same.code == 304);
  CHECK(same.body.empty());
  CHECK(header(same, "ETag") == etag);
  for (const auto& tags : {"\"other\", W/" + etag, etag + " ,\"other\"", std::string("*")})
    CHECK(w.get(rank_1, "If-None-Match: " + tags + "\r\n").code == 304);
  CHECK(w.get(rank_1, "If-None-Match: \"*\", \"a,b\"\r\n").code == 200);
}

TEST_CASE("handshake over HTTP: the JSON content type is recognized in any letter case", "[http][handshake]") {
  const world w;
  for (const auto* type : {"Application/JSON", "application/json ; charset=utf-8", "APPLICATION/json;x"}) {
    CHECK(w.put(std::string(rank_0) + "?incarnation=1", "{", "Content-Type: " + std::string(type) + "\r\n") == 400);
  }
  CHECK(w.put(std::string(rank_0) + "?incarnation=1", "{", "Content-Type: application/jsonl\r\n") == 201);
}

TEST_CASE("handshake over HTTP: replies in flight are bounded and those beyond the bound get 503",
          "[http][handshake]") {
  // One reply fits; a second one exceeds the bound.
  const world w(false, true, {}, 2000);
  CHECK(w.put(std::string(rank_0) + "?incarnation=1", std::string(1000, 'x')) == 201);
  constexpr std::size_t readers = 50;
  std::vector<std::unique_ptr<client>> all;
  for (std::size_t i = 0; i < readers; ++i) {
    all.push_back(std::make_unique<client>(w.proxy->port()));
    all.back()->send(world::request("GET", "/v1/handshake/b/ranks/0/0/0?wait=20s"));
  }
  CHECK(w.put("/v1/handshake/b/ranks/0/0/0?incarnation=1", std::string(1000, 'x')) == 201);
  for (auto& x : all) {
    const auto answer = x->must_read();
    CHECK((answer.code == 200 || answer.code == 503));
    if (answer.code == 503)
      CHECK(header(answer, "Retry-After") == "1");
  }
  // Replies that were sent free their room soon, and a reply larger than the bound is sent alone.
  const auto is_there = [&](std::string_view what) {
    return test::eventually([&] { return w.get(what).code == 200; });
  };
  for (int i = 0; i < 10; ++i)
    CHECK(is_there(rank_0));
  CHECK(w.put("/v1/handshake/c/ranks/0/0/0?incarnation=1", std::string(4000, 'x')) == 201);
  CHECK(is_there("/v1/handshake/c"));
}

TEST_CASE("handshake over HTTP: lists have the same bound", "[http][handshake]") {
  constexpr std::uint32_t engines = 40'000;
  troupe::handshake::directory_options limits;
  limits.engines_max = engines;
  const world w(false, true, limits, std::uint64_t{32} << 20U);
  for (std::uint32_t i = 0; i < engines; ++i) {
    handshake_publish_request x;
    x.engine = std::to_string(i) + std::string(100, 'x');
    x.compat.assign(250, 'x');
    x.incarnation = 1;
    caf::anon_send(w.it, std::move(x));
  }
  // More than sockets take of one that reads nothing, and no two of them find room.
  client silent{w.proxy->port(), 64 << 10};
  silent.send(world::request("GET", "/v1/handshake"));
  // One of the later requests, on another connection, may be answered first; then the first one gets no room.
  silent.wait_for_bytes();
  const auto is_refused = [&] { return w.get("/v1/handshake").code == 503; };
  CHECK(test::eventually(is_refused, std::chrono::milliseconds(10)));
  const auto list = silent.must_read();
  CHECK(list.code == 200);
  CHECK(list.body.size() > (16U << 20U));
  CHECK(test::eventually([&] { return !is_refused(); }, std::chrono::milliseconds(10)));
}

TEST_CASE("handshake over HTTP: 64-bit numbers keep their precision", "[http][handshake]") {
  const world w;
  const std::string payload = R"({"kv_caches_base_addr":[18446744073709551615,9007199254740993],"num_blocks":2})";
  CHECK(w.put(std::string(rank_0) + "?incarnation=18446744073709551615", payload, as_json) == 201);
  const auto got = w.get(rank_0);
  CHECK(got.body == payload);
  CHECK(header(got, "Content-Type") == "application/json");
  CHECK(header(got, "Troupe-Incarnation") == "18446744073709551615");
  const auto all = w.get("/v1/handshake/a");
  CHECK(all.body.find(payload) != std::string::npos);
  CHECK(json::parse(all.body).at("incarnation") == "18446744073709551615");
  CHECK(w.put("/v1/handshake/b/ranks/0/0/0?incarnation=1", "{", as_json) == 400);
  CHECK(w.put("/v1/handshake/b/ranks/0/0/0?incarnation=1", "{}x", as_json) == 400);
}

TEST_CASE("handshake over HTTP: another payload gets 409, an old incarnation 410 and another hash 409",
          "[http][handshake]") {
  const world w;
  CHECK(w.put(std::string(rank_0) + "?incarnation=7&compat=abc", "x") == 201);
  CHECK(w.put(std::string(rank_0) + "?incarnation=7&compat=abc", "y") == 409);
  CHECK(w.put(std::string(rank_0) + "?incarnation=8&compat=abc", "y") == 201);
  const auto late = w.call("PUT", std::string(rank_0) + "?incarnation=7&compat=abc", "x");
  CHECK(late.code == 410);
  CHECK(header(late, "Troupe-Incarnation") == "8");
  CHECK(json::parse(late.body).at("incarnation") == "8");
  CHECK(w.get(std::string(rank_0) + "?incarnation=7").code == 410);
  CHECK(w.get(std::string(rank_0) + "?incarnation=8&compat=abc").body == "y");
  const auto other = w.get(std::string(rank_0) + "?compat=def&wait=20s");
  CHECK(other.code == 409);
  CHECK(other.body.find("abc") != std::string::npos);
  CHECK(header(other, "ETag").empty());
}

TEST_CASE("handshake over HTTP: a long poll is answered when the rank appears", "[http][handshake]") {
  const world w;
  client waiting{w.proxy->port()};
  waiting.send(world::request("GET", std::string(rank_1) + "?wait=20s"));
  client complete{w.proxy->port()};
  complete.send(world::request("GET", "/v1/handshake/a?complete=true&wait=20s"));
  CHECK(w.put(std::string(rank_0) + "?incarnation=7&tp_size=2", "x") == 201);
  CHECK(w.put(std::string(rank_1) + "?incarnation=7&tp_size=2", "y") == 201);
  CHECK(waiting.must_read().body == "y");
  const auto all = json::parse(complete.must_read().body);
  CHECK(all.at("complete") == true);
  CHECK(all.at("ranks").at("0").at("0").at("1").at("payload_base64") == "eQ==");
  const auto missing = w.get("/v1/handshake/b?wait=50ms");
  CHECK(missing.code == 404);
  CHECK(json::parse(missing.body).at("detail") == "there is no engine of this name");
}

TEST_CASE("handshake over HTTP: replies for one rank and for many are nested alike", "[http][handshake]") {
  const world w;
  for (const auto* rank : {"0/0/0", "0/1/0", "1/0/0", "1/1/0"})
    CHECK(w.put("/v1/handshake/a/ranks/" + std::string(rank) + "?incarnation=1&dp_size=2&pp_size=2", rank) == 201);
  CHECK(w.put("/v1/handshake/one/ranks/0/0/0?incarnation=1", "abc") == 201);
  const auto all = json::parse(w.get("/v1/handshake/a").body).at("ranks");
  for (const auto* dp : {"0", "1"})
    for (const auto* pp : {"0", "1"})
      CHECK(all.at(dp).at(pp).at("0").contains("payload_base64"));
  const auto row = json::parse(w.get("/v1/handshake/a?dp=1").body);
  CHECK(row.at("complete") == true);
  CHECK(row.at("ranks").size() == 1);
  CHECK(row.at("ranks").at("1").size() == 2);
  const auto one = json::parse(w.get("/v1/handshake/one").body).at("ranks");
  CHECK(one.at("0").at("0").at("0").at("payload_base64") == "YWJj");
  const auto list = json::parse(w.get("/v1/handshake").body).at("engines");
  REQUIRE(list.size() == 2);
  CHECK(list[0].at("sizes") == json{{"dp", 2}, {"pp", 2}, {"tp", 1}});
}

TEST_CASE("handshake over HTTP: engines are kept alive by heartbeats and expire", "[http][handshake]") {
  const world w;
  CHECK(w.call("POST", "/v1/handshake/a/heartbeat?incarnation=7").code == 404);
  CHECK(w.put(std::string(rank_0) + "?incarnation=7&ttl=10min", "x") == 201);
  const auto beat = w.call("POST", "/v1/handshake/a/heartbeat?incarnation=7&ttl=20s");
  CHECK(beat.code == 200);
  CHECK(json::parse(beat.body).at("expires_in_ms").get<int>() <= 20000);
  CHECK(w.call("POST", "/v1/handshake/a/heartbeat?incarnation=6").code == 410);
  CHECK(w.call("DELETE", "/v1/handshake/a?incarnation=6").code == 410);
  CHECK(w.call("DELETE", "/v1/handshake/a?incarnation=7").code == 204);
  CHECK(w.call("DELETE", "/v1/handshake/a?incarnation=7").code == 204);
  CHECK(w.get(rank_0).code == 404);
  CHECK(w.put(std::string(rank_0) + "?incarnation=7", "x") == 410);
  CHECK(w.put("/v1/handshake/b/ranks/0/0/0?incarnation=7&ttl=20ms", "x") == 201);
  // A long poll ends with the engine that it knows: what it has is not so any more.
  const auto etag = header(w.get("/v1/handshake/b/ranks/0/0/0"), "ETag");
  CHECK(w.get("/v1/handshake/b/ranks/0/0/0?wait=300ms", "If-None-Match: " + etag + "\r\n").code == 404);
}

TEST_CASE("handshake over HTTP: invalid requests are refused with an explanation", "[http][handshake]") {
  const world w;
  const auto refused = [&](const std::string& path) {
    const auto x = w.call("PUT", path, "x");
    INFO(path << " " << x.body);
    CHECK(json::parse(x.body).contains("detail"));
    return x.code;
  };
  CHECK(refused(rank_0) == 422);
  CHECK(refused(std::string(rank_0) + "?incarnation=0") == 422);
  CHECK(refused(std::string(rank_0) + "?incarnation=-1") == 422);
  CHECK(refused(std::string(rank_0) + "?incarnation=18446744073709551616") == 422);
  CHECK(refused(std::string(rank_0) + "?incarnation=1&ttl=soon") == 422);
  CHECK(refused(std::string(rank_0) + "?incarnation=1&tp_size=0") == 422);
  CHECK(refused("/v1/handshake/a/ranks/0/0/9?incarnation=1") == 422);
  CHECK(refused("/v1/handshake/a/ranks/x/0/0?incarnation=1") == 422);
  CHECK(refused("/v1/handshake/a%20b/ranks/0/0/0?incarnation=1") == 422);
  CHECK(w.put(std::string(rank_0) + "?incarnation=1", std::string(4097, 'x')) == 413);
  CHECK(w.get(std::string(rank_0) + "?wait=ever").code == 422);
  CHECK(w.get("/v1/handshake/a?complete=maybe").code == 422);
  CHECK(w.call("POST", "/v1/handshake/a").code == 405);
}

TEST_CASE("handshake over HTTP: roles and restricted tokens", "[http][handshake]") {
  const world w(true);
  const auto path = std::string(rank_0) + "?incarnation=1";
  CHECK(w.put(path, "x") == 401);
  CHECK(w.put(path, "x", bearer("unknown-unknown-unknown")) == 401);
  CHECK(w.put(path, "x", bearer("reader-reader-reader")) == 403);
  CHECK(w.put(path, "x", bearer("tenant-tenant-tenant")) == 403);
  CHECK(w.put(path, "x", bearer("writer-writer-writer")) == 201);
  CHECK(w.get(rank_0).code == 401);
  CHECK(w.get(rank_0, bearer("reader-reader-reader")).body == "x");
  // Names outside of the token's scope get 404.
  CHECK(w.get(rank_0, bearer("tenant-tenant-tenant")).code == 404);
  CHECK(w.get("/v1/handshake/a", bearer("tenant-tenant-tenant")).code == 404);
  CHECK(w.call("DELETE", "/v1/handshake/a", {}, bearer("tenant-tenant-tenant")).code == 404);
  CHECK(w.call("DELETE", "/v1/handshake/a", {}, bearer("reader-reader-reader")).code == 403);
  CHECK(w.put("/v1/handshake/b1/ranks/0/0/0?incarnation=1", "x", bearer("tenant-tenant-tenant")) == 201);
  CHECK(json::parse(w.get("/v1/handshake", bearer("tenant-tenant-tenant")).body).at("engines").size() == 1);
  CHECK(json::parse(w.get("/v1/handshake", bearer("reader-reader-reader")).body).at("engines").size() == 2);
  CHECK(w.get("/get_kv_connector_metadata").code == 401);
  CHECK(w.get("/get_kv_connector_metadata", bearer("tenant-tenant-tenant")).code == 200);
}

TEST_CASE("handshake over HTTP: the paths of vLLM's draft", "[http][handshake]") {
  const world w;
  CHECK(w.get("/get_kv_connector_metadata").code == 404);
  const std::string meta = R"({"engine_id":"a","kv_caches_base_addr":[18446744073709551615]})";
  for (const auto* rank : {"0/0/0", "0/0/1", "1/0/0", "1/0/1"})
    CHECK(w.put("/v1/handshake/a/ranks/" + std::string(rank) + "?incarnation=1&dp_size=2&tp_size=2", meta, as_json) ==
          201);
  const auto all = w.get("/get_kv_connector_metadata");
  CHECK(all.code == 200);
  CHECK(all.body == "{\"0\":{\"0\":" + meta + ",\"1\":" + meta + "},\"1\":{\"0\":" + meta + ",\"1\":" + meta + "}}");
  CHECK(w.get("/get_kv_connector_metadata/1").body == "{\"1\":{\"0\":" + meta + ",\"1\":" + meta + "}}");
  CHECK(w.get("/get_kv_connector_metadata/1/0").body == "{\"1\":{\"0\":" + meta + "}}");
  CHECK(w.get("/get_kv_connector_metadata/2").code == 404);
  CHECK(w.get("/get_kv_connector_metadata/0/7").code == 404);
  CHECK(w.put("/v1/handshake/b/ranks/0/0/0?incarnation=1", "abc") == 201);
  CHECK(w.get("/get_kv_connector_metadata").code == 404);
  CHECK(w.get("/get_kv_connector_metadata?engine_id=b").body ==
        R"({"0":{"0":{"engine_id":"b","agent_metadata":"YWJj"}}})");
  CHECK(w.put("/v1/handshake/c/ranks/0/0/0?incarnation=1&pp_size=2", "abc") == 201);
  CHECK(w.get("/get_kv_connector_metadata?engine_id=c").code == 409);
  const world without(false, false);
  CHECK(without.get("/get_kv_connector_metadata").code == 404);
}

TEST_CASE("handshake over HTTP: the examples of the documentation work", "[http][handshake]") {
  if (std::system("python3 -c '' 2>&1 && curl --version > /dev/null 2>&1") != 0) {
    WARN("skipped: needs python3 and curl");
    return;
  }
  const world w;
  const auto command = "python3 -B " TROUPE_SOURCE_DIR "/tests/conformance/run_examples.py --url http://127.0.0.1:" +
                       std::to_string(w.proxy->port()) + " " TROUPE_SOURCE_DIR "/docs/handshake.md";
  CHECK(std::system(command.c_str()) == 0);
}

TEST_CASE("handshake over HTTP: long polls take no thread each", "[http][handshake]") {
  world w;
  CHECK(w.get(rank_0).code == 404);
  const auto before = threads();
  constexpr std::size_t readers = 200;
  std::vector<std::unique_ptr<client>> all;
  for (std::size_t i = 0; i < readers; ++i) {
    all.push_back(std::make_unique<client>(w.proxy->port()));
    all.back()->send(world::request("GET", std::string(rank_0) + "?wait=20s"));
  }
  REQUIRE(w.waits(readers));
  CHECK(threads() == before);
  // Other requests are served meanwhile.
  CHECK(w.put(std::string(rank_0) + "?incarnation=1", "x") == 201);
  for (auto& x : all)
    CHECK(x->must_read().body == "x");
}

TEST_CASE("handshake over HTTP: closing a connection ends its long poll and others are served", "[http][handshake]") {
  troupe::handshake::directory_options limits;
  limits.waiting_max = 4;
  world w(false, true, limits);
  for (const auto* path : {rank_0, "/v1/handshake/a", "/get_kv_connector_metadata?engine_id=a"}) {
    const auto target = std::string(path) + (std::string_view(path).find('?') == std::string::npos ? "?" : "&");
    std::vector<std::unique_ptr<client>> all;
    for (std::size_t i = 0; i < limits.waiting_max; ++i) {
      all.push_back(std::make_unique<client>(w.proxy->port()));
      all.back()->send(world::request("GET", target + "wait=60s"));
    }
    REQUIRE(w.waits(limits.waiting_max));
    CHECK(w.get(target + "wait=60s").code == 429);
    // Requests that do not wait take no slot.
    CHECK(w.get(target).code == 404);
    all.clear();
    REQUIRE(w.waits(0));
    CHECK(w.get(target + "wait=1ms").code == 404);
  }
  // A client that has closed only its sending side gets its answer.
  client half{w.proxy->port()};
  half.send(world::request("GET", std::string(rank_0) + "?wait=60s"));
  half.end();
  const auto notified = half.must_read();
  CHECK(notified.code == 404);
  CHECK(json::parse(notified.body).at("detail") ==
        "the client closed its side of the connection, which ended its wait");
  CHECK(w.waits(0));
}

TEST_CASE("handshake over HTTP: exceeded limits get 429 with an explanation each", "[http][handshake]") {
  troupe::handshake::directory_options limits;
  limits.engines_max = 2;
  limits.bytes_max = 100;
  limits.waiting_max = 1;
  world w(false, true, limits);
  const auto says = [](const reply& x, std::string_view part) {
    INFO(x.body);
    CHECK(x.code == 429);
    CHECK(json::parse(x.body).at("detail").get<std::string>().find(part) != std::string::npos);
  };
  CHECK(w.put(std::string(rank_0) + "?incarnation=1&tp_size=2", std::string(60, 'x')) == 201);
  says(w.call("PUT", std::string(rank_1) + "?incarnation=1&tp_size=2", std::string(60, 'x')), "100 bytes");
  CHECK(w.put("/v1/handshake/b/ranks/0/0/0?incarnation=1", "x") == 201);
  says(w.call("PUT", "/v1/handshake/c/ranks/0/0/0?incarnation=1", "x"), "2 engines");
  client waiting{w.proxy->port()};
  waiting.send(world::request("GET", std::string(rank_1) + "?wait=60s"));
  REQUIRE(w.waits(1));
  says(w.get("/v1/handshake/c?wait=60s"), "1 fetches that wait");
  const auto stats = w.stats();
  CHECK(stats.refused_bytes == 1);
  CHECK(stats.refused_engines == 1);
  CHECK(stats.refused_waiting == 1);
}

} // namespace handshake_http_test
