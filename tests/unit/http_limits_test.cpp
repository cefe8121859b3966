#include "tests/unit/http_support.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <sys/resource.h>
#include <thread>

namespace http_limits_test {

using namespace troupe;
using namespace troupe::http;
using namespace std::chrono_literals;

namespace {

router sample() {
  router r;
  const auto size = [](const request& x, responder reply) {
    std::move(reply).send(response::json(std::to_string(x.body().size())));
  };
  r.add(method::post, "/size", open_route("size", size));
  auto small = open_route("small", size);
  small.max_body_bytes = 10;
  r.add(method::post, "/small", std::move(small));
  r.add(method::get, "/ok", open_route("ok", [](const request&, responder reply) { std::move(reply).send({}); }));
  r.add(method::get, "/large", open_route("large", [](const request&, responder reply) {
          std::move(reply).send(response::json(std::string(64 * 1024 * 1024, 'x')));
        }));
  return r;
}

/// Counts, and lets a test wait for a count.
class counter final : public observer {
public:
  void connection_opened() noexcept override { add(opened_); }
  void connection_closed() noexcept override { add(closed_); }
  void connection_refused() noexcept override { add(refused_); }

  void wait_for_opened(int n) { wait(opened_, n); }
  void wait_for_closed(int n) { wait(closed_, n); }
  void wait_for_refused(int n) { wait(refused_, n); }

private:
  void add(int& x) noexcept {
    const std::lock_guard guard{mutex_};
    ++x;
    changed_.notify_all();
  }

