#include "tests/unit/http_support.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace http_stop_test {

using namespace troupe;
using namespace troupe::http;
using namespace std::chrono_literals;

namespace {

/// A server with one route, whose answers the test sends.
class fixture {
public:
  fixture() {
    router r;
    r.add(method::post, "/held", open_route("held", [this](const request&, responder x) {
            const std::lock_guard guard{mutex_};
            held_.push_back(std::move(x));
            changed_.notify_all();
          }));
    r.add(method::get, "/ok", open_route("ok", [](const request&, responder x) { std::move(x).send({}); }));
    server_ = started(test_config(), std::move(r));
  }

  server& operator*() { return *server_; }
  server* operator->() { return server_.get(); }

  responder take() {
    std::unique_lock lock{mutex_};
    if (!changed_.wait_for(lock, 1min, [&] { return !held_.empty(); }))
      throw std::runtime_error{"no request has come"};
    auto x = std::move(held_.back());
    held_.pop_back();
    return x;
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<responder> held_;
  std::unique_ptr<server> server_;
};

} // namespace

TEST_CASE("http stop: shutdown lets requests in progress finish and closes idle connections", "[http]") {
  fixture s;
  const auto port = s->port();
  client idle{port};
  CHECK(idle.call(get("/ok")).code == 200);
  client busy{port};
  busy.send(post("/held", "x") + get("/ok"));
  auto reply = s.take();
  std::thread stopping{[&] { s->stop(10min); }};
  CHECK(idle.ends());
  std::move(reply).send(response::json("1"));
  const auto x = busy.must_read();
  CHECK(x.body == "1");
  CHECK(x.has("Connection: close\r\n"));
  // Pipelined requests are no longer started.
  CHECK(busy.ends());
  busy.end();
  stopping.join();
  // The port is free again.
  auto same = test_config();
  same.port = port;
  CHECK(server::start(same, router{}));
}

TEST_CASE("http stop: shutdown lets a request that has begun to arrive finish", "[http]") {
  fixture s;
  client c{s->port()};
  client idle{s->port()};
  CHECK(idle.call(get("/ok")).code == 200);
  // The answer shows that the server has read what follows it, which is half a request.
  c.send(get("/ok") + "GET /o");
  CHECK(c.must_read().code == 200);
  std::thread stopping{[&] { s->stop(10min); }};
  CHECK(idle.ends());
  c.send("k HTTP/1.1\r\nHost: h\r\n\r\n");
  CHECK(c.must_read().code == 200);
  CHECK(c.ends());
  stopping.join();
}

TEST_CASE("http stop: shutdown waits no longer than its limit", "[http]") {
  fixture s;
  client c{s->port()};
  c.send(post("/held", ""));
  auto reply = s.take();
  s->stop(20ms);
  CHECK(c.ends());
  std::move(reply).send(response::json("1"));
}

TEST_CASE("http stop: immediate shutdown closes everything", "[http]") {
  const quiet_log quiet;
  fixture s;
  std::vector<std::unique_ptr<client>> clients;
  for (int i = 0; i < 50; ++i) {
    auto& c = *clients.emplace_back(std::make_unique<client>(s->port()));
    if (i % 2 == 0)
      c.send(post("/held", ""));
    else
      c.send("POST /held HTT");
  }
  std::vector<responder> awaited;
  for (int i = 0; i < 25; ++i)
    awaited.push_back(s.take());
  s->stop(0s);
  s->stop(10min); // the first call decides
  for (const auto& c : clients)
    CHECK(c->ends());
}

TEST_CASE("http stop: a server may be stopped while clients connect and disconnect and answers are sent", "[http]") {
  for (int round = 0; round < 5; ++round) {
    std::atomic<bool> is_over{false};
    std::mutex mutex;
    std::vector<responder> held;
    router r;
    r.add(method::post, "/held", open_route("held", [&](const request&, responder x) {
            const std::lock_guard guard{mutex};
            held.push_back(std::move(x));
          }));
    const auto s = started(test_config(), std::move(r));
    const auto listening = s->port();
    std::vector<std::thread> threads;
    std::atomic<int> answered{0};
    for (int i = 0; i < 3; ++i)
      // Connected from here: a thread might not get its turn before the others have had their answers and all stops.
      threads.emplace_back([&answered, fd = std::make_unique<client>(listening)] {
        while (fd->send(post("/held", "x")) && fd->read())
          ++answered;
      });
    threads.emplace_back([&] {
      while (!is_over) {
        std::vector<responder> some;
        {
          const std::lock_guard guard{mutex};
          some.swap(held);
        }
        for (auto& x : some)
          std::move(x).send(response::json("1"));
        std::this_thread::yield();
      }
    });
    while (answered < 20)
      std::this_thread::yield();
    s->stop(10min);
    is_over = true;
    for (auto& x : threads)
      x.join();
  }
  SUCCEED();
}

} // namespace http_stop_test
