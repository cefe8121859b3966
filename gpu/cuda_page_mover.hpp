#pragma once

#include "gpu/page_mover.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// The page mover for KV caches in the memory of an NVIDIA GPU. These functions are there in every build; one without
/// CUDA answers `unsupported`. docs/page-mover.md explains how it works, and why it is as fast as the bus.

namespace troupe {

struct cuda_mover_options {
  /// As CUDA counts the devices that the process sees.
  int device = 0;
  /// See `page_mover::calls_at_once`; at least 1. Each has staging memory of its own.
  std::uint32_t calls_at_once = 2;
  /// Pages go through device memory in parts of at most this size (or one page, if that is larger), so that one part is
  /// copied while the next is gathered. Two parts for each of them and direction.
  std::uint64_t part_bytes = std::uint64_t{32} << 20U;
  /// Lists of up to this many bytes cross the bus without a copy, if the pages lie in prepared memory: the kernel
  /// writes them there, or fetches them from there. Slower on the bus, but without the copy's own latency.
  std::uint64_t direct_bytes = std::uint64_t{4} << 20U;
};

/// What a GPU is called, and its memory in bytes.
struct cuda_device {
  std::string name;
  std::uint64_t memory_bytes = 0;
  /// Of the memory next to it; -1 where the machine does not say or has only one node.
  int numa_node = -1;
};

/// The GPUs of this process. `unsupported`, with the reason, where there is none or Troupe was built without CUDA.
result<std::vector<cuda_device>> cuda_devices();

/// A mover for tensors in the memory of a GPU. Memory given to `prepare` is locked and mapped for the device; pages
/// anywhere else are moved as well, but slower.
///
/// Waits on the calling thread: for short transfers by asking the device again and again, for others asleep. A scatter
/// checks the pages in device memory before it writes the first byte of a block.
///
/// Errors: those of `validate(view)`; `unsupported` where there is no such device; `device_error`.
result<std::unique_ptr<page_mover>> make_cuda_page_mover(kv_cache_view view, const cuda_mover_options& options = {});

} // namespace troupe
