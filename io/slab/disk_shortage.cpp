#include "io/slab/disk_shortage.hpp"

#include "base/size_text.hpp"

#include <cerrno>
#include <sys/statvfs.h>

namespace troupe::io {

std::optional<std::uint64_t> free_bytes(const std::filesystem::path& directory) {
  struct statvfs disk {};
  if (::statvfs(directory.c_str(), &disk) != 0 || disk.f_blocks == 0)
    return std::nullopt;
  return std::uint64_t{disk.f_bavail} * disk.f_frsize;
}

error lack_of_disk(const disk_shortage& x) {
  auto text = x.file + " needs " + size_text(x.needed_bytes) + " of disk space, and ";
  if (x.code == EDQUOT) {
    text += "the quota of this user, group or project is exhausted (quota, xfs_quota -x -c report)";
    if (x.free_bytes)
      text += ", although the disk has " + size_text(*x.free_bytes) + " left";
    return {errc::no_space, text + "; raise the quota, or " + x.otherwise};
  }
  text += x.free_bytes ? size_text(*x.free_bytes) + " are free" : std::string("there is too little free space");
  if (x.spare_bytes > 0)
    text += ", of which " + size_text(x.spare_bytes) + " are to stay free (storage.spare_bytes)";
  return {errc::no_space, text + "; free some, or " + x.otherwise};
}

} // namespace troupe::io
