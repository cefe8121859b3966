#pragma once

#include "base/error.hpp"
#include "gpu/gpu_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe::replay {

/// The memory of one rank's paged KV cache, a tensor for each layer, in host or GPU memory. All of it is poisoned, so
/// that a load that moves nothing is detected.
class kv_tensors {
public:
  static constexpr std::byte poison{0xdb};

  /// Errors: those of `gpu_memory::allocate`; `limit_exceeded` where the system has too little memory.
  static result<kv_tensors> allocate(std::span<const std::uint64_t> layer_bytes, std::optional<int> gpu);

  /// Valid while this object, or the one it was moved to, lives. The host cannot read those on a GPU.
  const std::vector<std::span<std::byte>>& layers() const noexcept { return layers_; }

  /// All layers; null if they are in host memory.
  gpu_memory* gpu() noexcept { return gpu_ ? &*gpu_ : nullptr; }
  const gpu_memory* gpu() const noexcept { return gpu_ ? &*gpu_ : nullptr; }

private:
  struct unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* p) const noexcept;
  };

  result<void> allocate_on_host(std::span<const std::uint64_t> layer_bytes);
  result<void> allocate_on_gpu(std::span<const std::uint64_t> layer_bytes, int gpu);

  std::vector<std::unique_ptr<std::byte, unmap>> host_;
  std::optional<gpu_memory> gpu_;
  std::vector<std::span<std::byte>> layers_;
};

} // namespace troupe::replay
