#pragma once

#include "actors/cluster/cluster.hpp"
#include "actors/support/listeners/listeners.hpp"
#include "actors/support/system_config.hpp"
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
///
/// Towards other nodes it acts as a separate process, with an actor system, connections and a name of its own. Two
/// nodes that are each other's clients would otherwise have two connections between the same two names, which CAF takes
/// for one.
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
  struct executors {
    std::shared_ptr<serial_executor> opener;
    std::shared_ptr<serial_executor> resolver{};
  };
  cluster_service(caf::actor_system& system, const config::node_config& options, cluster_service_parts node,
                  executors threads);

  caf::actor_system& system_;
  system_config config_;
  std::unique_ptr<caf::actor_system> outside_;
  /// One for each peer, so that an unreachable peer delays no other.
  std::vector<std::unique_ptr<listeners>> listeners_;
  std::shared_ptr<serial_executor> opener_;
  std::shared_ptr<serial_executor> resolver_;
  cluster_actor actor_;
};

} // namespace troupe::cluster
