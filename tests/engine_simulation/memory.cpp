#include "tests/engine_simulation/memory.hpp"

#include <algorithm>

namespace troupe::engine_simulation {

memory::memory(world& w)
    : world_(w), blocks_(w.p.engine.num_blocks), block_tokens_(w.p.engine.block_tokens),
      slots_(std::size_t{w.p.workers()} * blocks_ * block_tokens_), uses_(std::size_t{w.p.workers()} * blocks_) {}

void memory::write_tokens(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                          std::span<const engine::content> contents) {
  const auto& now = at(worker, block);
  if (now.saves > 0)
    world_.fail("P2", "the forward pass of worker " + std::to_string(worker) + " writes block " +
                          std::to_string(block) + ", which is to be copied into the cache");
  if (now.loads > 0)
    world_.fail("P2", "the forward pass of worker " + std::to_string(worker) + " writes block " +
                          std::to_string(block) + ", which is being loaded");
  auto* to = &slots_[index(worker, block) * block_tokens_ + first];
  for (const auto x : contents)
    *to++ = as_held(worker, x);
}

bool memory::holds(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                   std::span<const engine::content> contents) {
  const auto* held = &slots_[index(worker, block) * block_tokens_ + first];
  return std::all_of(contents.begin(), contents.end(), [&](auto x) { return *held++ == as_held(worker, x); });
}

void memory::begin_save(std::uint32_t worker, std::span<const connector::block_id> blocks) {
  for (const auto x : blocks)
    if (x != null_block)
      ++uses_[index(worker, x)].saves;
}

void memory::end_save(std::uint32_t worker, std::span<const connector::block_id> blocks) {
  for (const auto x : blocks)
    if (x != null_block)
      --uses_[index(worker, x)].saves;
}

void memory::begin_load(std::uint32_t worker, std::span<const connector::block_id> blocks) {
  for (const auto x : blocks) {
    if (x == null_block)
      continue;
    if (uses_[index(worker, x)].loads++ > 0)
      world_.fail("P2", "worker " + std::to_string(worker) + " loads block " + std::to_string(x) +
                            ", which is being loaded already");
  }
}

void memory::end_load(std::uint32_t worker, std::span<const connector::block_id> blocks) {
  for (const auto x : blocks)
    if (x != null_block)
      --uses_[index(worker, x)].loads;
}

std::span<const engine::content> memory::block(std::uint32_t worker, connector::block_id which) const {
  return std::span(slots_).subspan(index(worker, which) * block_tokens_, block_tokens_);
}

void memory::scatter(std::uint32_t worker, connector::block_id which, std::span<const engine::content> held) {
  if (at(worker, which).saves > 0)
    world_.fail("P2", "a load of worker " + std::to_string(worker) + " writes block " + std::to_string(which) +
                          ", which is to be copied into the cache");
  std::copy(held.begin(), held.end(),
            slots_.begin() + static_cast<std::ptrdiff_t>(index(worker, which) * block_tokens_));
}

} // namespace troupe::engine_simulation
