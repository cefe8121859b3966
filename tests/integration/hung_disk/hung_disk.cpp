#include <cstddef>
#include <cstdlib>
#include <string>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/// For LD_PRELOAD: a disk that hangs as soon as a slab of a namespace that a client makes is to get space there.

namespace {

bool hangs(int descriptor) {
  char target[4096];
  const auto link = "/proc/self/fd/" + std::to_string(descriptor);
  const auto length = ::readlink(link.c_str(), target, sizeof target);
  return length > 0 && std::string(target, static_cast<std::size_t>(length)).find("/namespaces/") != std::string::npos;
}

int give_space(int descriptor, int mode, off_t from, off_t bytes) {
  if (hangs(descriptor)) {
    constexpr char note[] = "the disk hangs\n";
    if (::write(STDERR_FILENO, note, sizeof note - 1) < 0)
      std::abort();
    for (;;)
      ::pause();
  }
  return static_cast<int>(::syscall(SYS_fallocate, descriptor, mode, from, bytes));
}

} // namespace

extern "C" {
[[gnu::visibility("default")]] int fallocate(int descriptor, int mode, off_t from, off_t bytes) {
  return give_space(descriptor, mode, from, bytes);
}
[[gnu::visibility("default")]] int fallocate64(int descriptor, int mode, off_t from, off_t bytes) {
  return give_space(descriptor, mode, from, bytes);
}
}
