#include "actors/client/directory_dialer.hpp"

#include "actors/client/link/link.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/ask.hpp"

#include <caf/io/all.hpp>

#include <future>
#include <utility>

namespace troupe {

namespace {

using proxy_receiver = std::function<void(result<handshake_proxy_actor>)>;

/// Connects, asks for the directory, and ends. Unlike the middleman's blocking call, its request also ends when the
/// port accepts and sends nothing.
class directory_seeker : public caf::event_based_actor {
public:
  directory_seeker(caf::actor_config& config, caf::io::middleman_actor dialer, node_address where, duration patience,
                   proxy_receiver then)
      : caf::event_based_actor(config), dialer_(std::move(dialer)), where_(std::move(where)), patience_(patience),
        then_(std::move(then)) {}

  const char* name() const override { return "directory_seeker"; }

  void on_exit() override {
    dialer_ = nullptr;
    deliver(fail(errc::shutting_down, "the process is shutting down"));
  }

protected:
  caf::behavior make_behavior() override {
    request(dialer_, patience_, caf::connect_atom_v, where_.host, where_.port)
        .then([this](const caf::node_id&, const caf::strong_actor_ptr& peer,
                     const std::set<std::string>& interfaces) { ask_node(peer, interfaces); },
              [this](const caf::error& e) {
                end(fail(errc::unreachable,
                         "cannot reach a node at " + to_string(where_) + ": " + why_not_reached(e, where_)));
              });
    // The actor stays until it has an answer.
    return {[](caf::tick_atom) {}};
  }

private:
  void ask_node(const caf::strong_actor_ptr& peer, const std::set<std::string>& interfaces) {
    if (!peer || !system().assignable(interfaces, system().message_types<reception_actor>()))
      return end(
          fail(errc::unsupported, to_string(where_) + " is an actor system, but not a Troupe node of this version"));
    request(caf::actor_cast<reception_actor>(peer), patience_, handshake_atom_v)
        .then([this](const handshake_proxy_actor& proxy) { end(proxy); },
              [this](const caf::error& e) { end(tl::unexpected<error>(from_caf(e))); });
  }

  void end(result<handshake_proxy_actor> found) {
    deliver(std::move(found));
    quit();
  }

  void deliver(result<handshake_proxy_actor> found) {
    if (auto then = std::exchange(then_, nullptr))
      then(std::move(found));
  }

  caf::io::middleman_actor dialer_;
  const node_address where_;
  const duration patience_;
  proxy_receiver then_;
};

} // namespace

directory_opener directory_of(caf::actor_system& system, caf::io::middleman_actor dialer, node_address where,
                              duration patience) {
  return [&system, dialer = std::move(dialer), where = std::move(where), patience](proxy_receiver then) {
    spawn_actor<directory_seeker>(system, dialer ? dialer : system.middleman().actor_handle(), where, patience,
                                  std::move(then));
  };
}

directory_opener directory_of(caf::actor_system& system, reception_actor node) {
  return [&system, node = std::move(node)](proxy_receiver then) {
    ask<handshake_proxy_actor>(system, node, std::move(then), handshake_atom_v);
  };
}

result<handshake_proxy_actor> open_directory(const directory_opener& open) {
  const auto promise = std::make_shared<std::promise<result<handshake_proxy_actor>>>();
  auto found = promise->get_future();
  open([promise](result<handshake_proxy_actor> x) { promise->set_value(std::move(x)); });
  return found.get();
}

} // namespace troupe
