#pragma once

#include "tests/engine_simulation/world.hpp"
#include "workload/engine_model/device.hpp"

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace troupe::engine_simulation {

/// The KV cache of all workers, and the transfers that use its blocks at the moment. Property P2 is checked here: a
/// block that is to be copied into the cache is not written, and a block that is being loaded is written by its load
/// only.
///
/// On a GPU, writes of a worker arrive later than they are requested, one after the other, and `written` gives an event
/// behind them: a reader or writer of blocks before the event finds the old content, or is overwritten.
class memory final : public engine::device {
public:
  explicit memory(world& w);

  void write_tokens(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                    std::span<const engine::content> contents) override;
  void* written(std::uint32_t worker) override;
  /// What the forward pass will see, which reads in the order of the worker's stream.
  bool holds(std::uint32_t worker, connector::block_id block, std::uint32_t first,
             std::span<const engine::content> contents) override;

  /// As tasks carry the event; 0 for none.
  static std::uint64_t number_of(const void* event) noexcept {
    return event != nullptr ? *static_cast<const std::uint64_t*>(event) : 0;
  }
  /// When the event of that number will have happened, as it was recorded last.
  timestamp happens_at(std::uint64_t event) const { return event == 0 ? timestamp{} : streams_[event - 1].recorded; }

  /// A worker's KV of these tokens: workers of different ranks hold different parts.
  engine::content as_held(std::uint32_t worker, engine::content x) const noexcept {
    return x ^ (worker / world_.p.workers_per_rank + 1) * 0x9e3779b97f4a7c15ULL;
  }

  /// A save of these blocks is handed on; it is copied, or will not be published any more.
  void begin_save(std::uint32_t worker, std::span<const connector::block_id> blocks);
  void end_save(std::uint32_t worker, std::span<const connector::block_id> blocks);
  void begin_load(std::uint32_t worker, std::span<const connector::block_id> blocks);
  void end_load(std::uint32_t worker, std::span<const connector::block_id> blocks);
  bool is_loading(std::uint32_t worker, connector::block_id block) const { return at(worker, block).loads > 0; }

  /// The copy engine's part: whole blocks, as they are held.
  std::span<const engine::content> block(std::uint32_t worker, connector::block_id which);
  void scatter(std::uint32_t worker, connector::block_id which, std::span<const engine::content> held);

private:
  struct use {
    std::uint16_t saves = 0;
    std::uint16_t loads = 0;
  };

  struct late_write {
    timestamp at;
    std::size_t first;
    std::vector<engine::content> held;
  };
  /// A worker's stream.
  struct stream {
    std::uint64_t event = 0;
    timestamp last;
    timestamp recorded;
    std::deque<late_write> writes;
  };

  /// Applies all writes that are due by now.
  void settle(std::uint32_t worker);

  std::size_t index(std::uint32_t worker, connector::block_id block) const noexcept {
    return std::size_t{worker} * blocks_ + block;
  }
  const use& at(std::uint32_t worker, connector::block_id block) const { return uses_[index(worker, block)]; }

  world& world_;
  std::size_t blocks_;
  std::size_t block_tokens_;
  std::vector<engine::content> slots_;
  std::vector<use> uses_;
  std::vector<stream> streams_;
  std::uint64_t writes_ = 0;
};

} // namespace troupe::engine_simulation
