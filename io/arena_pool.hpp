#pragma once

#include "io/arena.hpp"
#include "io/extent_source.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe::io {

/// Lends the memory of an arena. An extent that has come back is lent before one that never was: the host has given its
/// memory already, and clients have registered it with their devices.
///
/// Every extent is in exactly one place: lent, returned, fresh, or in the hands of a `lend` that waits for the host.
class arena_pool final : public extent_source {
public:
  /// Not null.
  explicit arena_pool(std::shared_ptr<arena> memory);

  result<extent> lend() override;
  bool take_back(std::uint32_t number) override;
  std::uint32_t available() const override;
  extent_counts counts() const override;
  std::span<std::byte> memory() noexcept override { return memory_->bytes(); }
  const arena_facts& info() const noexcept override { return facts_; }

  /// What the memory is, for the log.
  std::string describe() const { return memory_->describe(); }

private:
  /// Notes that it is. The mutex is held.
  extent lent(std::uint32_t number);

  std::shared_ptr<arena> memory_;
  arena_facts facts_;
  mutable std::mutex mutex_;
  /// By number.
  std::vector<bool> lent_;
  /// Those that have come back, the last one lent first.
  std::vector<std::uint32_t> returned_;
  /// Those that were never lent, the lowest last.
  std::vector<std::uint32_t> fresh_;
  extent_counts counts_;
};

} // namespace troupe::io
