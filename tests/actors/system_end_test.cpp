#include "actors/support/actor_support.hpp"
#include "actors/support/listeners/listeners.hpp"
#include "actors/support/spawn_with_thread.hpp"
#include "actors/support/system_config.hpp"
#include "base/bound_socket.hpp"
#include "base/local_socket.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/io_support.hpp"

#include <caf/io/all.hpp>

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

/// The end of an actor system, while connections are being made and while handles to actors are kept.

namespace system_end_test {

using namespace troupe;

namespace {

/// The longest that the end may take here. It takes milliseconds; a hang is a failure, after this time.
constexpr auto end_limit = std::chrono::seconds(30);

/// Runs the function in a thread. Where it hangs, so does that thread, and the test goes on.
std::future<void> end_in_background(std::function<void()> what) {
  auto ended = std::make_shared<std::promise<void>>();
  auto out = ended->get_future();
  std::thread([what = std::move(what), ended]() mutable {
    what();
    // What the function owns is part of what has to end.
    what = nullptr;
    ended->set_value();
  }).detach();
  return out;
}

/// An actor system that is ended in another thread, so that a test fails where it hangs.
class ending_system {
public:
  caf::actor_system& operator*() const { return parts_->system; }
  caf::actor_system* operator->() const { return &parts_->system; }

  std::future<void> end() {
    // A thread that has spawned an actor keeps CAF's logger, for which the system waits as well.
    caf::logger::set_current_actor_system(nullptr);
    return end_in_background([parts = std::exchange(parts_, nullptr)]() mutable { parts.reset(); });
  }

private:
  struct parts {
    system_config options{config::caf_config{}};
    caf::actor_system system{options};
  };

  std::shared_ptr<parts> parts_ = std::make_shared<parts>();
};

bool has_ended(const std::future<void>& end) {
  return end.wait_for(end_limit) == std::future_status::ready;
}

using idle_actor = caf::typed_actor<caf::reacts_to<caf::ok_atom>>;

/// Ends with the first message.
class idle : public idle_actor::base {
public:
  explicit idle(caf::actor_config& config) : idle_actor::base(config) {}

protected:
  behavior_type make_behavior() override {
    return {[this](caf::ok_atom) { quit(); }};
  }
};

/// Blocks its thread, for which the actor system waits, until the test lets it go.
class blocked : public idle_actor::base {
public:
  blocked(caf::actor_config& config, std::shared_future<void> until)
      : idle_actor::base(config), until_(std::move(until)) {}

protected:
  behavior_type make_behavior() override {
    return {[this](caf::ok_atom) {
      until_.wait();
      quit();
    }};
  }

private:
  std::shared_future<void> until_;
};

/// Requests a connection, as a link that is shut down meanwhile: the actor system does not wait for the answer.
class caller : public caf::event_based_actor {
public:
  caller(caf::actor_config& config, caf::io::middleman_actor dialer, std::string host, std::uint16_t port,
         std::shared_ptr<std::promise<error>> answer)
      : caf::event_based_actor(config), dialer_(std::move(dialer)), host_(std::move(host)), port_(port),
        answer_(std::move(answer)) {}

  void on_exit() override { dialer_ = nullptr; }

protected:
  caf::behavior make_behavior() override {
    request(std::exchange(dialer_, nullptr), caf::infinite, caf::connect_atom_v, host_, port_)
        .then(
            [this](const caf::node_id&, const caf::strong_actor_ptr&, const std::set<std::string>&) {
              end(error{errc::ok, "connected"});
            },
            [this](const caf::error& e) { end(from_caf(e)); });
    return {[](caf::tick_atom) {}};
  }

private:
  void end(error why) {
    answer_->set_value(std::move(why));
    quit();
  }

