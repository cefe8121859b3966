#pragma once

#include "actors/cluster/cluster.hpp"
#include "config/node_config.hpp"
#include "messages/messages.hpp"

#include <memory>
#include <vector>

namespace troupe::cluster {

/// What a node has for its cluster.
struct cluster_service_parts {
  node_actor node;
  /// Where a client of this process attaches.
  reception_actor reception;
  /// Those of this node.
  std::vector<registry_actor> shards;
  /// Is notified of unreachable peers.
  std::shared_ptr<node_condition> condition;
  /// The budget for indexes of dead nodes, where storage is shared.
  shared_budget memory = nullptr;
};

/// The service that makes a node part of a cluster. It starts before the node has clients, and ends before the node
/// does.
class cluster_service {
public:
  /// Starts the service. Errors: `io_error` where no more threads can be created or files opened.
  static result<std::unique_ptr<cluster_service>> make(caf::actor_system& system, const config::node_config& options,
                                                       cluster_service_parts node);
  cluster_service(const cluster_service&) = delete;
  cluster_service& operator=(const cluster_service&) = delete;
  /// When this returns, the service no longer accesses the node and sends no more requests to others.
  ~cluster_service();

private:
  cluster_service(caf::actor_system& system, const config::node_config& options, cluster_service_parts node,
                  std::shared_ptr<peer_network> network);

  caf::actor_system& system_;
  std::shared_ptr<peer_network> network_;
  cluster_actor actor_;
};

} // namespace troupe::cluster
