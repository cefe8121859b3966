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
  /// The device and inode of the file.
  dev_t device = 0;
  ino_t inode = 0;
  std::uint64_t bytes = 0;
  /// The address in this process of the first byte of the file, mapped or not.
  std::byte* base = nullptr;
};

/// The file in /dev/shm that contains all of this memory; nothing if there is none, or if it has lost its name.
std::optional<shared_mapping> shared_mapping_of(std::span<const std::byte> memory);

/// Restricts the memory at this address to this user if another user could open it by a name. Returns false if that
/// fails.
bool make_private(const void* memory);

} // namespace troupe::io::usrbio
