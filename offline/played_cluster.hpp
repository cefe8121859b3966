#pragma once

#include "actors/cluster/learning/shared_learning.hpp"
#include "offline/played_cache.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace troupe::offline {

/// A simulation of the nodes of a cluster that process the keys of requests one after the other: caches with the real
/// rules, which fetch from each other and share reuse statistics, without actors, bytes or clocks.
class played_cluster {
public:
  struct options {
    /// The options of each node; the seed is that of the first.
    played_cache::options node;
    std::size_t nodes = 2;
    /// As `cluster.keep_copies`.
    bool keep_copies = true;
    /// Shards use the statistics of other nodes.
    bool learns = true;
  };

  explicit played_cluster(const options& how);

  /// Plays a request at one of the nodes, in prefix order; returns the number of leading keys that were found there or
  /// fetched.
  std::size_t play(std::size_t node, std::span<const key_digest> keys);

  /// Pages that were fetched from peers.
  std::uint64_t fetched() const noexcept { return fetched_; }

private:
  /// Fetches keys from `first` on that peers have, as a node does after a miss. Returns false if there are none.
  bool wanted_prefix(std::size_t node, std::span<const key_digest> keys, std::size_t first,
                     std::vector<std::size_t>& used);
  void learn(std::size_t node);

  options how_;
  std::vector<std::unique_ptr<played_cache>> nodes_;
  std::vector<cluster::shared_learning> learning_;
  std::uint64_t fetched_ = 0;
};

} // namespace troupe::offline
