#pragma once

#include "actors/client/directory_dialer.hpp"
#include "actors/node/supervisor/node_listeners.hpp"
#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/ask.hpp"
#include "actors/support/listeners/listeners.hpp"
#include "actors/support/system_config.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/io_support.hpp"

#include <chrono>

namespace troupe::test {

inline constexpr auto two_systems_limit = std::chrono::seconds(60);

inline config::node_config config_in(const std::filesystem::path& directory) {
  auto read = config::parse(R"({"memory": {"bytes": "16 MiB"}})", "test");
  REQUIRE(read.has_value());
  read->data_dir = directory;
  return *read;
}

/// Of systems whose peers stop reading: heartbeats would end their connections.
inline config::caf_config patient() {
  config::caf_config out;
  out.connection_timeout = 2 * two_systems_limit;
  return out;
}

/// A node with its listeners, and the actor system of a client of another process.
struct two_systems {
  two_systems() {
    node_options = config_in(directory.path());
    start();
  }
  ~two_systems() { stop(); }
  two_systems(const two_systems&) = delete;
  two_systems& operator=(const two_systems&) = delete;

  /// Starts with this bound on replies in flight.
  void start_anew(std::uint64_t room) {
    stop();
    node_options.handshake.memory_bytes = room;
    start();
  }
  void start() {
    auto started = start_node(here, node_options);
    INFO((started ? std::string() : started.error().text));
    REQUIRE(started.has_value());
    node = std::move(*started);
    auto open = open_listeners(here, *node, node_options);
    REQUIRE(open.has_value());
    ways_in = std::move(*open);
  }
  void stop() {
    ways_in = {};
    static_cast<void>(node->stop(here, std::chrono::seconds(5)));
    node.reset();
  }

  /// The directory, as a client of another process finds it.
  directory_opener opener() { return opener(there, *client_listeners); }
  directory_opener opener(caf::actor_system& client, const listeners& by) const {
    return directory_of(client, by.dialer(), {ways_in.socket.string(), 0}, two_systems_limit);
  }
  handshake_proxy_actor find() {
    auto found = open_directory(opener());
    INFO((found ? std::string() : found.error().text));
    REQUIRE(found.has_value());
    return *found;
  }
  void publish(const handshake_publish_request& x) {
    caf::scoped_actor self{here};
    self->request(node->services().directory, two_systems_limit, x)
        .receive([](const handshake_reply& y) { CHECK(y.code == 0); },
                 [](const caf::error& e) { FAIL(to_string(from_caf(e))); });
  }

  /// Requests `count` replies of 1 MiB each. No request is answered before all have been sent, so that a reader that
  /// stops at the first reply has sent all its requests.
  template <class Answer>
  void send_large_answers(const handshake_proxy_actor& proxy, int count, const Answer& answer) {
    handshake_fetch_request what;
    what.engine = "a";
    what.wait = two_systems_limit;
    for (int i = 0; i < count; ++i)
      ask<handshake_fetch_reply>(there, proxy, answer, what);
    caf::scoped_actor self{here};
    const auto all_wait = [&] {
      std::uint64_t waiting = 0;
      self->request(node->services().directory, two_systems_limit, stats_atom_v)
          .receive([&](const handshake_stats& x) { waiting = x.waiting; },
                   [](const caf::error& e) { FAIL(to_string(from_caf(e))); });
      return waiting == static_cast<std::uint64_t>(count);
    };
    REQUIRE(eventually(all_wait));
    handshake_publish_request x;
    x.engine = "a";
    x.incarnation = 7;
    x.payload.assign(1U << 20U, 'x');
    x.ttl = std::chrono::hours(1);
    publish(x);
  }

  scratch_directory directory;
  config::node_config node_options;
  system_config here_options{patient()};
  caf::actor_system here{here_options};
  system_config there_options{patient()};
  caf::actor_system there{there_options};
  std::unique_ptr<running_node> node;
  node_listeners ways_in;
  std::unique_ptr<listeners> client_listeners = *listeners::make(there, {});
};

} // namespace troupe::test
