#include "http/admin.hpp"
#include "http/server/request_metrics.hpp"
#include "tests/unit/http_support.hpp"

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

namespace http_admin_test {

using namespace troupe;
using namespace troupe::http;

namespace {

router admin_routes(admin_options options) {
  router r;
  add_admin_routes(r, std::move(options));
  return r;
}

} // namespace

TEST_CASE("http admin: a node reports that it is alive and its identity", "[http][admin]") {
  admin_options options;
  options.version = "1.2\"3";
  options.protocol = 7;
  options.ready = [] { return fail(errc::busy, "not before the store is read"); };
  const auto s = started(test_config(), admin_routes(options));
  client c{s->port()};
  const auto health = c.call(get("/health"));
  CHECK(health.code == 200);
  CHECK(health.body == R"({"status":"ok"})");
  CHECK(c.call(get("/version")).body == R"({"name":"troupe","version":"1.2\"3","protocol":7})");
  CHECK(c.call(post("/health", "")).code == 405);
}

TEST_CASE("http admin: a node reports readiness, and the reasons why it is not ready", "[http][admin]") {
  std::mutex mutex;
  result<void> state = fail(errc::busy, "reading the store: 30 %");
  admin_options options;
  options.ready = [&] {
    const std::lock_guard guard(mutex);
    return state;
  };
  std::vector<std::string> lacks;
  options.degradations = [&] {
    const std::lock_guard guard(mutex);
    return lacks;
  };
  const auto s = started(test_config(), admin_routes(options));
  client c{s->port()};
  const auto set = [&](result<void> x) {
    const std::lock_guard guard(mutex);
    state = std::move(x);
  };
  const auto early = c.call(get("/ready"));
  CHECK(early.code == 503);
  CHECK(early.body == R"({"detail":"reading the store: 30 %"})");
  set({});
  CHECK(c.call(get("/ready")).code == 200);
  CHECK(c.call(get("/ready")).body == R"({"status":"ready"})");
  lacks = {"the disk is \"slow\"", "no memory"};
  CHECK(c.call(get("/ready")).code == 200);
  CHECK(c.call(get("/ready")).body == R"({"status":"ready","degradations":["the disk is \"slow\"","no memory"]})");
  // Whatever the reason's code, and although it still lives.
  set(fail(errc::shutting_down, "draining"));
  CHECK(c.call(get("/ready")).code == 503);
  set(fail(errc::not_found, "x"));
  CHECK(c.call(get("/ready")).code == 503);
  CHECK(c.call(get("/health")).code == 200);
}

TEST_CASE("http admin: the metrics of all sources are one page, in their order", "[http][admin]") {
  metrics_callback late;
  admin_options options;
  options.metrics.push_back([&](metrics_callback then) { late = std::move(then); });
  options.metrics.push_back([](const metrics_callback& then) { then(std::string{"b 2\n"}); });
  options.metrics.push_back(
      [](const metrics_callback& then) { then(fail(errc::unreachable, "the actor\nhas ended")); });
  // The last source is asked last, so the first one was asked.
  std::atomic<bool> asked{false};
  options.metrics.push_back([&](const metrics_callback& then) {
    asked = true;
    then(std::string{"d 4\n"});
  });
  const auto s = started(test_config(), admin_routes(options));
  client c{s->port()};
  c.send(get("/metrics"));
  while (!asked)
    std::this_thread::yield();
  late(std::string{"a 1\n"});
  const auto page = c.must_read();
  CHECK(page.code == 200);
  CHECK(page.has("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  CHECK(page.body == "a 1\nb 2\n# missing: unreachable: the actor has ended\nd 4\n");
}

TEST_CASE("http admin: a node without metrics has an empty page", "[http][admin]") {
  const auto s = started(test_config(), admin_routes({}));
  const auto page = client{s->port()}.call(get("/metrics"));
  CHECK(page.code == 200);
  CHECK(page.body.empty());
  CHECK(client{s->port()}.call(get("/ready")).code == 200);
}

TEST_CASE("http admin: probes need no token, metrics do", "[http][admin]") {
  const scratch_directory directory;
  auto config = test_config();
  config.tokens_file = directory.write("tokens", "read read-token-0123456789\n");
  const auto s = started(config, admin_routes({}));
  client c{s->port()};
  for (const auto* open : {"/health", "/ready", "/version"})
    CHECK(c.call(get(open)).code == 200);
  CHECK(c.call(get("/metrics")).code == 401);
  CHECK(c.call(get("/metrics", "Authorization: Bearer read-token-0123456789\r\n")).code == 200);
}

} // namespace http_admin_test
