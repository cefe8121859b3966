#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace troupe::io {

/// Zeroed anonymous memory of this process, on huge pages where available. Freed with the object.
class private_memory {
public:
  /// `bytes` is a multiple of the page size. Error: `io_error`.
  static result<private_memory> get(std::uint64_t bytes);

  private_memory() = default;
  private_memory(private_memory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  private_memory& operator=(private_memory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~private_memory();

  std::span<std::byte> bytes() const noexcept { return bytes_; }

private:
  explicit private_memory(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::span<std::byte> bytes_;
};

} // namespace troupe::io
