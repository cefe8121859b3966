#include "base/local_socket.hpp"
#include "tests/patience.hpp"
#include "tests/unit/http_support.hpp"
#include "tests/unit/io_support.hpp"

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>

namespace http_server_test {

using namespace troupe;
using namespace troupe::http;

namespace {

/// Takes responders out of handlers, for the test to answer.
class held_responders {
public:
  handler holder() {
    return [this](const request&, responder r) {
      const std::lock_guard guard{mutex_};
      held_.push_back(std::move(r));
      changed_.notify_all();
    };
  }

  responder take() {
    std::unique_lock lock{mutex_};
    // Not an assertion, since those are for the test's own thread only.
    if (!changed_.wait_for(lock, std::chrono::minutes{1}, [&] { return !held_.empty(); }))
      throw std::runtime_error{"no request has come"};
    auto r = std::move(held_.front());
    held_.pop_front();
    return r;
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<responder> held_;
};

/// Echoes the request.
void echo(const request& r, responder reply) {
  std::string body{to_string(r.method())};
  body.append(" ").append(r.path("rank")).append(" ").append(r.query("q").value_or("-")).append(" ").append(r.body());
  std::move(reply).send(response::text(std::move(body)));
}

router sample(held_responders* held = nullptr) {
  router r;
  r.add(method::get, "/echo/{rank}", open_route("get_echo", echo));
  r.add(method::post, "/echo/{rank}", open_route("echo", echo));
  r.add(method::delete_, "/nothing",
        open_route("nothing", [](const request&, responder reply) { std::move(reply).send(response::no_content()); }));
  r.add(method::post, "/throw",
        open_route("throw", [](const request&, responder) { throw std::runtime_error{"oops"}; }));
  r.add(method::post, "/throw-int", open_route("throw_int", [](const request&, responder) { throw 7; }));
  r.add(method::post, "/answer-and-throw", open_route("answer_and_throw", [](const request&, responder reply) {
          std::move(reply).send(response::json("1"));
          throw std::runtime_error{"oops"};
        }));
  r.add(method::post, "/drop", open_route("drop", [](const request&, responder) {}));
  if (held != nullptr)
    r.add(method::post, "/held", open_route("held", held->holder()));
  return r;
}

} // namespace

TEST_CASE("http server: a connection serves one request after the other", "[http]") {
  const auto s = started(test_config(), sample());
  client c{s->port()};
  for (int i = 0; i < 3; ++i) {
    const auto x = c.call(post("/echo/7?q=a%20b", "body"));
    CHECK(x.code == 200);
    CHECK(x.body == "POST 7 a b body");
    CHECK(x.has("Content-Type: text/plain; charset=utf-8\r\n"));
    CHECK(x.has("Date: "));
    CHECK_FALSE(x.has("Connection: "));
  }
  CHECK(c.call(get("/echo/1")).body == "GET 1 - ");
  const auto nothing = c.call("DELETE /nothing HTTP/1.1\r\nHost: h\r\n\r\n");
  CHECK(nothing.code == 204);
  CHECK_FALSE(nothing.has("Content-Length"));
  CHECK(c.call(get("/echo/1")).code == 200);
}

TEST_CASE("http server: pipelined requests are answered in order", "[http]") {
  const auto s = started(test_config(), sample());
  client c{s->port()};
  std::string all;
  constexpr int count = 3000;
  for (int i = 0; i < count; ++i)
    all += i % 3 == 0 ? get("/echo/" + std::to_string(i)) : post("/echo/" + std::to_string(i), std::string(500, 'b'));
  std::thread sender{[&] { c.send(all); }};
  for (int i = 0; i < count; ++i) {
    const auto expected =
        i % 3 == 0 ? "GET " + std::to_string(i) + " - " : "POST " + std::to_string(i) + " - " + std::string(500, 'b');
    if (c.must_read().body != expected)
      FAIL_CHECK("answer " << i << " is another one's");
  }
  sender.join();
}

TEST_CASE("http server: a request waits for the answer of the one before it", "[http]") {
  held_responders held;
  const auto s = started(test_config(), sample(&held));
  client c{s->port()};
  // The first answer is ready and leaves although the second is not.
  c.send(get("/echo/1") + post("/held", "") + get("/echo/3") + post("/held", "") + get("/echo/5"));
  CHECK(c.must_read().body == "GET 1 - ");
  auto first = held.take();
  std::move(first).send(response::json("2"));
  CHECK(c.must_read().body == "2");
  CHECK(c.must_read().body == "GET 3 - ");
  std::move(held.take()).send(response::json("4"));
  CHECK(c.must_read().body == "4");
  CHECK(c.must_read().body == "GET 5 - ");
}

TEST_CASE("http server: answers are accepted from any thread", "[http]") {
  held_responders held;
  const auto s = started(test_config(), sample(&held));
  constexpr int clients = 8;
  constexpr int rounds = 200;
  std::thread answering{[&] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        for (int i = t; i < clients * rounds; i += 3)
          held.take().send(response::json("1"));
      });
    for (auto& x : threads)
      x.join();
  }};
  std::vector<std::thread> threads;
  std::atomic<int> answered{0};
  for (int t = 0; t < clients; ++t)
    threads.emplace_back([&] {
      client c{s->port()};
      for (int i = 0; i < rounds; ++i) {
        c.send(post("/held", "x"));
        const auto x = c.read();
        answered += x && x->code == 200 ? 1 : 0;
      }
    });
  for (auto& x : threads)
    x.join();
  answering.join();
  CHECK(answered == clients * rounds);
}

