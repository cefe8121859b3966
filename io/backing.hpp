#pragma once

#include <cstdint>

namespace troupe::io {

/// What reads and writes of an open file come down to.
enum class backing : std::uint8_t {
  /// Transfers by a device, or whatever a pipe or the like does.
  device,
  /// Copies between memory and the kernel's page cache, as long as it has the pages.
  cached_device,
  /// Copies between memory and the page cache, and there is nothing behind it: tmpfs, ramfs.
  memory,
};

/// Of a regular file, by its flags and its file system: tmpfs may take O_DIRECT and ignores it. `device` if unknown.
backing backing_of(int descriptor) noexcept;

} // namespace troupe::io
