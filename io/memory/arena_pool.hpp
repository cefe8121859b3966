#pragma once

#include "io/memory/arena.hpp"
#include "io/memory/extent_free_list.hpp"
#include "io/memory/extent_source.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace troupe::io {

/// A source of extents from the memory of an arena. Allocating memory takes milliseconds for each extent, and seconds
/// for many gigabytes, which is too long for the caller of `assign`. Threads of the pool therefore allocate all extents
/// one after the other, from the construction of the pool on; each can be assigned as soon as it has memory.
///
/// `extent_free_list` chooses which of them is assigned.
class arena_pool final : public extent_source {
public:
  /// `memory` is not null. `threads` allocate side by side; throws std::system_error if not even one can be started.
  explicit arena_pool(std::shared_ptr<arena> memory, std::uint32_t threads = default_threads());
  ~arena_pool() override;

  /// A quarter of the cores, at least 1 and at most 8: more threads hardly allocate any faster.
  static std::uint32_t default_threads() noexcept;

  using extent_source::assign;
  result<extent> assign(std::optional<numa_node> wish) override;
  bool take_back(std::uint32_t number) override;
  std::uint32_t available() const override;
  extent_counts counts() const override;
  std::string refusal() const override;
  std::span<std::byte> memory() noexcept override { return memory_->bytes(); }
  const arena_facts& info() const noexcept override { return facts_; }
  std::string shared_name() const override { return memory_->shared_name(); }
  bool shared_name_is_there() const noexcept override { return memory_->shared_name_is_there(); }

  /// A description of the memory for the log.
  std::string describe() const { return memory_->describe(); }

private:
  /// The body of a thread of the pool.
  void provide(const std::stop_token& stop);

  // Every extent is in exactly one place: assigned, on the free list, in `fresh_`, or in a thread that allocates it.
  // The free list expects those of the latter two.

  std::shared_ptr<arena> memory_;
  arena_facts facts_;
  mutable std::mutex mutex_;
  /// There is a fresh extent again, or a pause has ended.
  std::condition_variable_any wake_;
  /// Whether each extent is assigned, by number.
  std::vector<bool> assigned_;
  /// The extents that can be assigned at once.
  extent_free_list free_list_;
  /// The extents without memory yet, in their order.
  std::deque<std::uint32_t> fresh_;
  extent_counts counts_;
  /// How many threads pause after a failed allocation, and the last error.
  std::uint32_t refused_ = 0;
  std::string refusal_;
  /// The last member, so that the threads end before anything else is destroyed.
  std::vector<std::jthread> threads_;
};

} // namespace troupe::io
