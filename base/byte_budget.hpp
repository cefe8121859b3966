#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace troupe {

/// A limit on bytes that several parts of a process use together: memory, disk space, or bytes to be sent. It counts
/// only. Thread-safe; the counter orders no other memory.
class byte_budget {
public:
  explicit byte_budget(std::uint64_t limit) noexcept : limit_(limit) {}
  byte_budget(const byte_budget&) = delete;
  byte_budget& operator=(const byte_budget&) = delete;

  /// Reserves bytes, all or nothing: false, and nothing has changed, if they would exceed the limit.
  bool take(std::uint64_t bytes) noexcept {
    std::uint64_t taken = 0;
    return take_within(limit_, bytes, taken);
  }
  /// The same for a lower limit. `taken` is the number of bytes that were in use when that was decided.
  bool take_within(std::uint64_t most, std::uint64_t bytes, std::uint64_t& taken) noexcept {
    taken = used();
    do
      if (taken > most || bytes > most - taken)
        return false;
    while (!used_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
    return true;
  }
  /// Counts bytes that are in use already, also beyond the limit.
  void take_anyway(std::uint64_t bytes) noexcept { used_.fetch_add(bytes, std::memory_order_relaxed); }

  /// Returns bytes that were taken; never more than that.
  void give_back(std::uint64_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  std::uint64_t limit() const noexcept { return limit_; }
  std::uint64_t used() const noexcept { return used_.load(std::memory_order_relaxed); }
  /// What `take` would grant now; 0 beyond the limit.
  std::uint64_t left() const noexcept { return limit_ - std::min(limit_, used()); }
  /// Whether more than half is used, so that users should keep no spare bytes.
  bool is_tight() const noexcept { return used() > limit_ / 2; }

private:
  const std::uint64_t limit_;
  std::atomic<std::uint64_t> used_{0};
};

/// Returns taken bytes to a budget, which outlives it, in its destructor.
class byte_claim {
public:
  /// `bytes` were taken from `budget`.
  byte_claim(byte_budget& budget, std::uint64_t bytes) noexcept : budget_(budget), bytes_(bytes) {}
  byte_claim(const byte_claim&) = delete;
  byte_claim& operator=(const byte_claim&) = delete;
  ~byte_claim() { budget_.give_back(bytes_); }

private:
  byte_budget& budget_;
  const std::uint64_t bytes_;
};

/// Reserves bytes for as long as the result lives, which keeps the budget; null if they would exceed its limit. What is
/// larger than the whole budget is admitted while nothing else is in use.
inline std::shared_ptr<const void> shared_claim(std::shared_ptr<byte_budget> budget, std::uint64_t bytes) {
  bytes = std::min(bytes, budget->limit());
  if (!budget->take(bytes))
    return nullptr;
  const void* const some = budget.get();
  return {some, [budget = std::move(budget), bytes](const void*) { budget->give_back(bytes); }};
}

} // namespace troupe
