#pragma once

#include "actors/cluster/cluster.hpp"
#include "actors/support/doors/doors.hpp"
#include "actors/support/system_config.hpp"
#include "config/node_config.hpp"
#include "messages/messages.hpp"

#include <memory>
#include <vector>

namespace troupe::cluster {

/// What makes a node part of a cluster. Begins before the node has clients, and ends before the node does.
///
/// Towards other nodes it is a process of its own: it has an actor system for that, with connections and a name of its
/// own, since two nodes that are each other's clients would otherwise have two connections between the same two names,
/// which CAF takes for one.
class cluster_service {
public:
  /// Has the node know its peers. `reception`: where a client of this process attaches; `shards`: of this node.
  /// `condition` hears of peers that are away. `memory`: for what is known of nodes that are dead, where storage is
  /// shared.
  ///
  /// Errors: `io_error`, where no more threads may be made or files opened.
  static result<std::unique_ptr<cluster_service>> make(caf::actor_system& system, const config::node_config& options,
                                                       const node_actor& node, const reception_actor& reception,
                                                       std::vector<registry_actor> shards,
                                                       std::shared_ptr<node_condition> condition,
                                                       const shared_budget& memory = nullptr);
  cluster_service(const cluster_service&) = delete;
  cluster_service& operator=(const cluster_service&) = delete;
  /// Nothing of it touches the node any more when this returns, nor asks another one.
  ~cluster_service();

private:
  cluster_service(caf::actor_system& system, const config::node_config& options, const node_actor& node,
                  const reception_actor& reception, std::vector<registry_actor> shards,
                  std::shared_ptr<node_condition> condition, const shared_budget& memory);

  caf::actor_system& system_;
  system_config config_;
  std::unique_ptr<caf::actor_system> outside_;
  /// One for each peer: one that is not reached keeps no other waiting.
  std::vector<std::unique_ptr<doors>> doors_;
  std::shared_ptr<tie_opener> opener_;
  cluster_actor actor_;
};

} // namespace troupe::cluster