TEST_CASE("http server: every request is answered, whatever its handler does", "[http]") {
  const quiet_log quiet;
  held_responders held;
  const auto s = started(test_config(), sample(&held));
  client c{s->port()};
  for (const auto* path : {"/throw", "/throw-int", "/drop"}) {
    INFO(path);
    const auto x = c.call(post(path, "x"));
    CHECK(x.code == 500);
    const bool is_dropped = std::string_view(path) == "/drop";
    CHECK(x.body.starts_with(is_dropped ? R"({"detail":"the server dropped )" : R"({"detail":"internal error; )"));
  }
  // An answer that was given counts.
  CHECK(c.call(post("/answer-and-throw", "")).body == "1");
  // Dropped elsewhere, later.
  c.send(post("/held", ""));
  std::thread{[&] { static_cast<void>(held.take()); }}.join();
  CHECK(c.must_read().code == 500);
  CHECK(c.call(get("/echo/1")).code == 200);
}

TEST_CASE("http server: the answer to a disconnected client is discarded", "[http]") {
  held_responders held;
  const auto s = started(test_config(), sample(&held));
  for (int i = 0; i < 20; ++i) {
    auto gone = std::make_unique<client>(s->port());
    gone->send(post("/held", "x") + get("/echo/1"));
    auto late = held.take();
    if (i % 2 == 0)
      gone->reset();
    gone.reset();
    std::move(late).send(response::json(std::string(100'000, '1')));
  }
  client c{s->port()};
  CHECK(c.call(get("/echo/1")).code == 200);
}

TEST_CASE("http server: a responder may outlive its server", "[http]") {
  held_responders held;
  std::optional<responder> late;
  std::optional<client> c;
  {
    const auto s = started(test_config(), sample(&held));
    c.emplace(s->port());
    c->send(post("/held", ""));
    late.emplace(held.take());
  }
  std::move(*late).send(response::json("1"));
  CHECK(c->ends());
}

TEST_CASE("http server: HEAD gets the headers of GET", "[http]") {
  const auto s = started(test_config(), sample());
  client c{s->port()};
  c.send("HEAD /echo/12 HTTP/1.1\r\nHost: h\r\n\r\n" + get("/echo/3"));
  const auto head = c.must_read(true);
  CHECK(head.code == 200);
  CHECK(head.has("Content-Length: 10\r\n"));
  CHECK(c.must_read().body == "GET 3 - ");
  c.send("HEAD /none HTTP/1.1\r\nHost: h\r\n\r\n" + get("/echo/3"));
  CHECK(c.must_read(true).code == 404);
  CHECK(c.must_read().body == "GET 3 - ");
}

TEST_CASE("http server: errors have a JSON body, and the connection stays open", "[http]") {
  const auto s = started(test_config(), sample());
  client c{s->port()};
  const auto missing = c.call(get("/none"));
  CHECK(missing.code == 404);
  CHECK(missing.body == R"({"detail":"there is nothing at this path"})");
  CHECK(missing.has("Content-Type: application/json\r\n"));
  const auto wrong = c.call("PUT /echo/1 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
  CHECK(wrong.code == 405);
  CHECK(wrong.has("Allow: GET, HEAD, POST\r\n"));
  CHECK(c.call("BREW /echo/1 HTTP/1.1\r\nHost: h\r\n\r\n").code == 405);
  CHECK(c.call(get("/echo/%zz")).code == 400);
  CHECK(c.call(get("/echo/1")).code == 200);
}

TEST_CASE("http server: data that is not HTTP gets 400 and the connection closes", "[http]") {
  const auto s = started(test_config(), sample());
  for (const auto* bytes :
       {"hello\r\n\r\n", "GET / HTTP/3\r\n\r\n", "\x16\x03\x01\x02\x03 hello", "GET /echo/1 HTTP/1.1\r\n\r\n"}) {
    client c{s->port()};
    c.send(get("/echo/1") + bytes);
    CHECK(c.must_read().code == 200);
    const auto x = c.must_read();
    CHECK(x.code == 400);
    CHECK(x.has("Connection: close\r\n"));
    CHECK(x.body.starts_with(R"({"detail":")"));
    CHECK(c.ends());
  }
}

TEST_CASE("http server: a connection closes when the client requests it or speaks HTTP/1.0", "[http]") {
  const auto s = started(test_config(), sample());
  client a{s->port()};
  CHECK(a.call(get("/echo/1", "Connection: close\r\n")).has("Connection: close\r\n"));
  CHECK(a.ends());
  client b{s->port()};
  CHECK(b.call("GET /echo/1 HTTP/1.0\r\n\r\n").has("Connection: close\r\n"));
  CHECK(b.ends());
  client c{s->port()};
  CHECK(c.call("GET /echo/1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").has("Connection: keep-alive\r\n"));
  CHECK(c.call(get("/echo/1", "Connection: close\r\n")).code == 200);
  CHECK(c.ends());
}

TEST_CASE("http server: a half-closed client still gets its answers", "[http]") {
  held_responders held;
  const auto s = started(test_config(), sample(&held));
  client c{s->port()};
  c.send(get("/echo/1") + post("/held", "") + get("/echo/3"));
  c.end();
  CHECK(c.must_read().body == "GET 1 - ");
  held.take().send(response::json("2"));
  CHECK(c.must_read().body == "2");
  CHECK(c.must_read().body == "GET 3 - ");
  CHECK(c.ends());
}

TEST_CASE("http server: a client that sends Expect gets 100 or the error instead", "[http]") {
  auto config = test_config();
  config.limits.body_bytes = 1024;
  const auto s = started(config, sample());
  client c{s->port()};
  const std::string expect = "Expect: 100-continue\r\n";
  c.send("POST /echo/1 HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n" + expect + "\r\n");
  CHECK(c.must_read().code == 100);
  c.send("body");
  CHECK(c.must_read().body == "POST 1 - body");
  c.send("POST /none HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n" + expect + "\r\n");
  CHECK(c.must_read().code == 404);
  CHECK(c.ends());
  client d{s->port()};
  d.send("POST /echo/1 HTTP/1.1\r\nHost: h\r\nContent-Length: 1025\r\n" + expect + "\r\n");
  CHECK(d.must_read().code == 413);
}

TEST_CASE("http server: bodies of all sizes arrive unchanged", "[http]") {
  const auto s = started(test_config(), sample());
  client c{s->port()};
  std::mt19937 random{61};
  for (const std::size_t size : {0, 1, 4095, 8192, 70'000, 300'000, 5'000'000, 10}) {
    std::string body(size, '\0');
    for (auto& x : body)
      x = static_cast<char>(random());
    std::string request = post("/echo/1", body);
    std::thread sender{[&] { c.send(request); }};
    const auto x = c.must_read();
    sender.join();
    CHECK((x.body == "POST 1 - " + body));
    std::string chunks = "POST /echo/1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    std::string_view rest{body};
    while (!rest.empty()) {
      const auto part = rest.substr(0, 1 + random() % 100'000);
      rest.remove_prefix(part.size());
      char line[32];
      std::snprintf(line, sizeof(line), "%zx\r\n", part.size());
      chunks.append(line).append(part).append("\r\n");
    }
    chunks += "0\r\n\r\n";
    std::thread chunk_sender{[&] { c.send(chunks); }};
    const auto y = c.must_read();
    chunk_sender.join();
    CHECK((y.body == x.body));
  }
}

TEST_CASE("http server: garbage on a connection gets an error or a close and does not affect others", "[http]") {
  const auto seed = GENERATE(71U, 72U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  const auto s = started(test_config(), sample());
  client neighbour{s->port()};
  for (int i = 0; i < 150; ++i) {
    client c{s->port()};
    std::string bytes;
    if (i % 2 == 0) {
      for (std::size_t n = random() % 3000; n > 0; --n)
        bytes += static_cast<char>(random());
    } else {
      bytes = post("/echo/1", "body") + post("/echo/2?q=1", "other");
      for (std::size_t n = 1 + random() % 4; n > 0; --n)
        bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    c.send(bytes);
    c.end();
    c.read_to_end();
    if (i % 10 == 0)
      CHECK(neighbour.call(get("/echo/1")).code == 200);
  }
}

TEST_CASE("http server: the observer sees every request and connection", "[http]") {
  struct counter final : observer {
    void request_finished(const request_record& x) noexcept override {
      const std::lock_guard guard{mutex};
      seen += std::string{x.route} + " " + std::to_string(static_cast<int>(x.code)) + "\n";
      bytes_in += x.bytes_in;
      bytes_out += x.bytes_out;
      times_are_sane = times_are_sane && x.waited >= duration::zero() && x.total >= x.waited;
    }
    void connection_opened() noexcept override { ++opened; }
    void connection_closed() noexcept override { ++closed; }
    std::mutex mutex;
    std::string seen;
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
    bool times_are_sane = true;
    std::atomic<int> opened{0};
    std::atomic<int> closed{0};
  } watcher;
  const auto request = post("/echo/1", "body") + get("/none") + "no http\r\n\r\n";
  std::size_t received = 0;
  {
    const auto s = started(test_config(), sample(), &watcher);
    client c{s->port()};
    c.send(request);
    received = c.read_to_end().size();
    client idle{s->port()};
    idle.call(get("/nothing"));
  }
  CHECK(watcher.seen == "echo 200\nunmatched 404\nmalformed 400\nunmatched 405\n");
  CHECK(watcher.bytes_in >= post("/echo/1", "body").size() + get("/none").size() + get("/nothing").size());
  CHECK(watcher.bytes_out > received);
  CHECK(watcher.times_are_sane);
  CHECK(watcher.opened == 2);
  CHECK(watcher.closed == 2);
}

TEST_CASE("http server: a server that cannot start reports the cause", "[http]") {
  const auto s = started(test_config(), sample());
  auto config = test_config();
  config.port = s->port();
  const auto refused = [](const config::http_config& c, router r = sample()) {
    const auto x = server::start(c, std::move(r));
    REQUIRE_FALSE(x);
    return x.error().text;
  };
  CHECK(refused(config) == "cannot listen on 127.0.0.1:" + std::to_string(s->port()) +
                               ": another process uses that port; stop it, or set http.port to another one, 0 for any "
                               "that is free");
  config = test_config();
  config.host = "203.0.113.1";
  CHECK(refused(config).starts_with("cannot listen on 203.0.113.1:0: no interface of this machine has that address; "));
  config.host = "no such host";
  CHECK(refused(config).starts_with("\"no such host\" is not an address, and not a name that can be resolved ("));
  config = test_config();
  config.tokens_file = "/nonexistent/tokens";
  CHECK(refused(config).starts_with("tokens file \"/nonexistent/tokens\""));
  router twice = sample();
  twice.add(method::get, "/echo/{x}", open_route("again", echo));
  CHECK(refused(test_config(), std::move(twice)) == "route GET /echo/{x} (again): is already registered as get_echo");
}

TEST_CASE("http server: a server listens on names and on IPv6", "[http]") {
  if (!knows_localhost()) {
    WARN("skipped: this machine has no name \"localhost\"");
    return;
  }
  auto config = test_config();
  config.host = "localhost";
  const auto s = started(config, sample());
  client c{s->port()};
  CHECK(c.call(get("/echo/1")).code == 200);
}

TEST_CASE("http server: a Unix socket that could not be replaced is replaced once it can be", "[http]") {
  const quiet_log quiet;
  const test::scratch_directory scratch;
  const auto path = scratch / "http.sock";
  const auto listens = [&] {
    auto made = local_listener::open("http.socket", path);
    REQUIRE(made);
    return std::move(*made);
  };
  const auto s = server::start(test_config(), sample(), nullptr, {std::nullopt, listens()});
  REQUIRE(s);
  const auto answers = [&] {
    const auto connected = connect_local(path);
    if (!connected)
      return false;
    const std::string_view asks = "GET /echo/1 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    pollfd waits{connected->get(), POLLIN, 0};
    char first = 0;
    return ::send(connected->get(), asks.data(), asks.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(asks.size()) &&
           ::poll(&waits, 1, 10000) == 1 && ::recv(connected->get(), &first, 1, 0) == 1;
  };
  CHECK(answers());
  std::filesystem::remove(path);
  // Nothing that can be listened on, as where the kernel has no memory.
  auto useless = listens();
  static_cast<void>(useless.take());
  (*s)->replace_local(std::move(useless));
  REQUIRE(test::eventually([&] { return !std::filesystem::exists(path); }));
  (*s)->replace_local(listens());
  CHECK(test::eventually(answers));
}

} // namespace http_server_test
