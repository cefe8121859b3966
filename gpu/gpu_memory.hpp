#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe {

/// Memory of an NVIDIA GPU that a program of this project fills and looks at itself: the KV cache of a replay, say. Not
/// made to be fast. In a build without CUDA, `allocate` answers `unsupported`.
///
/// Different parts may be copied by several threads at once.
class gpu_memory {
public:
  /// One piece between host and GPU.
  struct piece {
    std::uint64_t offset = 0;
    std::span<std::byte> host;
  };

  /// Not zeroed. Errors: `unsupported` where there is no such GPU, `limit_exceeded` where it has not as much memory.
  static result<gpu_memory> allocate(int device, std::uint64_t bytes);

  gpu_memory(gpu_memory&&) noexcept;
  gpu_memory& operator=(gpu_memory&&) noexcept;
  ~gpu_memory();

  /// An address of the GPU: not for the host to read.
  std::byte* data() const noexcept;
  std::uint64_t size() const noexcept;

  /// Where a piece begins; `out_of_range` where it does not lie in this memory as a whole.
  result<std::byte*> at(const piece& x) const;

  /// Both wait until all pieces have arrived. Errors: `out_of_range`, `device_error`.
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
