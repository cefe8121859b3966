#include "io/slab/occupied_slots.hpp"

#include "io/engine/engine_resources.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace troupe::io {

namespace {

/// One part of a file that occupies the disk.
struct occupied_part {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// The parts of a file from an offset on, as many as one call returns.
class part_list {
public:
  /// False where the file system does not support it.
  bool read(int descriptor, std::uint64_t from, std::uint64_t to) {
    std::memset(bytes_.data(), 0, sizeof(fiemap));
    auto& request = map();
    request.fm_start = from;
    request.fm_length = to - from;
    // Pages that are still in the page cache have no blocks before.
    request.fm_flags = FIEMAP_FLAG_SYNC;
    request.fm_extent_count = parts_at_once;
    return ::ioctl(descriptor, FS_IOC_FIEMAP, &request) == 0;
  }
  std::size_t size() { return map().fm_mapped_extents; }
  occupied_part at(std::size_t i) {
    fiemap_extent x{};
    std::memcpy(&x, bytes_.data() + sizeof(fiemap) + i * sizeof x, sizeof x);
    return {x.fe_logical, x.fe_logical + x.fe_length};
  }

private:
  static constexpr std::uint32_t parts_at_once = 512;

  fiemap& map() { return *reinterpret_cast<fiemap*>(bytes_.data()); }

  alignas(fiemap) std::array<std::byte, sizeof(fiemap) + parts_at_once * sizeof(fiemap_extent)> bytes_{};
};

} // namespace

bool can_be_sparse(int descriptor) {
  // It keeps an allocated part as long as any of it is used.
  struct statfs system {};
  if (::fstatfs(descriptor, &system) != 0 || system.f_type == BTRFS_SUPER_MAGIC)
    return false;
  constexpr auto length = static_cast<off_t>(4 * page_alignment);
  constexpr auto half = length / 2;
  const bool trims = ::fallocate(descriptor, 0, 0, length) == 0 && ::fallocate(descriptor, trim_mode, half, half) == 0;
  const auto found = trims ? occupied_slots(descriptor, 2, half) : std::nullopt;
  const bool says = found && (*found)[0] == static_cast<std::uint64_t>(half) && (*found)[1] == 0;
  return ::ftruncate(descriptor, 0) == 0 && says;
}

std::optional<std::vector<std::uint64_t>> occupied_slots(int descriptor, std::uint64_t slots,
                                                         std::uint64_t slot_bytes) {
  std::vector<std::uint64_t> out(slots);
  const auto end = slots * slot_bytes;
  part_list parts;
  for (std::uint64_t from = 0; from < end;) {
    if (!parts.read(descriptor, from, end))
      return std::nullopt;
    if (parts.size() == 0)
      break;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto part = parts.at(i);
      // A part may begin before what was asked for, and end behind it.
      for (auto at = std::max(part.begin, from); at < std::min(part.end, end);) {
        const auto slot = at / slot_bytes;
        const auto next = std::min({(slot + 1) * slot_bytes, part.end, end});
        out[slot] += next - at;
        at = next;
      }
      from = std::max(from, part.end);
    }
  }
  return out;
}

} // namespace troupe::io
