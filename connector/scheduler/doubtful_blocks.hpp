#pragma once

#include "connector/types.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <unordered_set>

namespace troupe::connector {

/// Tracks blocks of the engine whose content may be wrong because of synchronous loads. A step computes from a load
/// before its result is known, and through the engine's prefix cache so do other requests of the same step and of later
/// ones. Nothing that was computed from such a block may be saved, because it would be found under a valid key.
///
/// A block is in doubt from the load on, or when it is computed from one in doubt. The doubt ends when all loads of its
/// step have succeeded, or when the block is computed again from blocks without doubt.
class doubtful_blocks {
public:
  bool empty() const noexcept { return open_.empty() && bad_.empty(); }
  bool contains(block_id x) const { return open_.contains(x) || bad_.contains(x); }

  /// A load begins; `blocks` are those that it fills and all later ones.
  void load_begins(std::span<const block_id> blocks);

  /// A request runs in this step: it reads the first `read` of its blocks and writes the following ones up to
  /// `written`. Returns how many of its leading blocks are not in doubt after the step.
  std::size_t run(std::span<const block_id> blocks, std::size_t read, std::size_t written);

  /// A load has ended on all workers. `blocks` are all of the request's, if it still has them; the load began at block
  /// `first`, and did not fill block `failed`, if given.
  void load_ended(std::span<const block_id> blocks, std::size_t first, std::optional<std::size_t> failed);

private:
  using set = std::unordered_set<block_id>;

  /// Blocks that depend on loads that have not ended.
  set open_;
  /// Blocks that depend on a failed load.
  set bad_;
  std::size_t under_way_ = 0;
  bool one_failed_ = false;
};

} // namespace troupe::connector
