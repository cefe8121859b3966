#include "actors/lmcache/remote_mover.hpp"

#include "base/log.hpp"

#include <utility>
#include <variant>

namespace troupe {

// -- events -----------------------------------------------------------------------------------------------------------

std::uint64_t remote_events::add(std::string event) {
  if (event.empty())
    return 0;
  const std::lock_guard guard(mutex_);
  const auto place = ++last_;
  // Not an address: a number instead of a device's handle.
  const auto number = table_.add(reinterpret_cast<void*>(place));
  places_.emplace(number, place);
  events_.emplace(place, std::move(event));
  return number;
}

void remote_events::remove(std::uint64_t number) {
  const std::lock_guard guard(mutex_);
  table_.remove(number);
  if (const auto node = places_.extract(number); !node.empty())
    events_.erase(node.mapped());
}

std::optional<std::string> remote_events::find(const void* event) const {
  const std::lock_guard guard(mutex_);
  const auto known = events_.find(reinterpret_cast<std::uintptr_t>(event));
  return known == events_.end() ? std::nullopt : std::optional(known->second);
}

// -- mover ------------------------------------------------------------------------------------------------------------

remote_mover::remote_mover(std::shared_ptr<remote_cache> cache, const remote_layout& layout,
                           const kv_geometry& geometry, std::shared_ptr<const remote_events> events)
    : cache_(std::move(cache)), events_(std::move(events)) {
  view_.geometry = geometry;
  view_.blocks = layout.blocks;
  view_.blocks_per_page = layout.blocks_per_page;
  is_of_gpu_ = std::holds_alternative<gpu_memory_handle>(layout.memories.front());
}

result<void> remote_mover::prepare(std::span<std::byte> memory) {
  const std::lock_guard guard(preparing_);
  if (!prepared_.emplace(memory.data(), memory.size()).second)
    return {};
  if (auto ok = cache_->prepare(memory); !ok && prepared_.size() == 1)
    log::get("lmcache")->warn("cannot lock memory of the node for a worker's GPU: {}; copies are slower",
                              to_string(ok.error()));
  return {};
}

result<void> remote_mover::do_gather(std::span<block_move> moves, const device_events& events) {
  const std::lock_guard guard(gathers_);
  return move(move_direction::gather, moves, events);
}

result<void> remote_mover::do_scatter(std::span<block_move> moves, const device_events& events) {
  const std::lock_guard guard(scatters_);
  return move(move_direction::scatter, moves, events);
}

result<void> remote_mover::move(move_direction which, std::span<block_move> moves, const device_events& events) {
  std::string event;
  if (events.ready != nullptr) {
    auto known = events_->find(events.ready);
    if (!known)
      return fail(errc::cancelled, "the request of this copy has ended");
    event = std::move(*known);
  }
  auto done = which == move_direction::gather ? cache_->gather(moves, event) : cache_->scatter(moves, event);
  if (done)
    return {};
  log::get("lmcache")->warn("cannot copy blocks of a worker: {}", to_string(done.error()));
  return fail(errc::cancelled, std::move(done.error().text));
}

} // namespace troupe
