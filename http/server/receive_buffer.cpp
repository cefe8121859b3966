#include "http/server/receive_buffer.hpp"

#include <new>
#include <sys/mman.h>
#include <utility>

namespace troupe::http {

namespace {

constexpr std::size_t mapped_from = std::size_t{128} * 1024;

} // namespace

receive_buffer::receive_buffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes < mapped_from) {
    data_ = new char[bytes]();
    return;
  }
  auto* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    throw std::bad_alloc{};
  data_ = static_cast<char*>(mapped);
}

receive_buffer::receive_buffer(receive_buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

receive_buffer& receive_buffer::operator=(receive_buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

receive_buffer::~receive_buffer() {
  if (bytes_ >= mapped_from)
    ::munmap(data_, bytes_);
  else
    delete[] data_;
}

} // namespace troupe::http
