#pragma once

#include "base/clock.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace troupe::io {

/// The options of the engine "usrbio" beyond those of all engines.
struct usrbio_options {
  /// 3FS's client library: a path, or a name that the loader finds.
  std::string library = "libhf3fs_api_shared.so";
  /// The mount point of 3FS; empty: the mount that contains `directory`.
  std::string mount_point{};
  /// The directory of the files.
  std::filesystem::path directory{};
  /// Memory in /dev/shm is registered with the daemon in blocks of so many bytes, a multiple of the page size; 0: as
  /// one block.
  std::uint64_t block_bytes = 0;
  /// How long transfer memory of a dead daemon counts as still in use by it. Longer than the daemon's storage client
  /// retries, which is 60 s in all.
  duration quarantine = std::chrono::seconds{90};
};

} // namespace troupe::io