  caf::io::middleman_actor dialer_;
  const std::string host_;
  const std::uint16_t port_;
  const std::shared_ptr<std::promise<error>> answer_;
};

std::future<error> dial(const ending_system& system, const listeners& by, const std::string& host, std::uint16_t port) {
  auto answer = std::make_shared<std::promise<error>>();
  auto out = answer->get_future();
  spawn_actor<caller, caf::hidden>(*system, by.dialer(), host, port, std::move(answer));
  return out;
}

unique_descriptor accept_one(int listener) {
  pollfd what{listener, POLLIN, 0};
  REQUIRE(::poll(&what, 1, 60'000) == 1);
  unique_descriptor out(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(out);
  return out;
}

/// The other side of a connection in its handshake: `first` is what it has sent.
void end_during_handshake(const std::string& first) {
  const test::scratch_directory directory;
  auto node = local_listener::open("actors.socket", directory / "node.sock");
  REQUIRE(node.has_value());
  const auto socket = node->take();
  ending_system system;
  auto opened = *listeners::make(*system, {});
  auto answer = dial(system, *opened, (directory / "node.sock").string(), 0);
  const auto connection = accept_one(socket.get());
  if (!first.empty())
    REQUIRE(::send(connection.get(), first.data(), first.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(first.size()));
  // The client's part of the handshake, hence CAF's broker has the connection.
  char byte = 0;
  REQUIRE(::recv(connection.get(), &byte, 1, 0) == 1);
  opened.reset();
  CHECK(has_ended(system.end()));
  REQUIRE(answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
  CHECK(answer.get().code != errc::ok);
}

} // namespace

TEST_CASE("an actor with a thread: its thread ends with it, although a handle to it is kept", "[system_end]") {
  ending_system system;
  auto kept = spawn_with_thread<idle>(*system, thread_name("troupe-test"), "the thread of a test");
  REQUIRE(kept.has_value());
  caf::anon_send(*kept, caf::ok_atom_v);
  const auto end = system.end();
  CHECK(has_ended(end));
  *kept = nullptr;
  REQUIRE(has_ended(end));
}

TEST_CASE("middleman: the broker is released although a message reaches it after its end", "[system_end]") {
  ending_system system;
  // The thread of the connections of the system.
  std::promise<pid_t> number;
  system->middleman().backend().post([&] { number.set_value(::gettid()); });
  const auto thread = std::filesystem::path("/proc/self/task") / std::to_string(number.get_future().get());
  // The system waits for this actor's thread after it has stopped the other one.
  std::promise<void> goes_on;
  caf::actor_config hidden;
  hidden.flags |= caf::abstract_actor::is_hidden_flag;
  auto holds = spawn_with_thread<blocked>(*system, hidden, thread_name("troupe-test"), "the thread of a test",
                                          goes_on.get_future().share());
  REQUIRE(holds.has_value());
  caf::anon_send(*std::exchange(holds, fail(errc::not_found, "released")), caf::ok_atom_v);
  auto broker =
      caf::actor_cast<caf::strong_actor_ptr>(system->middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP")));
  const auto address = caf::actor_cast<caf::actor_addr>(broker);
  const auto end = system.end();
  REQUIRE(test::eventually([&] { return !std::filesystem::exists(thread); }));
  // Like its own message about the next heartbeat: in its mailbox, it would keep its receiver for ever.
  broker->enqueue(broker, caf::make_message_id(), caf::make_message(caf::ok_atom_v), nullptr);
  broker = nullptr;
  goes_on.set_value();
  REQUIRE(has_ended(end));
  CHECK(caf::actor_cast<caf::strong_actor_ptr>(address) == nullptr);
}

TEST_CASE("listeners: an actor system ends while a connection is in its handshake", "[system_end]") {
  end_during_handshake({});
}

TEST_CASE("listeners: an actor system ends while a connection has half of its handshake", "[system_end]") {
  end_during_handshake(std::string(10, '\0'));
}

TEST_CASE("listeners: an actor system ends while a host is being connected", "[system_end]") {
  auto bound = bound_socket::open("actors", "127.0.0.1", 0);
  REQUIRE(bound.has_value());
  REQUIRE(bound->listen());
  const auto port = bound->port();
  const unique_descriptor socket(bound->release());
  ending_system system;
  auto opened = *listeners::make(*system, {});
  auto answer = dial(system, *opened, "127.0.0.1", port);
  // The dialer has connected, and waits for the first bytes.
  const auto connection = accept_one(socket.get());
  opened.reset();
  CHECK(has_ended(system.end()));
  REQUIRE(answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
  CHECK(answer.get().code != errc::ok);
}

} // namespace system_end_test
