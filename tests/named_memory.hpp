#pragma once

#include "tests/cannot.hpp"

#include <cstddef>
#include <fcntl.h>
#include <span>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace troupe::test {

/// Memory in a file of /dev/shm, which goes with it.
class named_memory {
public:
  explicit named_memory(std::size_t size)
      : name_("/troupe-test-" + std::to_string(::getpid()) + "-" + std::to_string(next_++)), size_(size) {
    ::shm_unlink(name_.c_str()); // left by a test that was killed, whose number this process has now
    file_ = ::shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(size)) != 0)
      cannot("make a file in /dev/shm");
    void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (at == MAP_FAILED)
      cannot("map a file of /dev/shm");
    data_ = static_cast<std::byte*>(at);
  }
  named_memory(const named_memory&) = delete;
  named_memory& operator=(const named_memory&) = delete;
  ~named_memory() {
    ::munmap(data_, size_);
    ::close(file_);
    ::shm_unlink(name_.c_str());
  }

  std::span<std::byte> bytes() const { return {data_, size_}; }
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// As shm_open takes it.
  const std::string& name() const { return name_; }
  std::string path() const { return "/dev/shm" + name_; }
  int descriptor() const { return file_; }

private:
  static inline int next_ = 0;

  std::string name_;
  std::size_t size_;
  int file_ = -1;
  std::byte* data_ = nullptr;
};

} // namespace troupe::test
