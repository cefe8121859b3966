#pragma once

#include "actors/support/actor_support.hpp"
#include "config/node_config.hpp"
#include "messages/messages.hpp"

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

namespace troupe {

/// What serves one rank of a namespace of the config.
struct node_rank {
  rank_number rank = 0;
  std::uint64_t slots = 0;
  io_worker_actor worker;
  allocator_actor allocator;
};

/// The actors a node consists of.
struct node_children {
  std::vector<namespace_spec> spaces;
  std::vector<registry_actor> shards;
  /// One per (namespace, rank), with the workers in the same order.
  std::vector<node_rank> ranks;
  /// Parallel to `ranks`: index into `spaces`.
  std::vector<std::size_t> space_of_rank;
  metrics_actor metrics;
  namespaces_actor namespaces;
};

/// The supervisor of a node. Lets clients attach, through the reception, gives each of them handles of its own to what
/// serves it, and tells everybody when one of them dies; watches its children, and ends with an error when one of them
/// dies, because a registry shard or a slab that is gone cannot be replaced while its pages are in use; drains before
/// the node stops.
class node : public node_actor::base {
public:
  node(caf::actor_config& config, std::shared_ptr<const config::node_config> options, node_children children);

  const char* name() const override { return "node"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  struct client {
    caf::actor handle;
    std::string name;
    /// What it has in place of shards and workers; ends with it.
    std::vector<client_shard_actor> shards;
    std::vector<client_worker_actor> workers;
  };

  caf::result<attach_reply> attach(const attach_request& wanted, const caf::actor& link);
  /// Spawns what serves this client alone, and names it in the reply.
  void welcome(client& x, std::size_t space, attach_reply& reply);
  caf::result<void> leave(owner_id owner, const caf::actor& link);
  bool is_child(const caf::actor_addr& who) const;
  void end_fronts(const client& x);
  void client_gone(owner_id owner, const std::string& why);
  void on_down(const caf::down_msg& down);
  caf::result<void> drain();
  caf::result<node_stats> collect();
  /// Asks all children and calls `on_done` once.
  void collect_stats(std::function<void(const result<node_stats>&)> on_done);
  void log_statistics(const node_stats& stats) const;
  owner_id new_owner();

  std::shared_ptr<const config::node_config> options_;
  node_children children_;
  std::unordered_map<owner_id, client> clients_;
  /// Nobody can tell one owner id from another.
  std::random_device entropy_;
  std::vector<caf::response_promise> drains_;
  open_promises counting_;
  std::size_t draining_workers_ = 0;
  bool draining_ = false;
};

} // namespace troupe
