#pragma once

#include "base/error.hpp"

namespace troupe {

/// The rates at which a GPU and its host copy locked contiguous memory, an upper bound for moving pages over PCIe. In
/// 10^9 bytes per second.
struct plain_copy_pace {
  double to_device = 0;
  double to_host = 0;
  /// The sum of both directions at once.
  double both = 0;

  friend bool operator==(const plain_copy_pace&, const plain_copy_pace&) = default;
};

/// Measures the rates, in a tenth of a second with 0.5 GiB of host memory and of GPU memory. Errors: `unsupported`
/// without CUDA; `limit_exceeded` if memory is short; `device_error`.
result<plain_copy_pace> measure_plain_copy(int device);

} // namespace troupe
