#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

/// Lossless compression of BF16 payloads on a GPU: the same bytes as those of codec/page_codec.hpp. Everything a launch
/// names is memory that the device can access and belongs to the caller, who keeps it until the work of the stream is
/// done. The functions return what CUDA reports of the launch, may be called from any thread, and do not wait.

namespace troupe::codec::cuda {

/// Payloads of one length and their encodings, each at a multiple of its stride. Bases and strides are multiples of 16;
/// lengths are those for which `encoded_bytes` has a value.
struct page_batch {
  std::byte* payloads = nullptr;
  std::uint64_t payload_stride = 0;
  std::byte* encoded = nullptr;
  std::uint64_t encoded_stride = 0;
  std::uint64_t payload_bytes = 0;
  /// At most 65,535; with 0 nothing is done.
  std::uint32_t pages = 0;
  /// One number for each page, 0 if it was encoded or decoded, else 1.
  std::uint32_t* verdicts = nullptr;
};

/// The scratch memory for a launch of `encode_pages`, in bytes.
std::uint64_t encode_scratch_bytes(std::uint64_t payload_bytes, std::uint32_t pages) noexcept;

/// Memory that is used by one launch at a time, for payloads of any length.
struct encode_scratch {
  /// One number for each page of a launch; zero before the first launch, and again after each.
  std::uint32_t* progress = nullptr;
  /// At least `encode_scratch_bytes` for the launch, aligned to 16 bytes.
  std::byte* memory = nullptr;
};

/// Encodes the payloads. A page that does not fit has verdict 1, and unspecified bytes.
cudaError_t encode_pages(const page_batch& what, const encode_scratch& scratch, cudaStream_t stream) noexcept;

/// Decodes the pages. One that no encoder wrote, as far as its structure shows it, has verdict 1, and an unspecified
/// payload. Reads and writes within pages and payloads whatever the bytes are.
cudaError_t decode_pages(const page_batch& what, cudaStream_t stream) noexcept;

/// Decodes the pages whose verdict is 0 beforehand, such as those whose checksum was right. One that no encoder wrote
/// has verdict 1 afterwards, and 1 in `reports` too, which is memory that the host reads and has set to 0.
cudaError_t decode_sound_pages(const page_batch& what, std::uint32_t* reports, cudaStream_t stream) noexcept;

} // namespace troupe::codec::cuda
