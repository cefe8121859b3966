#pragma once

#include "tests/group_simulation/world.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe::group_simulation {

/// The engine's blocks: those of all tables come out of one pool, with reference counts, as in vLLM. A block with a
/// name is also found by it while it is free. With the memory of all workers behind it.
class block_pool {
public:
  explicit block_pool(world& w);

  /// Blocks that can be taken.
  std::uint32_t available() const noexcept { return static_cast<std::uint32_t>(free_.size()); }
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(blocks_.size()); }
  /// A free block, which loses its name and its bytes.
  block_id take();
  void use(block_id block);
  void free(block_id block);
  std::uint32_t users(block_id block) const { return blocks_[block].users; }

  /// What a complete block has: the table, and the prefix at its end.
  using name = std::pair<std::uint32_t, content>;
  void give_name(block_id block, const name& to);
  bool has_name(block_id block) const { return blocks_[block].known_as.has_value(); }
  std::optional<block_id> find(const name& wanted) const;

  /// The request for which a block is being loaded, 0 if it is not.
  std::uint64_t loaded_for(block_id block) const { return blocks_[block].loaded_for; }
  void set_loaded_for(block_id block, std::uint64_t request) { blocks_[block].loaded_for = request; }

  std::span<content> memory(std::uint32_t worker, block_id block);

private:
  struct block_record {
    std::uint32_t users = 0;
    std::optional<name> known_as;
    std::uint64_t loaded_for = 0;
  };

  world& world_;
  std::vector<block_record> blocks_;
  /// In the order in which they are given out.
  std::vector<block_id> free_;
  std::map<name, block_id> named_;
  /// By worker.
  std::vector<std::vector<content>> memory_;
  content last_junk_ = 0;
};

} // namespace troupe::group_simulation
