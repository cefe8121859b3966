#include <cstddef>
#include <cstdlib>
#include <dirent.h>
#include <dlfcn.h>
#include <string>
#include <string_view>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/// A library for LD_PRELOAD that simulates a hung disk: allocating space for a slab of a client's namespace hangs, and
/// listing directories below TROUPE_HANGS_BELOW hangs once the file TROUPE_HANGS_WHEN exists.

namespace {

bool hangs(int descriptor) {
  char target[4096];
  const auto link = "/proc/self/fd/" + std::to_string(descriptor);
  const auto length = ::readlink(link.c_str(), target, sizeof target);
  return length > 0 && std::string(target, static_cast<std::size_t>(length)).find("/namespaces/") != std::string::npos;
}

bool hangs(const char* path) {
  const auto* const below = std::getenv("TROUPE_HANGS_BELOW");
  const auto* const when = std::getenv("TROUPE_HANGS_WHEN");
  return below != nullptr && when != nullptr && std::string_view(path).starts_with(below) && ::access(when, F_OK) == 0;
}

[[noreturn]] void hang() {
  constexpr char note[] = "the disk hangs\n";
  if (::write(STDERR_FILENO, note, sizeof note - 1) < 0)
    std::abort();
  for (;;)
    ::pause();
}

int give_space(int descriptor, int mode, off_t from, off_t bytes) {
  if (hangs(descriptor))
    hang();
  return static_cast<int>(::syscall(SYS_fallocate, descriptor, mode, from, bytes));
}

} // namespace

extern "C" {
[[gnu::visibility("default")]] DIR* opendir(const char* path) {
  if (hangs(path))
    hang();
  static const auto real = reinterpret_cast<DIR* (*)(const char*)>(::dlsym(RTLD_NEXT, "opendir"));
  return real(path);
}
[[gnu::visibility("default")]] int fallocate(int descriptor, int mode, off_t from, off_t bytes) {
  return give_space(descriptor, mode, from, bytes);
}
[[gnu::visibility("default")]] int fallocate64(int descriptor, int mode, off_t from, off_t bytes) {
  return give_space(descriptor, mode, from, bytes);
}
}
