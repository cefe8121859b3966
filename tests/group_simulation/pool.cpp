#include "tests/group_simulation/pool.hpp"

#include <algorithm>

namespace troupe::group_simulation {

block_pool::block_pool(world& w)
    : world_(w), blocks_(w.made.blocks),
      memory_(w.made.workers, std::vector<content>(std::size_t{w.made.blocks} * w.made.page_tokens, 0)) {
  for (block_id i = 1; i < w.made.blocks; ++i)
    free_.push_back(i);
  blocks_[empty_block].users = 1;
}

block_id block_pool::take() {
  const auto out = free_.front();
  free_.erase(free_.begin());
  auto& x = blocks_[out];
  if (x.known_as)
    named_.erase(*x.known_as);
  x = block_record{};
  x.users = 1;
  // As soon as others have it, its bytes are theirs.
  for (std::uint32_t worker = 0; worker < memory_.size(); ++worker)
    for (auto& each : memory(worker, out))
      each = ++last_junk_;
  return out;
}

void block_pool::use(block_id block) {
  if (blocks_[block].users++ == 0)
    std::erase(free_, block);
}

void block_pool::free(block_id block) {
  if (blocks_[block].users == 0)
    return world_.broken("engine", "block " + std::to_string(block) + " is freed twice");
  if (--blocks_[block].users > 0)
    return;
  blocks_[block].loaded_for = 0;
  free_.insert(world_.made.newest_first ? free_.begin() : free_.end(), block);
}

void block_pool::give_name(block_id block, const name& to) {
  if (!blocks_[block].known_as && named_.emplace(to, block).second)
    blocks_[block].known_as = to;
}

std::optional<block_id> block_pool::find(const name& wanted) const {
  const auto i = named_.find(wanted);
  return i == named_.end() ? std::nullopt : std::optional(i->second);
}

std::span<content> block_pool::memory(std::uint32_t worker, block_id block) {
  return std::span(memory_[worker]).subspan(std::size_t{block} * world_.made.page_tokens, world_.made.page_tokens);
}

} // namespace troupe::group_simulation
