#include "workload/engine_model/block_pool.hpp"

namespace troupe::engine {

block_pool::block_pool(std::uint32_t blocks) : blocks_(blocks == 0 ? 1 : blocks) {
  blocks_[0].references = 1;
  for (block_id i = 1; i < blocks_.size(); ++i) {
    blocks_[i].references = 1;
    release(i);
  }
}

std::optional<block_pool::block_id> block_pool::find(content hash) const {
  const auto i = by_hash_.find(hash);
  if (i == by_hash_.end())
    return std::nullopt;
  return i->second;
}

void block_pool::take_out(block_id block) {
  auto& x = blocks_[block];
  (x.before == none ? least_recent_ : blocks_[x.before].after) = x.after;
  (x.after == none ? most_recent_ : blocks_[x.after].before) = x.before;
  x.before = x.after = none;
  --free_;
}

void block_pool::touch(block_id block) {
  if (blocks_[block].references++ == 0)
    take_out(block);
}

block_pool::block_id block_pool::allocate() {
  const auto block = least_recent_;
  take_out(block);
  forget(block);
  blocks_[block].references = 1;
  return block;
}

void block_pool::release(block_id block) {
  auto& x = blocks_[block];
  if (--x.references > 0)
    return;
  x.before = most_recent_;
  (most_recent_ == none ? least_recent_ : blocks_[most_recent_].after) = block;
  most_recent_ = block;
  ++free_;
}

void block_pool::cache(block_id block, content hash) {
  auto& x = blocks_[block];
  if (x.cached)
    return;
  x.cached = true;
  x.hash = hash;
  const auto [first, is_new] = by_hash_.try_emplace(hash, block);
  if (is_new)
    return;
  auto last = first->second;
  while (blocks_[last].twin != none)
    last = blocks_[last].twin;
  blocks_[last].twin = block;
}

void block_pool::forget(block_id block) {
  auto& x = blocks_[block];
  if (!x.cached)
    return;
  const auto first = by_hash_.find(x.hash);
  if (first->second != block) {
    auto before = first->second;
    while (blocks_[before].twin != block)
      before = blocks_[before].twin;
    blocks_[before].twin = x.twin;
  } else if (x.twin != none)
    first->second = x.twin;
  else
    by_hash_.erase(first);
  x.cached = false;
  x.twin = none;
}

void block_pool::reset_prefix_cache() {
  by_hash_.clear();
  for (auto& x : blocks_) {
    x.cached = false;
    x.twin = none;
  }
}

std::string block_pool::check(std::span<const std::uint32_t> held) const {
  std::uint32_t unheld = 0;
  for (block_id i = 1; i < blocks_.size(); ++i) {
    if (blocks_[i].references != held[i])
      return "block " + std::to_string(i) + " is held by " + std::to_string(held[i]) + " requests and counts " +
             std::to_string(blocks_[i].references);
    if (held[i] == 0)
      ++unheld;
  }
  if (unheld != free_)
    return std::to_string(unheld) + " blocks have no holder, and " + std::to_string(free_) + " count as free";
  std::uint32_t listed = 0;
  for (auto i = least_recent_; i != none && listed <= free_; i = blocks_[i].after) {
    if (blocks_[i].references != 0)
      return "block " + std::to_string(i) + " is in the free list and held";
    ++listed;
  }
  if (listed != free_)
    return "the length of the free list is not the number of free blocks";
  return {};
}

} // namespace troupe::engine
