#pragma once

#include "base/byte_budget.hpp"
#include "base/error.hpp"

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace troupe {

/// A bound on the memory that several parts of a node may use together. It counts only and allocates nothing. An eighth
/// is reserved for short-lived use: when ranks and keys have used all of their part, readers still get leases.
/// Thread-safe.
class memory_budget {
public:
  explicit memory_budget(std::uint64_t limit) : bytes_(limit) {}

  /// Reserves bytes; must be called before they are allocated. Error: `no_memory`, with a sentence, if that would
  /// exceed the bound; then nothing has changed.
  result<void> take(std::uint64_t bytes, std::string_view what);

  /// Counts bytes that are allocated already, also beyond the limit.
  void take_anyway(std::uint64_t bytes) noexcept { bytes_.take_anyway(bytes); }

  void give_back(std::uint64_t bytes) noexcept { bytes_.give_back(bytes); }

  /// Whether so many more bytes would fit now: beside the part for leases, or in all.
  bool has_room(std::uint64_t bytes) const noexcept { return fits(bytes, lasting_part(limit())); }
  bool has_room_for_leases(std::uint64_t bytes) const noexcept { return fits(bytes, limit()); }

  std::uint64_t limit() const noexcept { return bytes_.limit(); }
  /// The part of a limit for ranks and keys.
  static constexpr std::uint64_t lasting_part(std::uint64_t limit) noexcept { return limit - limit / 8; }
  std::uint64_t used() const noexcept { return bytes_.used(); }

private:
  bool fits(std::uint64_t bytes, std::uint64_t limit) const noexcept {
    const auto taken = used();
    return taken <= limit && bytes <= limit - taken;
  }

  byte_budget bytes_;
};

/// Null means no limit.
using shared_budget = std::shared_ptr<memory_budget>;

/// Bytes of a budget, which are returned by the destructor.
class memory_share {
public:
  memory_share() = default;

  /// Reserves as `memory_budget::take`.
  static result<memory_share> of(const shared_budget& budget, std::uint64_t bytes, std::string_view what);

  memory_share(memory_share&& other) noexcept { swap(other); }
  memory_share& operator=(memory_share&& other) noexcept {
    memory_share(std::move(other)).swap(*this);
    return *this;
  }
  ~memory_share() {
    if (budget_)
      budget_->give_back(bytes_);
  }

  /// A share that follows the size of its owner: `set` may exceed the limit.
  explicit memory_share(shared_budget budget) : budget_(std::move(budget)) {}
  void set(std::uint64_t bytes) noexcept {
    if (!budget_)
      return;
    if (bytes > bytes_)
      budget_->take_anyway(bytes - bytes_);
    else
      budget_->give_back(bytes_ - bytes);
    bytes_ = bytes;
  }

  std::uint64_t bytes() const noexcept { return bytes_; }

private:
  void swap(memory_share& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
  }

  shared_budget budget_;
  std::uint64_t bytes_ = 0;
};

} // namespace troupe
