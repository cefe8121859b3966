#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace troupe::io {

/// Why a file did not get disk space.
struct disk_shortage {
  /// The file, for people.
  std::string file;
  std::uint64_t needed_bytes = 0;
  /// ENOSPC, or EDQUOT where it is a quota that is used up, and not the disk.
  int code = 0;
  /// What the disk has left; nothing if its file system does not say.
  std::optional<std::uint64_t> free_bytes{};
  /// What has to stay free of it.
  std::uint64_t spare_bytes = 0;
  /// What to do other than to make room: "configure a smaller slab".
  std::string otherwise{};
};

/// `no_space`, with the way out.
error lack_of_disk(const disk_shortage& x);

} // namespace troupe::io
