#pragma once

#include "tests/catch.hpp"

#include <csignal>
#include <cstddef>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe::test {

/// Pages in memory that another process writes to all the time, as one does that has mapped it and is broken.
class scribbled_page {
public:
  explicit scribbled_page(std::size_t size)
      : bytes_(
            static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))),
        size_(size) {
    REQUIRE(bytes_ != MAP_FAILED);
    scribbler_ = ::fork();
    REQUIRE(scribbler_ >= 0);
    if (scribbler_ > 0)
      return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    volatile auto* const last = bytes_ + size_ - 1;
    for (;;)
      *last = *last ^ std::byte{1};
  }
  scribbled_page(const scribbled_page&) = delete;
  scribbled_page& operator=(const scribbled_page&) = delete;
  ~scribbled_page() {
    ::kill(scribbler_, SIGKILL);
    ::waitpid(scribbler_, nullptr, 0);
    ::munmap(bytes_, size_);
  }

  std::byte* data() const noexcept { return bytes_; }

private:
  std::byte* bytes_;
  std::size_t size_;
  pid_t scribbler_ = -1;
};

} // namespace troupe::test
