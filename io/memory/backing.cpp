#include "io/memory/backing.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

namespace troupe::io {

backing backing_of(int descriptor) noexcept {
  struct stat status {};
  struct statfs system {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || ::fstatfs(descriptor, &system) != 0)
    return backing::device;
  if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC)
    return backing::memory;
  const auto flags = ::fcntl(descriptor, F_GETFL);
  return flags == -1 || (flags & O_DIRECT) != 0 ? backing::device : backing::cached_device;
}

} // namespace troupe::io