  void wait(const int& x, int n) {
    std::unique_lock lock{mutex_};
    REQUIRE(changed_.wait_for(lock, 1min, [&] { return x >= n; }));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int opened_ = 0;
  int closed_ = 0;
  int refused_ = 0;
};

} // namespace

TEST_CASE("http limits: headers beyond the limit get 431, a request line 414, and the connection closes", "[http]") {
  auto config = test_config();
  config.limits.header_bytes = 1024;
  const auto s = started(config, sample());
  client fits{s->port()};
  CHECK(fits.call(get("/ok", "X: " + std::string(900, 'x') + "\r\n")).code == 200);
  client headers{s->port()};
  CHECK(headers.call(get("/ok", "X: " + std::string(1024, 'x') + "\r\n")).code == 431);
  CHECK(headers.ends());
  client line{s->port()};
  CHECK(line.call(get("/ok?" + std::string(1024, 'x'))).code == 414);
  CHECK(line.ends());
}

TEST_CASE("http limits: bodies beyond the limit get 413, before they have been sent", "[http]") {
  auto config = test_config();
  config.limits.body_bytes = 100'000;
  const auto s = started(config, sample());
  client c{s->port()};
  CHECK(c.call(post("/size", std::string(100'000, 'x'))).body == "100000");
  // The limit of the route applies, and the body is small enough to be skipped: the connection goes on.
  CHECK(c.call(post("/small", std::string(10, 'x'))).body == "10");
  CHECK(c.call(post("/small", std::string(11, 'x'))).code == 413);
  CHECK(c.call(post("/small", std::string(5, 'x'))).body == "5");
  // Only announced.
  CHECK(c.call("POST /size HTTP/1.1\r\nHost: h\r\nContent-Length: 100001\r\n\r\n").code == 413);
  CHECK(c.ends());
  client huge{s->port()};
  CHECK(huge.call("POST /size HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551615\r\n\r\n").code == 413);
  client chunked{s->port()};
  chunked.send("POST /small HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  CHECK(chunked.call("a\r\n0123456789\r\n1\r\n0\r\n").code == 413);
  CHECK(chunked.ends());
}

TEST_CASE("http limits: a client reads the error although it is still sending", "[http]") {
  auto config = test_config();
  config.limits.body_bytes = 1024;
  const auto s = started(config, sample());
  for (int i = 0; i < 10; ++i) {
    client c{s->port()};
    // Far more than the sockets hold; closing over it at once would be a reset that swallows the answer.
    c.send("POST /size HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n" + std::string(500'000, 'x'));
    CHECK(c.must_read().code == 413);
  }
}

TEST_CASE("http limits: a slow request gets 408", "[http]") {
  auto config = test_config();
  config.limits.receive_time = 100ms;
  const auto s = started(config, sample());
  const std::string request = post("/size", std::string(1000, 'x'));
  for (const std::size_t sent : {1U, 20U, 60U, 100U, 900U}) {
    client c{s->port()};
    c.send(get("/ok"));
    CHECK(c.must_read().code == 200);
    c.send(request.substr(0, sent));
    const auto x = c.must_read();
    CHECK(x.code == 408);
    CHECK(x.has("Connection: close\r\n"));
    CHECK(c.ends());
  }
  // Bytes now and then extend nothing. The loop ends because the server ends it.
  client slow{s->port()};
  slow.send("GET /ok HTTP/1.1\r\n");
  std::thread trickle{[&] {
    while (slow.send("X: y\r\n")) {
      pollfd waiting{slow.socket(), POLLIN, 0};
      if (::poll(&waiting, 1, 5) > 0)
        break;
    }
  }};
  trickle.join();
  CHECK(slow.must_read().code == 408);
}

TEST_CASE("http limits: an idle connection is closed after a while", "[http]") {
  auto config = test_config();
  // The time is long enough for a client to send a request.
  config.limits.idle_time = 5s;
  const auto s = started(config, sample());
  client fresh{s->port()};
  client used{s->port()};
  CHECK(used.call(get("/ok")).code == 200);
  CHECK(fresh.ends());
  CHECK(used.ends());
  client blank{s->port()};
  blank.send("\r\n\r\n");
  CHECK(blank.ends());
}

TEST_CASE("http limits: a request without an answer gets 504 in time, and its late answer is discarded", "[http]") {
  const quiet_log quiet;
  auto config = test_config();
  config.limits.answer_time = 50ms;
  std::mutex mutex;
  std::vector<responder> held;
  auto routes = sample();
  routes.add(method::post, "/held", open_route("held", [&](const request&, responder r) {
               const std::lock_guard guard{mutex};
               held.push_back(std::move(r));
             }));
  const auto s = started(config, std::move(routes));
  client c{s->port()};
  c.send(post("/held", "") + get("/ok"));
  const auto x = c.must_read();
  CHECK(x.code == 504);
  CHECK(x.body == R"({"detail":"this request was not answered in time"})");
  CHECK(c.must_read().code == 200);
  {
    const std::lock_guard guard{mutex};
    REQUIRE(held.size() == 1);
    std::move(held.front()).send(response::json("\"late\""));
  }
  CHECK(c.call(get("/ok")).body.empty());
}

TEST_CASE("http limits: a late answer does not go to the next request of the connection", "[http]") {
  const quiet_log quiet;
  auto config = test_config();
  config.limits.answer_time = 2s;
  std::optional<responder> first;
  auto routes = sample();
  routes.add(method::post, "/first", open_route("first", [&](const request&, responder r) { first = std::move(r); }));
  routes.add(method::post, "/second", open_route("second", [&](const request&, responder r) {
               // Both answers come from another thread in turn, while this request waits for its own.
               std::thread{[&, mine = std::move(r)]() mutable {
                 std::move(*first).send(response::json("\"late\""));
                 std::move(mine).send(response::json("\"own\""));
               }}.join();
             }));
  const auto s = started(config, std::move(routes));
  client c{s->port()};
  REQUIRE(c.call(post("/first", "")).code == 504);
  const auto x = c.call(post("/second", ""));
  CHECK(x.code == 200);
  CHECK(x.body == "\"own\"");
  CHECK(c.call(get("/ok")).body.empty());
}

TEST_CASE("http limits: a responder that is dropped late does not affect the next request", "[http]") {
  const quiet_log quiet;
  auto config = test_config();
  config.limits.answer_time = 2s;
  std::optional<responder> first;
  auto routes = sample();
  routes.add(method::post, "/first", open_route("first", [&](const request&, responder r) { first = std::move(r); }));
  routes.add(method::post, "/second", open_route("second", [&](const request&, responder r) {
               std::thread{[&, mine = std::move(r)]() mutable {
                 first.reset();
                 std::move(mine).send(response::json("\"own\""));
               }}.join();
             }));
  const auto s = started(config, std::move(routes));
  client c{s->port()};
  REQUIRE(c.call(post("/first", "")).code == 504);
  CHECK(c.call(post("/second", "")).body == "\"own\"");
}

TEST_CASE("http limits: a client that does not read its answer is disconnected", "[http]") {
  auto config = test_config();
  config.limits.write_time = 100ms;
  counter watcher;
  const auto s = started(config, sample(), &watcher);
  client c{s->port(), 4096};
  c.send(get("/large"));
  // Nothing is read, so this ends only because the server has enough.
  watcher.wait_for_closed(1);
  CHECK(c.read_to_end().size() < 64 * 1024 * 1024);
}

TEST_CASE("http limits: a slow client within the limit gets all of a large answer", "[http]") {
  const auto s = started(test_config(), sample());
  client c{s->port(), 4096};
  c.send(get("/large"));
  CHECK(c.must_read().body.size() == 64 * 1024 * 1024);
}

TEST_CASE("http limits: connections beyond the limit get 503, until there is room again", "[http]") {
  auto config = test_config();
  config.limits.connections = 3;
  counter watcher;
  const auto s = started(config, sample(), &watcher);
  std::vector<std::unique_ptr<client>> in;
  for (int i = 0; i < 3; ++i) {
    in.push_back(std::make_unique<client>(s->port()));
    CHECK(in.back()->call(get("/ok")).code == 200);
  }
  for (int i = 0; i < 5; ++i) {
    client out{s->port()};
    const auto x = out.call(get("/ok"));
    CHECK(x.code == 503);
    CHECK(x.body == R"({"detail":"there are 3 connections, which is the limit"})");
    CHECK(out.ends());
  }
  watcher.wait_for_refused(5);
  in.front().reset();
  watcher.wait_for_closed(1);
  client again{s->port()};
  CHECK(again.call(get("/ok")).code == 200);
  CHECK(in.back()->call(get("/ok")).code == 200);
}

TEST_CASE("http limits: hundreds of connections beyond the limit do not affect those within it", "[http]") {
  auto config = test_config();
  config.limits.connections = 2;
  counter watcher;
  const auto s = started(config, sample(), &watcher);
  client in{s->port()};
  CHECK(in.call(get("/ok")).code == 200);
  client other{s->port()};
  CHECK(other.call(get("/ok")).code == 200);
  // They never read and never close: the last few wait for a while, and the others are disconnected.
  std::vector<std::unique_ptr<client>> out;
  for (int i = 0; i < 400; ++i)
    out.push_back(std::make_unique<client>(s->port()));
  watcher.wait_for_refused(400);
  CHECK(in.call(get("/ok")).code == 200);
  CHECK(other.call(get("/ok")).code == 200);
}

TEST_CASE("http limits: without free descriptors the server waits until some are closed", "[http]") {
  const quiet_log quiet;
  counter watcher;
  const auto s = started(test_config(), sample(), &watcher);
  client before{s->port()};
  CHECK(before.call(get("/ok")).code == 200);
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  client waiting{s->port()};
  CHECK(waiting.call(get("/ok")).code == 200);
  // A client's socket that is connected and needs no descriptor any more here, while the server gets none for it.
  const auto next = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(next >= 0);
  ::close(next);
  const rlimit none{static_cast<rlim_t>(next) + 1, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  client late{s->port()};
  late.send(get("/ok"));
  CHECK(before.call(get("/ok")).code == 200);
  pollfd nothing{late.socket(), POLLIN, 0};
  CHECK(::poll(&nothing, 1, 0) == 0);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(late.must_read().code == 200);
}

} // namespace http_limits_test
