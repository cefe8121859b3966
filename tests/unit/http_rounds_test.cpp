#include "tests/unit/http_support.hpp"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace http_rounds_test {

using namespace troupe;
using namespace troupe::http;
using namespace std::chrono_literals;

namespace {

/// A server with one io thread. Answers to "/later" wait for the end of the round; what the thread does is noted.
class fixture {
public:
  fixture() {
    router r;
    r.set_rounds([this] { return std::make_unique<round>(*this); });
    const auto add = [&](method m, const std::string& name, handler h) {
      r.add(m, "/" + name, open_route(name, [this, name, h = std::move(h)](const request& x, responder to) {
              note(name);
              h(x, std::move(to));
            }));
    };
    const auto answer = [](const request&, responder x) { std::move(x).send({}); };
    add(method::get, "later", [this](const request&, responder x) { round_->waiting.push_back(std::move(x)); });
    add(method::get, "fails", [this](const request&, responder x) {
      round_->waiting.push_back(std::move(x));
      throw std::runtime_error{"as the test wants"};
    });
    add(method::get, "ok", answer);
    add(method::post, "body", answer);
    add(method::get, "slow", [](const request&, responder x) {
      const auto until = std::chrono::steady_clock::now() + 2 * request_round::longest;
      while (std::chrono::steady_clock::now() < until) {
      }
      std::move(x).send({});
    });
    add(method::get, "blocked", [this](const request&, responder x) {
      std::unique_lock lock{mutex_};
      is_blocked_ = true;
      changed_.notify_all();
      changed_.wait_for(lock, 1min, [&] { return !is_blocked_; });
      std::move(x).send({});
    });
    auto config = test_config();
    config.threads = 1;
    server_ = started(config, std::move(r));
  }

  server& operator*() { return *server_; }
  server* operator->() { return server_.get(); }

  /// While it exists, the io thread handles nothing; then all that has been sent meanwhile, in that order.
  class pause {
  public:
    explicit pause(fixture& f) : f_(f), client_(f.server_->port()) {
      client_.send(get("/blocked"));
      std::unique_lock lock{f_.mutex_};
      if (!f_.changed_.wait_for(lock, 1min, [&] { return f_.is_blocked_; }))
        throw std::runtime_error{"the io thread has not come"};
      f_.notes_.clear();
    }
    ~pause() {
      const std::lock_guard lock{f_.mutex_};
      f_.is_blocked_ = false;
      f_.changed_.notify_all();
    }

  private:
    fixture& f_;
    client client_;
  };

  /// Without ends of rounds for which nothing has waited.
  std::vector<std::string> notes() {
    const std::lock_guard lock{mutex_};
    return notes_;
  }

private:
  struct round final : request_round {
    explicit round(fixture& f) : of(f) { of.round_ = this; }
    ~round() override { of.round_ = nullptr; }
    void end() noexcept override {
      if (waiting.empty())
        return;
      of.note("end");
      for (auto& x : waiting)
        std::move(x).send({});
      waiting.clear();
      since = timestamp::max();
    }
    timestamp waiting_since() const noexcept override { return since; }

    fixture& of;
    std::vector<responder> waiting;
    timestamp since = timestamp::max();
  };

  void note(std::string what) {
    if (what == "later" && round_->waiting.empty())
      round_->since = std::chrono::steady_clock::now();
    const std::lock_guard lock{mutex_};
    notes_.push_back(std::move(what));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_blocked_ = false;
  std::vector<std::string> notes_;
  /// For the io thread.
  round* round_ = nullptr;
  std::unique_ptr<server> server_;
};

/// A client whose connection the io thread has taken over.
std::unique_ptr<client> connected(fixture& s) {
  auto c = std::make_unique<client>(s->port());
  CHECK(c->call(get("/ok")).code == 200);
  return c;
}

} // namespace

TEST_CASE("http rounds: what handlers leave for the end of a round is done before the io thread waits", "[http]") {
  fixture s;
  auto one = connected(s);
  auto other = connected(s);
  for (int i = 0; i < 20; ++i) {
    CHECK(one->call(get("/later")).code == 200);
    one->send(get("/later") + get("/later"));
    other->send(get("/later"));
    CHECK(one->must_read().code == 200);
    CHECK(one->must_read().code == 200);
    CHECK(other->must_read().code == 200);
  }
  // The answer of a handler that throws is lost with its request, and the round goes on.
  const quiet_log quiet;
  CHECK(one->call(get("/fails")).code == 500);
  CHECK(other->call(get("/later")).code == 200);
}

TEST_CASE("http rounds: a round ends before a request with a large body, and when something has waited for long",
          "[http]") {
  fixture s;
  auto first = connected(s);
  auto second = connected(s);
  auto third = connected(s);
  SECTION("a large body") {
    {
      const fixture::pause pause(s);
      first->send(get("/later"));
      second->send(post("/body", std::string(16 * 1024 + 1, 'x')));
    }
    CHECK(first->must_read().code == 200);
    CHECK(second->must_read().code == 200);
    CHECK(s.notes() == std::vector<std::string>{"later", "end", "body"});
  }
  SECTION("a slow request") {
    {
      const fixture::pause pause(s);
      first->send(get("/later"));
      second->send(get("/slow"));
      third->send(get("/ok"));
    }
    CHECK(first->must_read().code == 200);
    CHECK(second->must_read().code == 200);
    CHECK(third->must_read().code == 200);
    // On a busy machine it may have waited for long before the slow one begins.
    const auto notes = s.notes();
    REQUIRE(notes.size() == 4);
    CHECK(notes[0] == "later");
    CHECK(notes[3] == "ok");
  }
  SECTION("a slow request of the same connection") {
    {
      const fixture::pause pause(s);
      first->send(get("/later"));
      second->send(get("/slow") + get("/ok"));
    }
    CHECK(first->must_read().code == 200);
    CHECK(second->must_read().code == 200);
    CHECK(second->must_read().code == 200);
    const auto notes = s.notes();
    REQUIRE(notes.size() == 4);
    CHECK(notes[0] == "later");
    CHECK(notes[3] == "ok");
  }
}

TEST_CASE("http rounds: a server stops while something waits for the end of a round", "[http]") {
  fixture s;
  auto c = connected(s);
  std::thread stopping;
  {
    const fixture::pause pause(s);
    c->send(get("/later"));
    stopping = std::thread([&] { s->stop(duration::zero()); });
  }
  stopping.join();
}

TEST_CASE("http rounds: a server whose rounds cannot be made serves without them", "[http]") {
  const quiet_log quiet;
  router r;
  r.set_rounds([]() -> std::unique_ptr<request_round> { throw std::bad_alloc{}; });
  r.add(method::get, "/ok", open_route("ok", [](const request&, responder x) { std::move(x).send({}); }));
  const auto s = started(test_config(), std::move(r));
  client c{s->port()};
  CHECK(c.call(get("/ok")).code == 200);
}

} // namespace http_rounds_test
