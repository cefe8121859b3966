#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <span>
#include <utility>

namespace troupe::cuda {

/// Memory of the host that is locked and mapped for all GPUs. Any number of owners may have the same memory locked: it
/// is locked by the first, and until the last of them is gone. Every thread may use it.
class locked_memory {
public:
  /// Errors: `device_error`; `limit_exceeded` where memory is short. Ranges that overlap and are not the same are
  /// refused by CUDA.
  static result<locked_memory> lock(std::span<std::byte> memory);

  locked_memory(locked_memory&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
  locked_memory& operator=(locked_memory&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~locked_memory();

private:
  explicit locked_memory(std::span<std::byte> memory) noexcept : memory_(memory) {}

  std::span<std::byte> memory_;
};

} // namespace troupe::cuda
