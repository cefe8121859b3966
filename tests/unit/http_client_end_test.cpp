#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/http_certificates.hpp"

#include <mutex>
#include <optional>

/// Handlers that answer late are notified of disconnected clients.

namespace http_client_end_test {

using namespace troupe;
using namespace troupe::http;
using troupe::test::eventually;

namespace {

/// Keeps responders, and counts the clients that have ended before the answer.
struct late_answers {
  router routes() {
    router r;
    r.add(method::get, "/late", open_route("late", [this](const request& x, responder reply) {
            x.if_client_ends([this] { ++ended; });
            keep(std::move(reply));
          }));
    r.add(method::get, "/at-the-end", open_route("at_the_end", [this](const request& x, responder reply) {
            const auto shared = share(std::move(reply));
            x.if_client_ends([this, shared] {
              ++ended;
              std::move(*shared).send(response::json("1"));
            });
            ++came;
          }));
    r.add(method::get, "/at-once", open_route("at_once", [this](const request& x, responder reply) {
            x.if_client_ends([this] { ++ended; });
            std::move(reply).send(response::json("2"));
          }));
    return r;
  }
  void keep(responder x) {
    const std::lock_guard guard(mutex);
    kept.emplace(std::move(x));
    ++came;
  }
  bool has_come(int n) const {
    return eventually([&] { return came == n; });
  }
  bool has_ended(int n) const {
    return eventually([&] { return ended == n; });
  }
  void answer() {
    const std::lock_guard guard(mutex);
    std::move(*kept).send(response::json("3"));
    kept.reset();
  }

  std::mutex mutex;
  std::optional<responder> kept;
  std::atomic<int> came{0};
  std::atomic<int> ended{0};
};

} // namespace

TEST_CASE("http client end: a handler is notified when its client disconnects, in any way", "[http]") {
  late_answers late;
  const auto s = started(test_config(), late.routes());
  int n = 0;
  for (const bool rudely : {false, true})
    for (const auto* ahead : {"", "GET /at-once HTTP/1.1\r\nHost: test\r\n\r\n"}) {
      auto c = std::make_unique<client>(s->port());
      c->send(get("/late") + ahead);
      REQUIRE(late.has_come(++n));
      CHECK(late.ended == n - 1);
      if (rudely)
        c->reset();
      c.reset();
      CHECK(late.has_ended(n));
      late.answer();
    }
}

TEST_CASE(
    "http client end: a handler is notified once of a half-closed connection, and the client still gets the answer",
    "[http]") {
  late_answers late;
  const auto s = started(test_config(), late.routes());
  client c{s->port()};
  c.send(get("/late"));
  REQUIRE(late.has_come(1));
  c.end();
  CHECK(late.has_ended(1));
  late.answer();
  CHECK(c.must_read().body == "3");
  CHECK(c.ends());
  client other{s->port()};
  other.send(get("/at-the-end"));
  other.end();
  CHECK(other.must_read().body == "1");
  CHECK(other.ends());
  CHECK(late.ended == 2);
}

TEST_CASE("http client end: a handler that has answered is not notified of the disconnect", "[http]") {
  late_answers late;
  auto s = started(test_config(), late.routes());
  client c{s->port()};
  CHECK(c.call(get("/at-once")).body == "2");
  c.send(get("/late"));
  REQUIRE(late.has_come(1));
  late.answer();
  CHECK(c.must_read().body == "3");
  c.end();
  CHECK(c.ends());
  s.reset();
  CHECK(late.ended == 0);
}

TEST_CASE("http client end: a handler is notified when the server stops waiting for it", "[http]") {
  const quiet_log quiet;
  late_answers late;
  auto config = test_config();
  config.limits.answer_time = std::chrono::milliseconds(50);
  auto s = started(config, late.routes());
  client c{s->port()};
  CHECK(c.call(get("/late")).code == 504);
  CHECK(late.has_ended(1));
  late.answer();
  config.limits.answer_time = std::chrono::minutes(1);
  s = started(config, late.routes());
  client other{s->port()};
  other.send(get("/late"));
  REQUIRE(late.has_come(2));
  s->stop({});
  CHECK(late.ended == 2);
}

TEST_CASE("http client end: a handler is notified when a TLS client disconnects", "[http][tls]") {
  const identity authority{"authority"};
  const identity node{"node", authority};
  const scratch_directory directory;
  auto config = test_config();
  config.tls.certificate = directory.write("certificate.pem", node.certificate());
  config.tls.key = directory.write("key.pem", node.key());
  late_answers late;
  const auto s = started(config, late.routes());
  auto c = std::make_unique<tls_client>(s->port(), tls_client_options{.trusted_pem = authority.certificate()});
  REQUIRE(c->is_connected());
  c->send(get("/late"));
  REQUIRE(late.has_come(1));
  CHECK(late.ended == 0);
  c.reset();
  CHECK(late.has_ended(1));
}

} // namespace http_client_end_test
