#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe {

/// Memory of an NVIDIA GPU that a program of this project fills and reads, such as the KV cache of a replay. Not
/// optimised for speed. In a build without CUDA, `allocate` returns `unsupported`.
///
/// Different parts may be copied by several threads at once.
class gpu_memory {
public:
  /// One piece of a copy between host and GPU.
  struct piece {
    std::uint64_t offset = 0;
    std::span<std::byte> host;
  };

  /// Allocates memory without zeroing it. Errors: `unsupported` where there is no such GPU, `limit_exceeded` where it
  /// has too little memory.
  static result<gpu_memory> allocate(int device, std::uint64_t bytes);

  gpu_memory(gpu_memory&&) noexcept;
  gpu_memory& operator=(gpu_memory&&) noexcept;
  ~gpu_memory();

  /// An address of the GPU, which the host cannot read.
  std::byte* data() const noexcept;
  std::uint64_t size() const noexcept;

  /// The address of a piece. Error: `out_of_range` where it is not entirely in this memory.
  result<std::byte*> at(const piece& x) const;

  /// Both return when all pieces have arrived. Errors: `out_of_range`, `device_error`.
  result<void> write(std::span<const piece> pieces);
  result<void> read(std::span<const piece> pieces) const;

  /// Sets every byte.
  result<void> fill(std::byte value);

private:
  struct parts;
  explicit gpu_memory(std::unique_ptr<parts> own) noexcept;
  std::unique_ptr<parts> own_;
};

} // namespace troupe
