#pragma once

#include "gpu/page_mover.hpp"
#include "io/page_checksum.hpp"
#include "tests/catch.hpp"

#include <array>
#include <csignal>
#include <cstddef>
#include <span>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe::test {

/// Pages in memory that another process writes to all the time, as one does that has mapped it and is broken.
class corrupted_page {
public:
  explicit corrupted_page(std::size_t size)
      : bytes_(
            static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))),
        size_(size) {
    REQUIRE(bytes_ != MAP_FAILED);
    corrupter_ = ::fork();
    REQUIRE(corrupter_ >= 0);
    if (corrupter_ > 0)
      return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    volatile auto* const last = bytes_ + size_ - 1;
    // Without rests it may never see what others write there: a processor reads back its own last write, and the byte
    // never has the right value again.
    for (;; ::usleep(100))
      for (int i = 0; i < 20'000; ++i)
        *last = *last ^ std::byte{1};
  }
  corrupted_page(const corrupted_page&) = delete;
  corrupted_page& operator=(const corrupted_page&) = delete;
  ~corrupted_page() {
    ::kill(corrupter_, SIGKILL);
    ::waitpid(corrupter_, nullptr, 0);
    ::munmap(bytes_, size_);
  }

  std::byte* data() const noexcept { return bytes_; }

private:
  std::byte* bytes_;
  std::size_t size_;
  pid_t corrupter_ = -1;
};

/// Lets the mover gather block 0, which holds `right`, into such a page and scatter it to block 1, until that was found
/// valid often enough. `is_right` checks block 1 each time.
template <class IsRight>
void check_while_corrupted_on(page_mover& mover, std::span<const std::byte> right, IsRight is_right) {
  const corrupted_page page(right.size());
  int sound = 0;
  for (int i = 0; i < 2000 && sound < 300; ++i) {
    // The checksum covers the gathered bytes of the block, not the later contents of the page.
    std::array<block_move, 1> move{{{0, page.data(), right.size()}}};
    REQUIRE(mover.gather(move));
    CHECK(move[0].checksum == io::checksum_of(right));
    move[0].block = 1;
    REQUIRE(mover.scatter(move));
    if (move[0].verdict != errc::ok)
      continue;
    ++sound;
    REQUIRE(is_right());
  }
  CHECK(sound > 0);
}

} // namespace troupe::test
