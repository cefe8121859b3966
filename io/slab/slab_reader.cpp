#include "io/slab/slab_reader.hpp"

#include "io/page.hpp"
#include "io/slab/slab_growth.hpp"
#include "io/slab/slab_trailer.hpp"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace troupe::io {

namespace {

std::string in_words(const std::filesystem::path& path) {
  return "slab '" + path.string() + "'";
}

/// Whether the range could be read in full.
bool read_whole(int descriptor, std::span<std::byte> into, std::uint64_t offset) {
  while (!into.empty()) {
    const auto got = ::pread(descriptor, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return true;
}

} // namespace

result<slab_spec> identify_slab(int descriptor, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    return tl::unexpected(system_error(errno, "cannot read " + in_words(path)));
  const auto length = static_cast<std::uint64_t>(status.st_size);
  slab_trailer_block block{};
  if (length < slab_trailer_bytes || !read_whole(descriptor, block, length - slab_trailer_bytes))
    return fail(errc::slab_damaged, in_words(path) + " has no trailer, at " + std::to_string(length) + " bytes");
  auto spec = read_slab_trailer(block);
  if (!spec)
    return fail(errc::slab_damaged, in_words(path) + " has no sound trailer: it was truncated, or is not a slab");
  spec->path = path;
  if (slab_file_bytes(*spec) != length)
    return fail(errc::slab_damaged, in_words(path) + " has " + std::to_string(length) + " bytes, and as " +
                                        describe_slab(*spec) + " it has " + std::to_string(slab_file_bytes(*spec)));
  return std::move(*spec);
}

std::uint64_t granted_slab_bytes(const std::filesystem::path& path) {
  const unique_descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  const auto spec = opened ? identify_slab(opened.get(), path) : fail(errc::not_found, "there is no such file");
  if (!spec || !spec->sparse)
    return 0;
  const auto found = current_growth_record(opened.get(), *spec);
  return (found ? found->record.granted : 0) * spec->slot_bytes + slab_growth::record_bytes + slab_trailer_bytes;
}

result<slab_reader> slab_reader::open(const std::filesystem::path& path) {
  unique_descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!opened)
    return errno == ENOENT ? result<slab_reader>(fail(errc::not_found, "there is no " + in_words(path)))
                           : tl::unexpected(system_error(errno, "cannot open " + in_words(path)));
  if (::flock(opened.get(), LOCK_SH | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return fail(errc::busy, in_words(path) + " is in use by a node; stop it first");
    return fail(errc::unsupported, system_error(errno, "cannot lock " + in_words(path)).text);
  }
  auto spec = identify_slab(opened.get(), path);
  if (!spec)
    return tl::unexpected<error>(spec.error());
  auto slots = spec->slots;
  if (spec->grows) {
    const auto found = current_growth_record(opened.get(), *spec);
    slots = found ? found->record.slots : 0;
  }
  if (slots == 0 && spec->grows)
    return fail(errc::slab_damaged, in_words(path) + " has no sound record of its size");
  return slab_reader(std::move(*spec), slots, std::move(opened));
}

errc slab_reader::read(std::uint64_t slot, std::span<std::byte> into) const {
  if (slot >= slots_ || into.size() != spec_.slot_bytes)
    return errc::out_of_range;
  return read_whole(descriptor_.get(), into, slot * spec_.slot_bytes) ? errc::ok : errc::io_error;
}

void slab_reader::forget(std::uint64_t slot) const noexcept {
  static_cast<void>(::posix_fadvise(descriptor_.get(), static_cast<off_t>(slot * spec_.slot_bytes),
                                    static_cast<off_t>(spec_.slot_bytes), POSIX_FADV_DONTNEED));
}

} // namespace troupe::io
