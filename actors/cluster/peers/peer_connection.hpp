#pragma once

#include "actors/client/link/node_address.hpp"
#include "base/clock.hpp"
#include "messages/messages.hpp"

#include <caf/io/middleman_actor.hpp>

#include <functional>

namespace troupe::cluster {

/// An actor that sends hellos to one node and returns its answers.
using peer_connection_actor = caf::typed_actor<caf::replies_to<cluster_hello>::with<cluster_welcome>>;

/// The actor that sends hellos to a peer, and the dialer that connects for it. Each peer has its own, so that an
/// unreachable peer delays no other.
struct connected_peer {
  peer_connection_actor actor{};
  caf::io::middleman_actor dialer{};
};

/// Connects where there is no connection, and detects its end. Every hello is answered within twice `limit`.
class peer_connection : public peer_connection_actor::base {
public:
  /// `on_lost` is called in this actor's thread when the connection has ended.
  peer_connection(caf::actor_config& config, node_address where, caf::io::middleman_actor dialer, duration limit,
                  std::function<void()> on_lost);

  const char* name() const override { return "peer_connection"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  void not_reached(caf::response_promise promise, const std::string& why);
  void send_hello(caf::response_promise promise, const cluster_hello& hello);

  node_address where_;
  caf::io::middleman_actor dialer_;
  duration limit_;
  std::function<void()> on_lost_;
  reception_actor node_;
};

} // namespace troupe::cluster
