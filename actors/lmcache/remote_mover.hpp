#pragma once

#include "gpu/device_event_table.hpp"
#include "gpu/page_mover.hpp"
#include "gpu/remote_cache.hpp"
#include "gpu/remote_layout.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace troupe {

/// Events of another process, as bytes that its memory understands, by numbers that tasks and orders can name. The
/// entry of each in the table of device events is a number as well, and is never dereferenced. Thread-safe.
class remote_events {
public:
  /// 0 for an event without bytes: nothing has to be waited for.
  std::uint64_t add(std::string event);
  /// Invalidates the number. A copy that has begun continues.
  void remove(std::uint64_t number);

  /// The bytes for an entry of the table.
  std::optional<std::string> find(const void* event) const;

  const device_event_table& table() const noexcept { return table_; }

private:
  mutable std::mutex mutex_;
  device_event_table table_;
  /// By number in the table, and by entry.
  std::map<std::uint64_t, std::uintptr_t> places_;
  std::map<std::uintptr_t, std::string> events_;
  std::uintptr_t last_ = 0;
};

/// Moves pages between the arena and a worker's own memory, for a copy engine. Errors are logged here, and are
/// `cancelled` for the caller: they must not be mistaken for corrupt pages.
class remote_mover final : public page_mover {
public:
  /// `geometry`: of the namespace.
  remote_mover(std::shared_ptr<remote_cache> cache, const remote_layout& layout, const kv_geometry& geometry,
               std::shared_ptr<const remote_events> events);

  const kv_cache_view& cache() const noexcept override { return view_; }
  /// Never fails: if memory cannot be locked, pages are moved anyway, but slower.
  result<void> prepare(std::span<std::byte> memory) override;
  bool preparing_takes_time() const noexcept override { return is_of_gpu_; }
  /// Unlocked together with the cache.
  void forget(std::span<std::byte>) override {
    // nop
  }
  std::optional<error> failure() const override { return std::nullopt; }

private:
  result<void> do_gather(std::span<block_move> moves, const device_events& events) override;
  result<void> do_scatter(std::span<block_move> moves, const device_events& events) override;
  result<void> move(move_direction which, std::span<block_move> moves, const device_events& events);

  std::shared_ptr<remote_cache> cache_;
  kv_cache_view view_;
  bool is_of_gpu_ = false;
  std::shared_ptr<const remote_events> events_;
  /// The cache takes one call of each direction at a time.
  std::mutex gathers_;
  std::mutex scatters_;
  std::mutex preparing_;
  std::map<const std::byte*, std::size_t> prepared_;
};

} // namespace troupe
