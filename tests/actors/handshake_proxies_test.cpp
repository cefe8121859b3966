#include "actors/client/directory_dialer.hpp"
#include "actors/client/handshake/client.hpp"
#include "actors/node/supervisor/node_listeners.hpp"
#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/ask.hpp"
#include "actors/support/listeners/listeners.hpp"
#include "actors/support/system_config.hpp"
#include "base/descriptors.hpp"
#include "base/local_socket.hpp"
#include "tests/actors/two_systems.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/io_support.hpp"

#include <caf/io/basp_broker.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <sys/socket.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

/// A node's directory, reached from another actor system through the node's listeners.

namespace handshake_proxies_test {

using namespace troupe;
using std::chrono::seconds;
using test::config_in;
using test::patient;
using test::two_systems;

namespace {

constexpr auto limit = test::two_systems_limit;

/// Forwards each update to a function.
class listener : public handshake_watcher_actor::base {
public:
  listener(caf::actor_config& config, std::function<void(const handshake_update&)> then)
      : handshake_watcher_actor::base(config), then_(std::move(then)) {}

protected:
  behavior_type make_behavior() override {
    return {[this](const handshake_update& x) { then_(x); }};
  }

private:
  std::function<void(const handshake_update&)> then_;
};

handshake_publish_request rank_of(std::uint32_t tp, incarnation_number incarnation = 7) {
  handshake_publish_request x;
  x.engine = "a";
  x.rank.tp = tp;
  x.sizes.tp = 2;
  x.incarnation = incarnation;
  x.payload = std::string("payload\0", 8) + std::to_string(tp);
  return x;
}

} // namespace

TEST_CASE("handshake listener: publish, wait, fetch and watch from another actor system", "[handshake]") {
  two_systems w;
  const auto proxy = w.find();
  REQUIRE(proxy);
  caf::scoped_actor self{w.there};
  std::promise<void> complete;
  std::atomic<bool> notified{false};
  std::atomic<std::uint64_t> watch{0};
  const auto watcher = spawn_actor<listener>(w.there, [&](const handshake_update& x) {
    for (const auto& change : x.changes)
      if (change.now.complete && !notified.exchange(true))
        complete.set_value();
    caf::anon_send(proxy, handshake_seen_request{x.watch});
  });
  self->request(proxy, limit, watch_atom_v, std::string("a"), watcher)
      .receive([&](std::uint64_t x) { watch = x; }, [](const caf::error& e) { FAIL(to_string(from_caf(e))); });

  handshake::client resolver(w.there, proxy);
  auto waiting = resolver.resolve({"a", 7, limit});
  for (std::uint32_t tp = 0; tp < 2; ++tp)
    self->request(proxy, limit, rank_of(tp))
        .receive([](const handshake_reply& x) { CHECK(x.code == 0); },
                 [](const caf::error& e) { FAIL(to_string(from_caf(e))); });
  REQUIRE(complete.get_future().wait_for(limit) == std::future_status::ready);
  const auto found = waiting.get();
  REQUIRE(found.has_value());
  REQUIRE((*found)->entries.size() == 2);
  CHECK((*found)->entries[1].payload == rank_of(1).payload);

  // Internal messages of the node are refused by the listener.
  caf::scoped_actor rude{w.there};
  rude->request(caf::actor_cast<caf::actor>(proxy), seconds(1), drain_atom_v)
      .receive([] { FAIL("a remote sender has stopped the directory"); }, [](const caf::error&) {});
  auto again = resolver.resolve({"a", 8, limit});
  self->request(proxy, limit, rank_of(0, 8)).receive([](const handshake_reply&) {}, [](const caf::error&) {});
  self->request(proxy, limit, rank_of(1, 8)).receive([](const handshake_reply&) {}, [](const caf::error&) {});
  CHECK((*again.get())->incarnation == 8);
  caf::anon_send_exit(watcher, caf::exit_reason::user_shutdown);
}

TEST_CASE("handshake listener: the config sets the size of updates and the patience with watchers", "[handshake]") {
  test::scratch_directory directory;
  auto options = config_in(directory.path());
  options.handshake.update_bytes = 1024;
  options.handshake.watch_patience = std::chrono::milliseconds(100);
  system_config actors{config::caf_config{}};
  caf::actor_system system{actors};
  auto node = start_node(system, options);
  REQUIRE(node.has_value());
  const auto& it = (*node)->services().directory;
  caf::scoped_actor self{system};
  for (const auto* engine : {"a", "b"}) {
    auto x = rank_of(0);
    x.engine = engine;
    x.payload.resize(2000);
    self->request(it, limit, x).receive([](const handshake_reply& y) { CHECK(y.code == 0); }, [](const caf::error&) {});
  }
  std::promise<std::size_t> notified;
  std::atomic<bool> once{false};
  const auto watcher = spawn_actor<listener>(system, [&](const handshake_update& x) {
    if (!once.exchange(true))
      notified.set_value(x.changes.size());
  });
  self->request(it, limit, watch_atom_v, std::string(), watcher)
      .receive([](std::uint64_t) {}, [](const caf::error& e) { FAIL(to_string(from_caf(e))); });
  auto changes = notified.get_future();
  REQUIRE(changes.wait_for(limit) == std::future_status::ready);
  CHECK(changes.get() == 1);
  // The watcher never acknowledges an update.
  CHECK(test::eventually([&] {
    std::uint64_t watches = 0;
    self->request(it, limit, stats_atom_v)
        .receive([&](const handshake_stats& x) { watches = x.watches; }, [](const caf::error&) {});
    return watches == 0;
  }));
  caf::anon_send_exit(watcher, caf::exit_reason::user_shutdown);
  CHECK((*node)->stop(system, seconds(5)).has_value());
}

TEST_CASE("handshake listener: the wait of a client in another process ends with the client", "[handshake]") {
  two_systems w;
  const auto proxy = w.find();
  REQUIRE(proxy);
  caf::scoped_actor self{w.here};
  const auto waits = [&](std::uint64_t n) {
    return test::eventually([&] {
      std::uint64_t waiting = 0;
      self->request(w.node->services().directory, limit, stats_atom_v)
          .receive([&](const handshake_stats& x) { waiting = x.waiting; },
                   [](const caf::error& e) { FAIL(to_string(from_caf(e))); });
      return waiting == n;
    });
  };
  handshake_fetch_request x;
  x.engine = "a";
  x.wait = seconds(60);
  {
    caf::scoped_actor asker{w.there};
    asker->send(proxy, x);
    asker->request(proxy, limit, x);
    CHECK(waits(2));
  }
  CHECK(waits(0));
}

TEST_CASE("handshake listener: a connection outlives the one that had its descriptor before", "[handshake]") {
  two_systems w;
  // The early connections never say who they are, and are to stay until the test ends them.
  w.stop();
  w.node_options.actors.handshake_time = 2 * limit;
  w.start();
  // Messages reach actors in the order of their arrival, the end of a connection among them. While one of them is still
  // being read, which this number stands for, none goes on.
  const auto broker = w.here.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
  auto& queue = static_cast<caf::io::basp_broker*>(caf::actor_cast<caf::abstract_actor*>(broker))->instance.queue();
  const auto waiting = [&queue] {
    const std::lock_guard guard(queue.lock);
    return queue.pending.size();
  };
  std::vector<unique_descriptor> early;
  for (int i = 0; i < 16; ++i) {
    auto one = connect_local(w.ways_in.socket);
    REQUIRE(one.has_value());
    early.push_back(std::move(*one));
    char first = 0;
    REQUIRE(test::eventually([&] { return ::recv(early.back().get(), &first, 1, MSG_DONTWAIT) == 1; }));
  }
  const auto number = queue.new_id();
  // Their descriptors at this end stay in use, so that new connections get those of the other end.
  for (const auto& x : early)
    ::shutdown(x.get(), SHUT_RDWR);
  REQUIRE(test::eventually([&] { return waiting() == early.size(); }));

  auto late = std::async(std::launch::async, [&] { return open_directory(w.opener()); });
  CHECK(test::eventually([&] { return waiting() > early.size(); }));
  queue.drop(nullptr, number);
  const auto found = late.get();
  INFO((found ? std::string() : found.error().text));
  CHECK(found.has_value());
}

TEST_CASE("handshake listener: a node that is slow to answer a connection is waited for", "[handshake]") {
  two_systems w;
  auto often = patient();
  often.heartbeat_interval = std::chrono::milliseconds(10);
  system_config options{often};
  caf::actor_system client{options};
  const auto client_listeners = *listeners::make(client, {});
  // The node's thread for connections stands still.
  std::promise<void> goes_on;
  w.here.middleman().backend().post([may = goes_on.get_future().share()] { may.wait(); });
  auto opened = std::async(std::launch::async, [&] { return open_directory(w.opener(client, *client_listeners)); });
  // Many heartbeats of the client; on a machine where there are fewer, the test shows less.
  CHECK(opened.wait_for(std::chrono::milliseconds(500)) == std::future_status::timeout);
  goes_on.set_value();
  const auto found = opened.get();
  INFO((found ? std::string() : found.error().text));
  CHECK(found.has_value());
}

TEST_CASE("handshake listener: a client continues with a restarted node", "[handshake]") {
  two_systems w;
  handshake::client resolver(w.there, w.opener());
  for (std::uint32_t tp = 0; tp < 2; ++tp)
    w.publish(rank_of(tp));
  CHECK((*resolver.resolve({"a", 0, limit}).get())->incarnation == 7);
  auto waiting = resolver.resolve({"b", 0, limit});
  w.stop();
  // Known entries stay known and waiting requests keep waiting.
  CHECK(resolver.resolve({"a", 7, limit}).get().has_value());
  w.start();
  for (const auto* engine : {"a", "b"})
    for (std::uint32_t tp = 0; tp < 2; ++tp) {
      auto x = rank_of(tp, 8);
      x.engine = engine;
      w.publish(x);
    }
  CHECK((*waiting.get())->incarnation == 8);
  // Pushed by a watch that the client has asked the new node for.
  CHECK(test::eventually([&] { return (*resolver.resolve({"a", 0, limit}).get())->incarnation == 8; }));
}

TEST_CASE("handshake listener: the error for an unreachable node names the cause", "[handshake]") {
  two_systems w;
  const auto nowhere = directory_of(w.there, w.client_listeners->dialer(), {"/nowhere/troupe.sock", 0}, limit);
  const auto found = open_directory(nowhere);
  REQUIRE_FALSE(found.has_value());
  CHECK(found.error().code == errc::unreachable);
  CHECK(found.error().text.find("/nowhere/troupe.sock") != std::string::npos);
  handshake::client resolver(w.there, nowhere);
  CHECK(resolver.resolve({"a", 0, std::chrono::milliseconds(50)}).get().error().code == errc::timeout);
  handshake::client::number who = 0;
  auto unwanted = resolver.resolve({"a", 0, limit}, &who);
  resolver.cancel(who);
  CHECK(unwanted.get().error().code == errc::cancelled);
  // In the node's own process no connection is needed.
  CHECK(open_directory(directory_of(w.here, w.node->reception())).has_value());
}

TEST_CASE("handshake listener: a node without a directory answers unsupported", "[handshake]") {
  test::scratch_directory directory;
  auto options = config_in(directory.path());
  options.handshake.enabled = false;
  system_config actors{config::caf_config{}};
  caf::actor_system system{actors};
  auto node = start_node(system, options);
  REQUIRE(node.has_value());
  caf::scoped_actor self{system};
  self->request((*node)->reception(), limit, handshake_atom_v)
      .receive([](const handshake_proxy_actor&) { FAIL("a listener without a directory"); },
               [](const caf::error& e) { CHECK(from_caf(e).code == errc::unsupported); });
  CHECK((*node)->stop(system, seconds(5)).has_value());
}

TEST_CASE("handshake listener: replies to a slow reader are bounded in bytes", "[handshake]") {
  // Replies are counted twice while their connection takes them over, so that half of the room may look like all of it,
  // and some more are read before the reader stops.
  constexpr std::uint64_t most = 32U << 20U;
  two_systems w;
  w.start_anew(most);
  const auto proxy = w.find();
  const auto& room = *w.node->services().outgoing;
  std::mutex gate;
  std::unique_lock held(gate);
  constexpr int asked = 100;
  std::atomic<int> answered{0};
  std::atomic<int> refused{0};
  const auto answer = [&](const result<handshake_fetch_reply>& found) {
    REQUIRE(found.has_value());
    refused += found->code == static_cast<std::uint8_t>(errc::limit_exceeded) ? 1 : 0;
    // The first one that comes stops the thread that reads for this process.
    ++answered;
    const std::lock_guard stop(gate);
  };
  w.send_large_answers(proxy, asked, answer);
  CHECK(test::eventually([&] { return room.refused() > 0; }));
  // One that its connection has just taken over may be counted twice.
  CHECK(room.used() <= most + (1U << 20U) + (1U << 16U));
  CHECK(room.used() > most / 4);
  held.unlock();
  CHECK(test::eventually([&] { return answered == asked; }));
  CHECK(refused > 0);
  CHECK(refused < asked);
  // All has been sent, and there is room again.
  CHECK(test::eventually([&] { return room.used() == 0; }));
  CHECK(handshake::client(w.there, proxy).resolve({"a", 0, limit, handshake::wanted_ranks::one({0, 0, 0})}).get());
}

TEST_CASE("handshake listener: a reader that is idle for ten seconds is disconnected when others need its buffer",
          "[handshake]") {
  // Outlives the systems: the callback of a disconnected request runs when they end.
  std::mutex gate;
  std::atomic<int> answered{0};
  two_systems w;
  w.start_anew(32U << 20U);
  const auto proxy = w.find();
  auto& room = *w.node->services().outgoing;
  // Little of the budget is left beside it, however few replies fit and however many of them are read.
  constexpr std::uint64_t elsewhere = 17U << 20U;
  const auto claim = room.take(elsewhere);
  std::unique_lock held(gate);
  const auto answer = [&](const result<handshake_fetch_reply>&) {
    // The first one that comes stops the thread that reads for this process.
    ++answered;
    const std::lock_guard stop(gate);
  };
  constexpr int asked = 50;
  w.send_large_answers(proxy, asked, answer);
  CHECK(test::eventually([&] { return room.refused() > 0; }));
  CHECK(room.is_tight());

  // Another reader is served meanwhile. Each of its requests makes the node look for idle readers. A reply that is
  // being handed to a connection is counted twice for a moment, and a request at that moment gets limit_exceeded.
  system_config options{config::caf_config{}};
  caf::actor_system other{options};
  const auto other_listeners = *listeners::make(other, {});
  auto found = open_directory(w.opener(other, *other_listeners));
  REQUIRE(found.has_value());
  caf::scoped_actor self{other};
  const auto is_listed = [&] {
    bool out = false;
    self->request(*found, limit, handshake_list_request{})
        .receive(
            [&](const handshake_list_reply& y) {
              CHECK(y.engines.size() == 1);
              out = true;
            },
            [&](const caf::error& e) {
              INFO(to_string(from_caf(e)));
              CHECK(from_caf(e).code == errc::limit_exceeded);
            });
    return out;
  };
  CHECK(test::eventually(is_listed));
  CHECK(room.used() > elsewhere);
  const auto is_cut = [&] {
    is_listed();
    return room.used() == elsewhere;
  };
  CHECK(test::eventually(is_cut, std::chrono::milliseconds(50)));
  CHECK(is_listed());
  CHECK(answered < asked);
  held.unlock();
}

namespace {

/// CAF's broker is leaked here, once per system. Most likely it is scheduled while connections close, for up to 2 s:
/// the reference to it then lies in a pipe that the multiplexer does not read any more.
std::unique_ptr<caf::actor_system> make_system_without_leak_check(system_config& options) {
#ifdef __SANITIZE_ADDRESS__
  const __lsan::ScopedDisabler broker_may_leak;
#endif
  return std::make_unique<caf::actor_system>(options);
}

} // namespace

TEST_CASE("listener: an actor system ends although its peer reads nothing", "[handshake]") {
  two_systems w;
  system_config options{config::caf_config{}};
  auto client = make_system_without_leak_check(options);
  auto client_listeners = *listeners::make(*client, {});
  auto found = open_directory(w.opener(*client, *client_listeners));
  REQUIRE(found.has_value());
  const auto in_thread_of = [](caf::actor_system& system, const std::function<void()>& f) {
    std::promise<void> begun;
    auto has_begun = begun.get_future();
    system.middleman().backend().post([f, &begun] {
      begun.set_value();
      f();
    });
    has_begun.wait();
  };
  // As if the node's process were frozen: its socket accepts bytes until its buffer is full.
  std::promise<void> resume;
  in_thread_of(w.here, [resumed = resume.get_future().share()] { resumed.wait(); });
  auto large = rank_of(0);
  large.payload.assign(1U << 20U, 'x');
  {
    caf::scoped_actor self{*client};
    for (int i = 0; i < 4; ++i)
      self->send(*found, large);
  }
  // The connection has the requests before the system ends.
  in_thread_of(*client, [] {});
  found = fail(errc::not_found, "released");
  std::promise<void> done;
  auto in_time = std::async(std::launch::async, [&, ended = done.get_future()] {
    const bool out = ended.wait_for(limit) == std::future_status::ready;
    resume.set_value();
    return out;
  });
  client_listeners.reset();
  client.reset();
  done.set_value();
  CHECK(in_time.get());
}

TEST_CASE("handshake listener: a reply longer than the message limit is refused and its ranks can be read singly",
          "[handshake]") {
  two_systems w;
  w.stop();
  w.node_options.actors.max_message_bytes = 1U << 20U;
  w.start();
  for (std::uint32_t tp = 0; tp < 2; ++tp) {
    auto x = rank_of(tp);
    x.payload.assign(700'000, 'x');
    w.publish(x);
  }
  const auto proxy = w.find();
  std::promise<handshake_change> notified;
  std::atomic<bool> once{false};
  const auto watcher = spawn_actor<listener>(w.there, [&](const handshake_update& x) {
    if (!once.exchange(true))
      notified.set_value(x.changes.at(0));
  });
  caf::scoped_actor self{w.there};
  self->request(proxy, limit, watch_atom_v, std::string("a"), watcher)
      .receive([](std::uint64_t) {}, [](const caf::error& e) { FAIL(to_string(from_caf(e))); });
  auto change = notified.get_future();
  REQUIRE(change.wait_for(limit) == std::future_status::ready);
  const auto news = change.get();
  CHECK(news.now.code == static_cast<std::uint8_t>(errc::out_of_range));
  CHECK(news.now.incarnation == 7);
  handshake::client resolver(w.there, proxy);
  const auto whole = resolver.resolve({"a", 0, limit}).get();
  REQUIRE_FALSE(whole.has_value());
  CHECK(whole.error().code == errc::out_of_range);
  for (std::uint32_t tp = 0; tp < 2; ++tp)
    CHECK(resolver.resolve({"a", 0, limit, handshake::wanted_ranks::one({0, 0, tp})}).get().has_value());
  caf::anon_send_exit(watcher, caf::exit_reason::user_shutdown);
}

} // namespace handshake_proxies_test
