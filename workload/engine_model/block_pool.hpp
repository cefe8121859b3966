#pragma once

#include "connector/types.hpp"
#include "workload/engine_model/device.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace troupe::engine {

/// A model of vLLM's block pool with its prefix cache. Blocks are reference-counted by the requests that hold them;
/// free ones are queued in the order of reuse and keep their content until then, so that a request with the same prefix
/// can reuse it. Block 0 means no block and is never allocated.
class block_pool {
public:
  using block_id = connector::block_id;

  /// `blocks` includes block 0.
  explicit block_pool(std::uint32_t blocks);

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(blocks_.size()); }
  /// The number of blocks that can be allocated.
  std::uint32_t capacity() const noexcept { return size() - 1; }
  std::uint32_t free_blocks() const noexcept { return free_; }
  std::uint32_t references(block_id block) const noexcept { return blocks_[block].references; }
  /// The block that holds the prefix with this hash; of several, the first one.
  std::optional<block_id> find(content hash) const;
  /// Adds a holder to the block, which may have been free.
  void touch(block_id block);
  /// Allocates the least recently used free block, which is removed from the prefix cache. There must be one.
  block_id allocate();
  /// Removes a holder.
  void release(block_id block);
  /// Marks the block as full and holding the prefix with this hash.
  void cache(block_id block, content hash);
  /// Removes the block's content from the prefix cache.
  void evict(block_id block) { forget(block); }
  /// Removes all prefixes.
  void reset_prefix_cache();

  /// The contradiction to `held`, the number of requests that hold each block; empty if there is none.
  std::string check(std::span<const std::uint32_t> held) const;

private:
  static constexpr block_id none = ~block_id{0};

  struct entry {
    std::uint32_t references = 0;
    bool cached = false;
    content hash = 0;
    /// The adjacent entries of the free list.
    block_id before = none;
    block_id after = none;
    /// The next block with the same hash.
    block_id twin = none;
  };

  void take_out(block_id block);
  void forget(block_id block);

  std::vector<entry> blocks_;
  std::unordered_map<content, block_id> by_hash_;
  block_id least_recent_ = none;
  block_id most_recent_ = none;
  std::uint32_t free_ = 0;
};

} // namespace troupe::engine
