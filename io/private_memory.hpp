#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace troupe::io {

/// Anonymous memory of this process alone, all zero, on huge pages where they can be had. Given back with the object.
class private_memory {
public:
  /// A multiple of the size of a page. Errors: `io_error`.
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
