#pragma once

#include "actors/cluster/shared_learning.hpp"
#include "offline/played_cache.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace troupe::offline {

/// What the nodes of a cluster do with the keys of requests, one after the other: caches with the rules as they ship,
/// that fetch from each other and learn from each other, without actors, bytes or clocks.
class played_cluster {
public:
  struct options {
    /// Of each node; the seed of the first.
    played_cache::options node;
    std::size_t nodes = 2;
    /// As `cluster.keep_copies`.
    bool keep_copies = true;
    /// Shards learn what those of other nodes have seen.
    bool learns = true;
  };

  explicit played_cluster(const options& how);

  /// A request at one of the nodes, in prefix order; how many leading keys were there, or came from others.
  std::size_t play(std::size_t node, std::span<const key_digest> keys);

  /// Pages that came from others.
  std::uint64_t fetched() const noexcept { return fetched_; }

private:
  /// What others have of the keys from `first` on, as a node asks for it that misses them. False if that is nothing.
  bool bring(std::size_t node, std::span<const key_digest> keys, std::size_t first, std::vector<std::size_t>& used);
  void learn(std::size_t node);

  options how_;
  std::vector<std::unique_ptr<played_cache>> nodes_;
  std::vector<cluster::shared_learning> learning_;
  std::uint64_t fetched_ = 0;
};

} // namespace troupe::offline
