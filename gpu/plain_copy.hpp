#pragma once

#include "base/error.hpp"

namespace troupe {

/// How fast a GPU and its host copy memory that lies in one piece and is locked: what nothing that moves pages over the
/// bus can exceed. In 10^9 bytes per second.
struct plain_copy_pace {
  double to_device = 0;
  double to_host = 0;
  /// Of both together, when they are under way at once.
  double both = 0;

  friend bool operator==(const plain_copy_pace&, const plain_copy_pace&) = default;
};

/// Measures it, which takes a tenth of a second and half a GiB of the host's memory and of the GPU's. `unsupported`
/// without CUDA; `limit_exceeded` if memory is short; `device_error`.
result<plain_copy_pace> measure_plain_copy(int device);

} // namespace troupe
