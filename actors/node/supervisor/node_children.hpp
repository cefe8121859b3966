#pragma once

#include "base/namespace_spec.hpp"
#include "io/extent_source.hpp"
#include "io/remote_memory.hpp"
#include "messages/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// An actor of a node, as far as its supervisor treats all of them alike: it watches each, ends with an error when one
/// dies, and ends all of them with itself.
struct node_child {
  /// For people.
  std::string name;
  caf::actor handle;
  /// What its death costs, for which the node has to end: nobody could take its place while pages are in use.
  std::string loss;
  /// Is told of each client that is gone: it takes `owner_died_atom`.
  bool serves_clients = false;
  /// Is asked to come to rest before the node ends, and answers when it has: it takes `drain_atom`.
  bool drains = false;
};

/// What serves one rank of a namespace of the config, or of one that a client has made.
struct node_rank {
  /// Index of the namespace.
  std::size_t space = 0;
  rank_number rank = 0;
  std::uint64_t slots = 0;
  io_worker_actor worker;
  allocator_actor allocator;
  /// The worker is told what lookups find.
  bool listens = false;
  /// What other nodes are told, where the storage is shared.
  shared_slab slab{};
};

/// The actors a node consists of. A new one is added here once, and is watched and ended from then on; what the
/// supervisor asks of it besides, it asks of a handle of its own.
class node_children {
public:
  /// Of the config, then those that clients have made. One that was removed keeps its place, without ranks, until
  /// another one gets it.
  std::vector<namespace_spec> spaces;
  /// Makes namespaces; null if nobody does.
  namespaces_actor namespaces;
  /// The memory that pages lie in, which the io workers share. Null only where there are no ranks.
  std::shared_ptr<io::extent_source> extents;
  /// Moves pages between it and clients on other hosts; null if none do.
  std::shared_ptr<io::remote_mover> mover;

  void add(node_child x) { all_.push_back(std::move(x)); }
  void add_shard(const registry_actor& x);
  void add_rank(const node_rank& x);
  /// Of a namespace that a client has made; its index, which is the next one or that of one that was removed.
  void add_made(const served_space& x, std::size_t at);
  /// Its ranks are no children any more.
  void remove_ranks(std::size_t space);
  void add_metrics(const metrics_actor& x);

  /// In the order in which they were added, which is the order in which they end.
  const std::vector<node_child>& all() const noexcept { return all_; }
  const std::vector<registry_actor>& shards() const noexcept { return shards_; }
  /// One per (namespace, rank).
  const std::vector<node_rank>& ranks() const noexcept { return ranks_; }
  const metrics_actor& metrics() const noexcept { return metrics_; }

  /// Null if that is no child.
  const node_child* find(const caf::actor_addr& who) const;

private:
  std::vector<node_child> all_;
  std::vector<registry_actor> shards_;
  std::vector<node_rank> ranks_;
  metrics_actor metrics_;
};

} // namespace troupe
