#pragma once

#include "actors/node/reception/client_rights.hpp"
#include "actors/node/remote/remote_totals.hpp"
#include "actors/node/remote/remote_worker.hpp"
#include "actors/node/supervisor/node_children.hpp"
#include "config/node_config.hpp"
#include "messages/messages.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace troupe {

/// The actors by which one attached client reaches those of the node, with what they need of it.
struct client_proxies {
  /// What the node has for the proxies of all clients.
  struct node_parts {
    node_actor node;
    const config::node_config& options;
    const node_children& children;
    /// Null where there are no other nodes.
    cluster_actor peers;
    std::shared_ptr<remote_totals> totals;
  };

  struct client_terms {
    /// The process of its link.
    caf::node_id process;
    /// Index of its namespace.
    std::size_t ns = 0;
    /// It cannot map the arena, because it attaches over TCP or from another host.
    bool elsewhere = false;
    /// Another node of the cluster, not an engine.
    bool is_node = false;
  };

  /// Spawns them, and names them in `reply`, which has the owner, the namespace and the limits.
  static client_proxies spawn(caf::actor_system& system, const node_parts& node, const client_terms& client,
                              attach_reply& reply);

  /// Ends the proxies in the name of the node. Not `remotes`: they end the access to the client's memory first.
  void end(caf::local_actor& node) const;

  std::shared_ptr<client_rights> rights{};
  std::vector<client_shard_actor> shards{};
  std::vector<client_worker_actor> workers{};
  /// Null where there are no other nodes, or the client is a node.
  client_cluster_actor cluster{};
  /// Of a client elsewhere: a worker for each rank, and the number of those that have not ended.
  std::vector<remote_worker_actor> remotes{};
  remote_presence presence{};

private:
  void spawn_elsewhere(caf::actor_system& system, const node_parts& node, const client_terms& client,
                       attach_reply& reply);
};

} // namespace troupe
