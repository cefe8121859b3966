#pragma once

#include <cstddef>

namespace troupe::http {

/// A zero-initialized buffer for received bytes. Large ones are mapped from the kernel and unmapped at once; from the
/// heap, the memory of bodies of many megabytes would stay with the process, in holes between smaller blocks.
class receive_buffer {
public:
  receive_buffer() = default;
  explicit receive_buffer(std::size_t bytes);
  receive_buffer(receive_buffer&& other) noexcept;
  receive_buffer& operator=(receive_buffer&& other) noexcept;
  ~receive_buffer();

  char* get() const noexcept { return data_; }
  char& operator[](std::size_t i) const noexcept { return data_[i]; }

private:
  char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

} // namespace troupe::http
