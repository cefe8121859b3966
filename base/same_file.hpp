#pragma once

#include <sys/stat.h>

namespace troupe {

/// Whether both describe one file, whatever names it has.
inline bool is_same_file(const struct stat& a, const struct stat& b) noexcept {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

} // namespace troupe
