#include "workload/runner/slab_damage.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe::replay {

slab_damage::slab_damage(const std::vector<std::filesystem::path>& slabs) {
  for (const auto& path : slabs)
    files_.emplace_back(::open(path.c_str(), O_RDWR | O_CLOEXEC));
}

bool slab_damage::strike(std::mt19937_64& random) {
  if (files_.empty())
    return false;
  const auto& file = files_[random() % files_.size()];
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || status.st_blocks == 0)
    return false;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const auto offset = static_cast<off_t>(random() % static_cast<std::uint64_t>(status.st_size));
    unsigned char byte = 0;
    // Unwritten parts read as zero.
    if (::pread(file.get(), &byte, 1, offset) != 1 || byte == 0)
      continue;
    byte = static_cast<unsigned char>(~byte);
    return ::pwrite(file.get(), &byte, 1, offset) == 1;
  }
  return false;
}

} // namespace troupe::replay
