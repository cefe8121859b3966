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

/// vLLM's block pool with its prefix cache: blocks are counted by the requests that hold them, free ones wait in the
/// order in which they will be taken, and keep what they hold until then, so that a request with the same prefix can
/// have them back. Block 0 stands for no block and is never given out.
class block_pool {
public:
  using block_id = connector::block_id;

  /// `blocks` includes block 0.
  explicit block_pool(std::uint32_t blocks);

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(blocks_.size()); }
  /// Blocks that can be given out at all.
  std::uint32_t capacity() const noexcept { return size() - 1; }
  std::uint32_t free_blocks() const noexcept { return free_; }
  std::uint32_t references(block_id block) const noexcept { return blocks_[block].references; }
  /// The block that holds the prefix with this hash; of several, the one that came first.
  std::optional<block_id> find(content hash) const;
  /// One more request holds the block, which may have been free.
  void touch(block_id block);
  /// The free block that was used least recently, which is forgotten by the prefix cache. There must be one.
  block_id allocate();
  /// One request less holds it.
  void release(block_id block);
  /// The block is full and holds the prefix with this hash from now on.
  void cache(block_id block, content hash);
  /// The block holds nothing of use any more.
  void evict(block_id block) { forget(block); }
  /// Forgets all prefixes.
  void reset_prefix_cache();

  /// What contradicts `held`, the number of requests that hold each block; empty if nothing does.
  std::string check(std::span<const std::uint32_t> held) const;

private:
  static constexpr block_id none = ~block_id{0};

  struct entry {
    std::uint32_t references = 0;
    bool cached = false;
    content hash = 0;
    /// Neighbours among free blocks.
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
