#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>

namespace troupe::io::usrbio {

/// A file of /dev/shm that this process has mapped.
struct shared_mapping {
  /// "/dev/shm/…"
  std::string path;
  /// Of the file.
  dev_t device = 0;
  ino_t inode = 0;
  std::uint64_t bytes = 0;
  /// Where the first byte of the file is, or would be, in this process.
  std::byte* base = nullptr;
};

/// The file in /dev/shm in which all of this memory lies; nothing if it lies elsewhere, or the file has lost its name.
std::optional<shared_mapping> shared_mapping_of(std::span<const std::byte> memory);

/// Whether another user could open the memory at this address by a name: then it is made this user's alone. False if
/// that cannot be done.
bool make_private(const void* memory);

} // namespace troupe::io::usrbio
