#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <span>
#include <utility>

namespace troupe::cuda {

/// Host memory that is locked and mapped for all GPUs. Several owners may lock the same memory: the first one locks it,
/// and the last one unlocks it. Every thread may use it.
class locked_memory {
public:
  /// Errors: `device_error`; `limit_exceeded` where memory is short. CUDA refuses ranges that overlap without being
  /// equal.
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
