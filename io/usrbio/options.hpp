#pragma once

#include "base/clock.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace troupe::io {

/// What the engine "usrbio" needs to know beyond what all engines do.
struct usrbio_options {
  /// 3FS's client library: a path, or a name that the loader finds.
  std::string library = "libhf3fs_api_shared.so";
  /// Where 3FS is mounted; empty: on whatever mount `directory` lies.
  std::string mount_point{};
  /// Where the files lie.
  std::filesystem::path directory{};
  /// Memory in /dev/shm is made known to the daemon in blocks of so many bytes, a multiple of the page size; 0: as one.
  std::uint64_t block_bytes = 0;
  /// How long memory of transfers that a daemon had taken when it died is still held to be its own. Longer than the
  /// daemon's storage client goes on trying, which is 60 s in all.
  duration quarantine = std::chrono::seconds{90};
};

} // namespace troupe::io
