#pragma once

#include "gpu/page_mover.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// The page mover for KV caches in the memory of an NVIDIA GPU. These functions exist in every build; without CUDA they
/// return `unsupported`. docs/page-mover.md explains how it works and why it reaches PCIe bandwidth.

namespace troupe {

struct cuda_mover_options {
  /// CUDA's number of the device, among those visible to the process.
  int device = 0;
  /// See `page_mover::calls_at_once`; at least 1. Each call has staging memory of its own.
  std::uint32_t calls_at_once = 2;
  /// Pages pass through device memory in parts of at most this size (or one page, if that is larger), so that one part
  /// is copied while the next is gathered. There are two parts for each concurrent call and direction.
  std::uint64_t part_bytes = std::uint64_t{32} << 20U;
  /// Lists of up to this many bytes cross PCIe without a copy, if the pages are in prepared memory: the kernel accesses
  /// them there. That has less bandwidth, but avoids the latency of a copy.
  std::uint64_t direct_bytes = std::uint64_t{4} << 20U;
  /// Whether a gather encodes pages that are to be encoded, for which it needs staging memory; otherwise it stores them
  /// as they are. A scatter decodes either way.
  bool encodes = true;
};

/// The name of a GPU, and its memory in bytes.
struct cuda_device {
  std::string name;
  std::uint64_t memory_bytes = 0;
  /// The number of the nearest node; -1 where the machine does not report it or has only one.
  int numa_node = -1;
};

/// The GPUs of this process. Error: `unsupported`, with the reason, where there is none or Troupe was built without
/// CUDA.
result<std::vector<cuda_device>> cuda_devices();

/// Makes a mover for tensors in the memory of a GPU. Memory given to `prepare` is locked and mapped for the device;
/// pages elsewhere are moved as well, but slower.
///
/// Calls block their thread: short transfers poll the device, others sleep. A scatter checks the pages in device memory
/// before it writes the first byte of a block.
///
/// Errors: those of `validate(view)`; `unsupported` where there is no such device; `device_error`.
result<std::unique_ptr<page_mover>> make_cuda_page_mover(kv_cache_view view, const cuda_mover_options& options = {});

} // namespace troupe
