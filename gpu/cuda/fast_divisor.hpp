#pragma once

#include "io/page_checksum.hpp"

#include <cstdint>

namespace troupe::cuda {

/// Division by a number that is known before a kernel starts, implemented as a multiplication: an integer division
/// takes a GPU some twenty instructions, and addresses need one for every word.
///
/// Exact for dividends below 2^31 (Granlund and Montgomery, "Division by invariant integers using multiplication").
class fast_divisor {
public:
  fast_divisor() = default;

  explicit fast_divisor(std::uint32_t divisor) noexcept : divisor_(divisor) {
    if (divisor == 1)
      return;
    while (shift_ < 31 && (std::uint64_t{1} << shift_) < divisor)
      ++shift_;
    multiplier_ = static_cast<std::uint32_t>(((std::uint64_t{1} << (31U + shift_)) + divisor - 1) / divisor);
    --shift_;
  }

  TROUPE_HOST_DEVICE std::uint32_t value() const noexcept { return divisor_; }

  TROUPE_HOST_DEVICE std::uint32_t divide(std::uint32_t dividend) const noexcept {
    if (multiplier_ == 0)
      return dividend;
    return static_cast<std::uint32_t>((std::uint64_t{dividend} * multiplier_) >> 32U) >> shift_;
  }

private:
  std::uint32_t divisor_ = 1;
  /// 0 for the divisor 1.
  std::uint32_t multiplier_ = 0;
  std::uint32_t shift_ = 0;
};

} // namespace troupe::cuda
