#pragma once

#include "actors/node/supervisor/client_names.hpp"
#include "base/namespace_spec.hpp"
#include "io/memory/extent_source.hpp"
#include "io/memory/remote_memory.hpp"
#include "messages/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// A child actor, with what the supervisor needs to treat all children alike: it watches each of them, ends with an
/// error when one dies, and ends all of them with itself.
struct node_child {
  /// The name for log lines.
  std::string name;
  caf::actor handle;
  /// The effect of its death, because of which the node must end: it cannot be replaced while pages are in use.
  std::string loss;
  /// Notified of each client that disconnects, with `owner_died_atom`.
  bool serves_clients = false;
  /// Drained before the node ends, with `drain_atom`, which it answers when it is drained.
  bool drains = false;
};

/// The actors that serve one rank of a namespace, of the config or created by a client.
struct node_rank {
  /// Index of the namespace.
  std::size_t ns = 0;
  rank_number rank = 0;
  std::uint64_t slots = 0;
  io_worker_actor worker;
  allocator_actor allocator;
  /// The worker is notified of what lookups find.
  bool listens = false;
  /// The description of the slab for other nodes, where the storage is shared.
  shared_slab slab{};
};

/// The actors of a node. A new child is added here once, and is then watched and ended with the others; for all else
/// the supervisor has a typed handle.
class node_children {
public:
  /// The namespaces of the config, then those that clients have created. A removed namespace keeps its index, without
  /// ranks, until another one reuses it.
  std::vector<namespace_spec> served;
  /// Creates namespaces; null where they cannot be created.
  namespaces_actor namespaces;
  /// The memory for pages, shared by the io workers. Null only where there are no ranks.
  std::shared_ptr<io::extent_source> extents;
  /// Moves pages between that memory and clients on other hosts; null if there are no such clients.
  std::shared_ptr<io::remote_mover> mover;
  /// Never null.
  std::shared_ptr<client_names> clients = std::make_shared<client_names>();

  void add(node_child x) { all_.push_back(std::move(x)); }
  void add_shard(const registry_actor& x);
  void add_rank(const node_rank& x);
  /// Adds a namespace that a client has created, at index `at`, which is the next one or that of a removed namespace.
  void add_made(const served_namespace& x, std::size_t at);
  /// Removes the ranks of the namespace from the children.
  void remove_ranks(std::size_t ns);
  void add_metrics(const metrics_actor& x);

  /// The children in the order in which they were added, which is also the order in which they end.
  const std::vector<node_child>& all() const noexcept { return all_; }
  const std::vector<registry_actor>& shards() const noexcept { return shards_; }
  /// One per (namespace, rank).
  const std::vector<node_rank>& ranks() const noexcept { return ranks_; }
  const metrics_actor& metrics() const noexcept { return metrics_; }

  /// Null if the actor is no child.
  const node_child* find(const caf::actor_addr& who) const;

private:
  std::vector<node_child> all_;
  std::vector<registry_actor> shards_;
  std::vector<node_rank> ranks_;
  metrics_actor metrics_;
};

} // namespace troupe
