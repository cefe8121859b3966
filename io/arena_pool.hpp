#pragma once

#include "io/arena.hpp"
#include "io/extent_shelf.hpp"
#include "io/extent_source.hpp"

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

/// Lends the memory of an arena. Getting memory from the host takes milliseconds for each extent, seconds for many
/// gigabytes, and whoever lends has something better to do: so threads of the pool get all of it, one extent after the
/// other from the moment the pool is made, and what they have got is lent at once.
///
/// Which of them is lent is what `extent_shelf` says.
class arena_pool final : public extent_source {
public:
  /// Not null. `threads`: that get memory, side by side; at least one, or std::system_error.
  explicit arena_pool(std::shared_ptr<arena> memory, std::uint32_t threads = default_threads());
  ~arena_pool() override;

  /// A quarter of the cores, at least 1 and at most 8: more hardly get memory any faster.
  static std::uint32_t default_threads() noexcept;

  using extent_source::lend;
  result<extent> lend(std::optional<numa_node> wish) override;
  bool take_back(std::uint32_t number) override;
  std::uint32_t available() const override;
  extent_counts counts() const override;
  std::string refusal() const override;
  std::span<std::byte> memory() noexcept override { return memory_->bytes(); }
  const arena_facts& info() const noexcept override { return facts_; }
  std::string shared_name() const override { return memory_->shared_name(); }
  bool shared_name_is_there() const noexcept override { return memory_->shared_name_is_there(); }

  /// What the memory is, for the log.
  std::string describe() const { return memory_->describe(); }

private:
  /// What a thread of the pool does.
  void provide(const std::stop_token& stop);

  // Every extent is in exactly one place: lent, on the shelf, in `fresh_`, or in the hands of a thread that gets it
  // from the host. The shelf expects those of the latter two.

  std::shared_ptr<arena> memory_;
  arena_facts facts_;
  mutable std::mutex mutex_;
  /// There is something fresh again, or a pause is over.
  std::condition_variable_any wake_;
  /// By number.
  std::vector<bool> lent_;
  /// Those that can be lent at once.
  extent_shelf shelf_;
  /// Those that were never got from the host, in their order.
  std::deque<std::uint32_t> fresh_;
  extent_counts counts_;
  /// How many threads wait since the host had no memory for them, and what it said last.
  std::uint32_t refused_ = 0;
  std::string refusal_;
  /// Last: they end before anything else does.
  std::vector<std::jthread> threads_;
};

} // namespace troupe::io
