#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace troupe::io {

/// Why a file did not get disk space.
struct disk_shortage {
  /// The file, as it is named in messages.
  std::string file;
  std::uint64_t needed_bytes = 0;
  /// ENOSPC, or EDQUOT where a quota is exhausted and not the disk.
  int code = 0;
  /// The free space of the disk; nothing if its file system does not report it.
  std::optional<std::uint64_t> free_bytes{};
  /// How much of it must stay free.
  std::uint64_t spare_bytes = 0;
  /// What to do instead of freeing space: "configure a smaller slab".
  std::string otherwise{};
};

/// The free space of the disk of a directory, for this user; nothing if its file system does not report it, as some
/// network file systems do not.
std::optional<std::uint64_t> free_bytes(const std::filesystem::path& directory);

/// The error `no_space`, with the way out.
error lack_of_disk(const disk_shortage& x);

} // namespace troupe::io
