#pragma once

#include <cstddef>

namespace troupe::http {

/// Memory for bytes that arrive, all zero at first. Large ones come from the kernel and go back to it at once; through
/// the heap, what bodies of many megabytes needed would stay with the process, in holes between smaller things.
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
