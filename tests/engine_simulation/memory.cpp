#include "tests/engine_simulation/memory.hpp"

#include <algorithm>

namespace troupe::engine_simulation {

memory::memory(world& w)
    : world_(w), blocks_(w.p.engine.num_blocks), block_tokens_(w.p.engine.block_tokens),
      slots_(std::size_t{w.p.workers()} * blocks_ * block_tokens_), uses_(std::size_t{w.p.workers()} * blocks_),
      streams_(w.p.workers()) {
  for (std::size_t i = 0; i < streams_.size(); ++i)
    streams_[i].event = i + 1;
}

void memory::write_tokens(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                          std::span<const engine::content> contents) {
  const auto& now = at(worker, block);
  if (now.saves > 0)
    world_.fail("P2", "the forward pass of worker " + std::to_string(worker) + " writes block " +
                          std::to_string(block) + ", which is to be copied into the cache");
  if (now.loads > 0)
    world_.fail("P2", "the forward pass of worker " + std::to_string(worker) + " writes block " +
                          std::to_string(block) + ", which is being loaded");
  late_write what{world_.now(), index(worker, block) * block_tokens_ + first, {}};
  for (const auto x : contents)
    what.held.push_back(as_held(worker, x));
  auto& queue = streams_[worker];
  if (const auto most = world_.p.late_writes_max; most > 0) {
    const auto late =
        tick * static_cast<std::int64_t>(world_.draw(dice::forward_delay, worker, ++writes_) % (most + 1));
    what.at = queue.last = std::max(queue.last, world_.now() + late);
  }
  queue.writes.push_back(std::move(what));
  settle(worker);
}

void* memory::written(std::uint32_t worker) {
  if (world_.p.late_writes_max == 0)
    return nullptr;
  auto& by = streams_[worker];
  by.recorded = by.last;
  return &by.event;
}

void memory::settle(std::uint32_t worker) {
  auto& writes = streams_[worker].writes;
  for (; !writes.empty() && writes.front().at <= world_.now(); writes.pop_front())
    std::copy(writes.front().held.begin(), writes.front().held.end(),
              slots_.begin() + static_cast<std::ptrdiff_t>(writes.front().first));
}

bool memory::holds(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                   std::span<const engine::content> contents) {
  settle(worker);
  const auto begin = index(worker, block) * block_tokens_ + first;
  std::vector<engine::content> seen(slots_.begin() + static_cast<std::ptrdiff_t>(begin),
                                    slots_.begin() + static_cast<std::ptrdiff_t>(begin + contents.size()));
  for (const auto& late : streams_[worker].writes)
    for (std::size_t i = 0; i < late.held.size(); ++i)
      if (late.first + i >= begin && late.first + i < begin + seen.size())
        seen[late.first + i - begin] = late.held[i];
  return std::equal(contents.begin(), contents.end(), seen.begin(),
                    [&](auto x, auto held) { return held == as_held(worker, x); });
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

std::span<const engine::content> memory::block(std::uint32_t worker, connector::block_id which) {
  settle(worker);
  return std::span(slots_).subspan(index(worker, which) * block_tokens_, block_tokens_);
}

void memory::scatter(std::uint32_t worker, connector::block_id which, std::span<const engine::content> held) {
  if (at(worker, which).saves > 0)
    world_.fail("P2", "a load of worker " + std::to_string(worker) + " writes block " + std::to_string(which) +
                          ", which is to be copied into the cache");
  settle(worker);
  std::copy(held.begin(), held.end(),
            slots_.begin() + static_cast<std::ptrdiff_t>(index(worker, which) * block_tokens_));
}

} // namespace troupe::engine_simulation
