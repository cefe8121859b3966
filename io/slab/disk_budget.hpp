#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace troupe::io {

/// A bound on the disk space of several slab files together. It counts only. Thread-safe.
class disk_budget {
public:
  explicit disk_budget(std::uint64_t limit) : limit_(limit) {}
  disk_budget(const disk_budget&) = delete;
  disk_budget& operator=(const disk_budget&) = delete;

  /// Returns false, and changes nothing, if that would exceed the bound.
  bool take(std::uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    if (used_ > limit_ || bytes > limit_ - used_)
      return false;
    used_ += bytes;
    return true;
  }

  void give_back(std::uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    used_ -= std::min(bytes, used_);
  }

  std::uint64_t limit() const noexcept { return limit_; }
  std::uint64_t used() const {
    const std::lock_guard guard(mutex_);
    return used_;
  }
  std::uint64_t left() const {
    const std::lock_guard guard(mutex_);
    return limit_ > used_ ? limit_ - used_ : 0;
  }

private:
  const std::uint64_t limit_;
  mutable std::mutex mutex_;
  std::uint64_t used_ = 0;
};

/// The least growth of a slab file in bytes and in slots, so that the file has few fragments and grows seldom.
inline constexpr std::uint64_t growth_bytes = std::uint64_t{64} << 20U;
inline constexpr std::uint64_t growth_slots = 8;

/// The space that a slab needs besides its slots: records and trailer.
inline constexpr std::uint64_t slab_tail_bytes = std::uint64_t{3} * 4096;

/// The next number of slots of a file that has `there` and may have `most`, when `wanted` more are requested and
/// `bytes_left` of disk space are available; `there` if not even one more fits.
constexpr std::uint64_t next_slots(std::uint64_t there, std::uint64_t most, std::uint64_t wanted,
                                   std::uint64_t slot_bytes, std::uint64_t bytes_left) noexcept {
  const auto step = std::max({wanted, growth_slots, growth_bytes / slot_bytes});
  return there + std::min({step, most - std::min(there, most), bytes_left / slot_bytes});
}

} // namespace troupe::io
