#pragma once

#include "actors/cluster/peer_network.hpp"
#include "actors/support/listeners/listeners.hpp"
#include "actors/support/system_config.hpp"
#include "base/serial_executor.hpp"
#include "config/node_config.hpp"

#include <memory>
#include <vector>

namespace troupe::cluster {

/// The network that ships: an actor system of its own, sockets, a thread for calls that block, and one that resolves
/// names.
///
/// Towards other nodes it acts as a separate process, with connections and a name of its own. Two nodes that are each
/// other's clients would otherwise have two connections between the same two names, which CAF takes for one.
class live_network final : public peer_network {
public:
  /// Starts the threads. `node`: the actor system of this node, in which clients of its own are. `io_error` where no
  /// more threads can be created.
  static result<std::shared_ptr<live_network>> make(caf::actor_system& node, const config::node_config& options);
  /// Leaves all nodes. The actor that uses the network has to have ended.
  ~live_network() override;

  caf::actor_system& system() override { return *outside_; }
  result<void> connect(line_order order, std::function<void(result<connected_peer>)> then) override;
  void end_dialer(caf::io::middleman_actor which) override;
  result<void> open(client_order order, std::function<void(result<opened_client>)> then) override;
  void close(opened_client client) override;
  bool has_resolver() const override { return resolver_ != nullptr; }
  result<void> resolve(std::vector<config::cluster_seed> names, std::function<void(seeds_resolved)> then) override;
  void close(std::shared_ptr<etcd_channel> channel, std::optional<etcd_request> last) override;

private:
  struct executors {
    std::unique_ptr<serial_executor> opener;
    std::unique_ptr<serial_executor> resolver{};
  };
  live_network(caf::actor_system& node, const config::node_config& options, executors threads);

  result<caf::io::middleman_actor> make_dialer();
  /// Has the opener run a call that may block, unless it is ending when the turn of the call comes. The error of a full
  /// queue is that of an attempt that failed.
  result<void> open_later(serial_executor::task what);
  /// Has the opener run a call that may block, also when it is ending.
  void close_later(serial_executor::task what);

  caf::actor_system& node_;
  const listener_options how_;
  system_config config_;
  std::unique_ptr<caf::actor_system> outside_;
  /// One for each dialer. Only the opener's thread uses them, and the destructor, which runs when that has ended.
  std::vector<std::unique_ptr<listeners>> listeners_;
  std::unique_ptr<serial_executor> opener_;
  std::unique_ptr<serial_executor> resolver_;
};

} // namespace troupe::cluster
