#include "actors/client/handshake/client.hpp"
#include "actors/node/directory/directory.hpp"
#include "actors/node/reception/directory_proxy.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"

#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

/// The live client and the live directory, on threads.

namespace handshake_live_client_test {

using namespace troupe;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

struct live_options : caf::actor_system_config {
  live_options() {
    register_messages(*this);
    set("scheduler.max-threads", std::size_t{2});
    set("work-stealing.moderate-poll-attempts", std::size_t{0});
  }
};

struct live_world {
  live_world() = default;
  ~live_world() {
    caf::anon_send_exit(proxy, caf::exit_reason::kill);
    caf::anon_send_exit(it, caf::exit_reason::user_shutdown);
  }
  live_world(const live_world&) = delete;
  live_world& operator=(const live_world&) = delete;

  void publish(const std::string& engine, incarnation_number incarnation, std::uint32_t tp = 0,
               std::uint32_t tp_size = 1) {
    caf::scoped_actor self{system};
    handshake_publish_request x;
    x.engine = engine;
    x.incarnation = incarnation;
    x.compat = "abc";
    x.rank.tp = tp;
    x.sizes.tp = tp_size;
    x.payload = "payload " + std::to_string(incarnation);
    self->request(proxy, seconds(30), x)
        .receive([](const handshake_reply& reply) { CHECK(reply.code == 0); },
                 [](const caf::error& e) { FAIL(to_string(from_caf(e))); });
  }

  bool waits(std::uint64_t n) {
    caf::scoped_actor self{system};
    return test::eventually([&] {
      std::uint64_t waiting = 0;
      self->request(it, seconds(30), stats_atom_v)
          .receive([&](const handshake_stats& x) { waiting = x.waiting; },
                   [](const caf::error& e) { FAIL(to_string(from_caf(e))); });
      return waiting == n;
    });
  }

  live_options options;
  caf::actor_system system{options};
  directory_actor it = spawn_actor<directory>(system, handshake::directory_options{});
  handshake_proxy_actor proxy = spawn_actor<directory_proxy>(system, it, caf::actor_addr{});
};

} // namespace

TEST_CASE("handshake client, live: engines may start in any order", "[handshake]") {
  live_world w;
  handshake::client one(w.system, w.proxy);
  auto waiting = one.resolve({"a", 0, seconds(30)});
  w.publish("a", 7);
  const auto found = waiting.get();
  REQUIRE(found.has_value());
  CHECK((*found)->entries.at(0).payload == "payload 7");
  CHECK(one.resolve({"a", 7, seconds(30)}).get().has_value());
  // One fetch for both.
  const auto late = one.resolve({"b", 0, milliseconds(50)}).get();
  REQUIRE_FALSE(late.has_value());
  CHECK(late.error().code == errc::timeout);
}

TEST_CASE("handshake client, live: is notified when an engine has restarted", "[handshake]") {
  live_world w;
  handshake::client one(w.system, w.proxy);
  w.publish("a", 7);
  CHECK((*one.resolve({"a", 0, seconds(30)}).get())->incarnation == 7);
  w.publish("a", 8);
  // Pushed, so it takes its moment.
  const auto deadline = std::chrono::steady_clock::now() + seconds(30);
  incarnation_number seen = 0;
  while (seen != 8 && std::chrono::steady_clock::now() < deadline) {
    seen = (*one.resolve({"a", 0, seconds(30)}).get())->incarnation;
    std::this_thread::yield();
  }
  CHECK(seen == 8);
  // A request for the later incarnation never gets another one, pushed or not.
  w.publish("a", 9);
  CHECK((*one.resolve({"a", 9, seconds(30)}).get())->incarnation == 9);
}

TEST_CASE("handshake client, live: mismatched hash, cancellation and shutdown of the client", "[handshake]") {
  live_world w;
  w.publish("a", 7);
  handshake::client_options options;
  options.compat = "def";
  auto one = std::make_unique<handshake::client>(w.system, w.proxy, options);
  CHECK(one->resolve({"a", 0, seconds(30)}).get().error().code == errc::identity_mismatch);
  std::promise<errc> cancelled;
  const auto who = one->resolve({"b", 0, seconds(30)}, [&](const result<handshake::resolution>& x) {
    cancelled.set_value(x ? errc::ok : x.error().code);
  });
  one->cancel(who);
  CHECK(cancelled.get_future().get() == errc::cancelled);
  auto last = one->resolve({"b", 0, seconds(30)});
  one.reset();
  CHECK(last.get().error().code == errc::shutting_down);
}

