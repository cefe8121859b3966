#include "lmcache/worker_devices.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <system_error>

namespace troupe::lmcache {

namespace {

constexpr std::array<std::string_view, 12> harmless{"/dev/null",    "/dev/zero", "/dev/full",    "/dev/random",
                                                    "/dev/urandom", "/dev/tty",  "/dev/ptmx",    "/dev/console",
                                                    "/dev/shm/",    "/dev/pts/", "/dev/mqueue/", "/dev/hugepages/"};

} // namespace

bool is_device_name(std::string_view path) noexcept {
  return path.starts_with("/dev/") &&
         std::ranges::none_of(harmless, [&](std::string_view x) { return path.starts_with(x); });
}

std::optional<bool> has_device_open(std::int32_t process) {
  if (process <= 0)
    return std::nullopt;
  std::error_code error;
  std::filesystem::directory_iterator each("/proc/" + std::to_string(process) + "/fd", error);
  for (; !error && each != std::filesystem::directory_iterator{}; each.increment(error)) {
    std::error_code closed;
    if (const auto to = std::filesystem::read_symlink(each->path(), closed); !closed && is_device_name(to.native()))
      return true;
  }
  return error ? std::nullopt : std::optional(false);
}

} // namespace troupe::lmcache
