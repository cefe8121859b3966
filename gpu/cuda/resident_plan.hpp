#pragma once

#include "gpu/cuda/cuda_handles.hpp"
#include "gpu/cuda/page_kernels.hpp"

namespace troupe::cuda {

/// A plan in the memory of the device that was current at its construction.
class resident_plan {
public:
  static result<resident_plan> create(const page_plan& plan);

  /// The plan for launches, valid while this object lives.
  const device_plan& view() const noexcept { return view_; }

private:
  device_plan view_;
  device_memory<layer_plan> layers_;
  device_memory<tile> tiles_;
  device_memory<general_layer> general_;
};

} // namespace troupe::cuda