TEST_CASE("handshake client, live: a rank of another world size waits for its peer ranks", "[handshake]") {
  live_world w;
  handshake::client one(w.system, w.proxy);
  auto waiting = one.resolve({"a", 0, seconds(30), handshake::wanted_ranks::peers_of(1, 2)});
  w.publish("a", 7, 2, 4);
  w.publish("a", 7, 3, 4);
  const auto found = waiting.get();
  REQUIRE(found.has_value());
  REQUIRE((*found)->entries.size() == 2);
  CHECK((*found)->entries[0].rank.tp == 2);
  CHECK((*found)->sizes.tp == 4);
  CHECK(one.resolve({"a", 0, seconds(30), handshake::wanted_ranks::peers_of(0, 3)}).get().error().code ==
        errc::invalid_argument);
}

TEST_CASE("handshake client, live: a cancelled wait is removed from the directory", "[handshake]") {
  live_world w;
  auto one = std::make_unique<handshake::client>(w.system, w.proxy);
  const auto who = one->resolve({"a", 0, seconds(30)}, [](const result<handshake::resolution>&) {});
  CHECK(w.waits(1));
  one->cancel(who);
  CHECK(w.waits(0));
  one->resolve({"a", 0, seconds(30)}, [](const result<handshake::resolution>&) {});
  CHECK(w.waits(1));
  one.reset();
  CHECK(w.waits(0));
}

TEST_CASE("handshake client, live: connects to a new directory after the previous one has ended", "[handshake]") {
  live_world w;
  std::mutex lock;
  auto current = w.proxy;
  handshake::client one(w.system, [&](const std::function<void(result<handshake_proxy_actor>)>& then) {
    const std::lock_guard guard(lock);
    if (current)
      then(current);
    else
      then(fail(errc::unreachable, "none yet"));
  });
  w.publish("a", 7);
  CHECK((*one.resolve({"a", 0, seconds(30)}).get())->incarnation == 7);
  auto waiting = one.resolve({"b", 0, seconds(30)});
  CHECK(w.waits(1));
  {
    const std::lock_guard guard(lock);
    current = nullptr;
  }
  caf::anon_send_exit(w.proxy, caf::exit_reason::kill);
  caf::anon_send_exit(w.it, caf::exit_reason::kill);
  w.it = spawn_actor<directory>(w.system, handshake::directory_options{});
  w.proxy = spawn_actor<directory_proxy>(w.system, w.it, caf::actor_addr{});
  {
    const std::lock_guard guard(lock);
    current = w.proxy;
  }
  w.publish("b", 1);
  CHECK((*waiting.get())->incarnation == 1);
  w.publish("a", 8);
  CHECK(test::eventually([&] { return (*one.resolve({"a", 0, seconds(30)}).get())->incarnation == 8; }));
}

TEST_CASE("handshake client, live: retries of many waits without a directory do not recurse", "[handshake]") {
  live_world w;
  // All of them are tried at once, and each failure leads to the next attempt: as calls within each other, they would
  // be more than a stack holds.
  constexpr std::uint32_t many = 8000;
  handshake::client_options options;
  options.waiting_max = many;
  options.parallel_max = 1;
  options.backoff_min = options.backoff_max = milliseconds(500);
  handshake::client one(w.system, handshake_proxy_actor{}, options);
  std::vector<std::future<result<handshake::resolution>>> all;
  for (std::uint32_t i = 0; i < many; ++i)
    all.push_back(one.resolve({std::to_string(i), 0, seconds(4)}));
  for (auto& x : all)
    CHECK(x.get().error().code == errc::timeout);
}

TEST_CASE("handshake client, live: a withdrawn engine is no longer found", "[handshake]") {
  live_world w;
  handshake::client one(w.system, w.proxy);
  w.publish("a", 7);
  CHECK(one.resolve({"a", 0, seconds(30)}).get().has_value());
  caf::scoped_actor self{w.system};
  self->request(w.proxy, seconds(30), handshake_withdraw_request{"a", 7})
      .receive([](const handshake_reply& x) { CHECK(x.code == 0); }, [](const caf::error&) {});
  CHECK(test::eventually([&] { return !one.resolve({"a", 0, milliseconds(20)}).get().has_value(); }));
}

} // namespace handshake_live_client_test
