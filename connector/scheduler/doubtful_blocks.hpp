#pragma once

#include "connector/types.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <unordered_set>

namespace troupe::connector {

/// Blocks of the engine that may not hold what they should, because of synchronous loads. A step computes upon a load
/// before anybody knows how it ended, and by way of the engine's prefix cache other requests of the same step, and of
/// later ones, do so too. Nothing that was computed upon such a block may be saved: it would be found under a right
/// key.
///
/// A block is in doubt from the load, or from being computed upon one in doubt. It is out of doubt when all loads of
/// its step have ended well, or when it is computed anew upon blocks that are in none.
class doubtful_blocks {
public:
  bool empty() const noexcept { return open_.empty() && bad_.empty(); }
  bool contains(block_id x) const { return open_.contains(x) || bad_.contains(x); }

  /// A load begins; `blocks` are those that it fills and all behind them.
  void load_begins(std::span<const block_id> blocks);

  /// A request runs in this step: it reads the first `read` of its blocks and writes those behind them up to `written`.
  /// How many of its leading blocks are in no doubt after the step, all of them if there is none.
  std::size_t run(std::span<const block_id> blocks, std::size_t read, std::size_t written);

  /// A load has ended on all workers. `blocks` are all of the request's, if it has them still; the load began at block
  /// `first`, and did not fill block `failed`, if it says so.
  void load_ended(std::span<const block_id> blocks, std::size_t first, std::optional<std::size_t> failed);

private:
  using set = std::unordered_set<block_id>;

  /// Depend on loads that have not ended.
  set open_;
  /// Depend on one that has failed.
  set bad_;
  std::size_t under_way_ = 0;
  bool one_failed_ = false;
};

} // namespace troupe::connector
