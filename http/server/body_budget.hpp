#pragma once

#include <atomic>
#include <cstdint>

namespace troupe::http {

/// A limit on memory that all connections of a server share. Thread-safe.
class body_budget {
public:
  explicit body_budget(std::uint64_t most) noexcept : most_(most) {}

  /// All or nothing.
  bool take(std::uint64_t bytes) noexcept {
    auto used = used_.load(std::memory_order_relaxed);
    do
      if (bytes > most_ - used)
        return false;
    while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }
  void give_back(std::uint64_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  std::uint64_t used() const noexcept { return used_.load(std::memory_order_relaxed); }
  /// So much is used that connections should not keep spare memory.
  bool is_tight() const noexcept { return used() > most_ / 2; }

private:
  const std::uint64_t most_;
  std::atomic<std::uint64_t> used_{0};
};

/// Returns the taken bytes to the budget in its destructor.
class body_claim {
public:
  /// `bytes` were taken from `budget`.
  body_claim(body_budget& budget, std::uint64_t bytes) noexcept : budget_(budget), bytes_(bytes) {}
  body_claim(const body_claim&) = delete;
  body_claim& operator=(const body_claim&) = delete;
  ~body_claim() { budget_.give_back(bytes_); }

private:
  body_budget& budget_;
  const std::uint64_t bytes_;
};

} // namespace troupe::http
