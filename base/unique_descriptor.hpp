#pragma once

#include <unistd.h>
#include <utility>

namespace troupe {

/// Owns a file descriptor and closes it.
class unique_descriptor {
public:
  unique_descriptor() = default;
  explicit unique_descriptor(int descriptor) noexcept : descriptor_(descriptor) {}
  unique_descriptor(unique_descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

  unique_descriptor& operator=(unique_descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      descriptor_ = std::exchange(other.descriptor_, -1);
    }
    return *this;
  }

  ~unique_descriptor() { reset(); }

  int get() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }

  /// Passes the descriptor to the caller, who must close it.
  [[nodiscard]] int release() noexcept { return std::exchange(descriptor_, -1); }

  void reset() noexcept {
    if (descriptor_ >= 0)
      ::close(std::exchange(descriptor_, -1));
  }

private:
  int descriptor_ = -1;
};

} // namespace troupe
