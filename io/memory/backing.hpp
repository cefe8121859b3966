#pragma once

#include <cstdint>

namespace troupe::io {

/// How reads and writes of an open file are carried out.
enum class backing : std::uint8_t {
  /// Transfers by a device, a pipe or the like.
  device,
  /// Copies between memory and the kernel's page cache, for pages in the cache.
  cached_device,
  /// Copies between memory and the page cache of a file system without a device: tmpfs, ramfs.
  memory,
};

/// The kind of a regular file, by its flags and its file system: tmpfs may accept O_DIRECT and ignores it. `device` if
/// unknown.
backing backing_of(int descriptor) noexcept;

} // namespace troupe::io
