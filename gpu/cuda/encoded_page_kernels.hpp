#pragma once

#include "gpu/cuda/page_kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

/// The kernels for encoded pages whose tiles are those of the encoding (`page_plan::codec_tiles`): pages are encoded
/// while they are gathered, and decoded while they are scattered, and never lie in the memory of the GPU as they are.
/// docs/page-mover.md explains them.
///
/// No function waits: each puts work into a stream. In all of them `launch::plan` has the bytes of a page as it is.

namespace troupe::cuda {

/// What a launch for encoded pages has beside the `launch`, all in memory that the device reaches.
struct encoded_launch {
  /// The first page in staging memory, and the distance to the next one.
  std::byte* staged = nullptr;
  std::uint64_t staged_stride = 0;
  /// One for each page, which the host reads, and has set to 0. 1: a page without an encoding, or, of a check or
  /// scatter, one that no encoder wrote.
  std::uint32_t* refused = nullptr;
  /// Gather: `codec::cuda::encode_scratch_bytes` of memory, used by one launch at a time.
  std::byte* scratch = nullptr;
};

/// Gathers blocks into encoded pages at `page_job::page`, in staging memory or in that of the host, with their
/// checksums into `sums`. The bytes of a refused page are unspecified.
cudaError_t launch_encoded_gather(const launch& what, const encoded_launch& more, cudaStream_t stream);

/// Computes the checksums of encoded pages in device memory into `sums`, and sets `verdicts`: 0 where a page has the
/// expected one, if it is checked, and is one that an encoder can have written.
cudaError_t launch_encoded_check(const launch& what, const encoded_launch& more, cudaStream_t stream);

/// The same for pages in host memory, which are copied to device memory at the same time.
cudaError_t launch_encoded_fetch(const launch& what, const encoded_launch& more, cudaStream_t stream);

/// Decodes pages into blocks, where the verdict is 0.
cudaError_t launch_encoded_scatter(const launch& what, const encoded_launch& more, cudaStream_t stream);

} // namespace troupe::cuda
