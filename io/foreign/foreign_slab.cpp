#include "io/foreign/foreign_slab.hpp"

#include "io/slab/slab_reader.hpp"
#include "io/slab/slab_trailer.hpp"

#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace troupe::io {

namespace {

std::string foreign(const std::filesystem::path& path) {
  return "slab '" + path.string() + "'";
}

/// Switches to O_DIRECT and tests it on the trailer: some file systems accept the flag and refuse the transfers.
bool try_direct_reads(int descriptor, std::uint64_t trailer_offset) {
  const auto flags = ::fcntl(descriptor, F_GETFL);
  if (flags == -1 || ::fcntl(descriptor, F_SETFL, flags | O_DIRECT) != 0)
    return false;
  struct releaser {
    void operator()(void* p) const noexcept { ::free(p); }
  };
  const std::unique_ptr<void, releaser> block(::aligned_alloc(page_alignment, slab_trailer_bytes));
  ssize_t got = -1;
  do {
    got = ::pread(descriptor, block.get(), slab_trailer_bytes, static_cast<off_t>(trailer_offset));
  } while (got == -1 && errno == EINTR);
  if (got == static_cast<ssize_t>(slab_trailer_bytes))
    return true;
  ::fcntl(descriptor, F_SETFL, flags);
  return false;
}

} // namespace

result<foreign_slab> foreign_slab::open(const std::filesystem::path& path, const slab_spec& expected, bool try_direct) {
  // O_NONBLOCK is for a pipe under this name; it has no effect on a regular file.
  unique_descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!opened)
    return errno == ENOENT ? result<foreign_slab>(fail(errc::not_found, "there is no " + foreign(path)))
                           : tl::unexpected(system_error(errno, "cannot open " + foreign(path)));
  auto found = identify_slab(opened.get(), path);
  if (!found)
    return tl::unexpected<error>(found.error());
  const bool same = found->ns == expected.ns && found->rank == expected.rank &&
                    found->slot_bytes == expected.slot_bytes &&
                    (expected.incarnation == 0 || found->incarnation == expected.incarnation);
  if (!same)
    return fail(errc::identity_mismatch,
                foreign(path) + " is not the expected file: it holds " + describe_slab(*found));
  const bool direct = try_direct && try_direct_reads(opened.get(), slab_file_bytes(*found) - slab_trailer_bytes);
  return foreign_slab(std::move(*found), std::move(opened), direct);
}

void foreign_slab::forget(slot_number slot) const noexcept {
  if (!direct_)
    static_cast<void>(::posix_fadvise(descriptor_.get(), static_cast<off_t>(slot * spec_.slot_bytes),
                                      static_cast<off_t>(spec_.slot_bytes), POSIX_FADV_DONTNEED));
}

errc foreign_slab::read_page(const page_identity& wanted, std::span<std::byte> slot_buffer) const {
  if (wanted.where.slot >= spec_.slots || slot_buffer.size() != spec_.slot_bytes)
    return errc::out_of_range;
  forget(wanted.where.slot);
  auto left = slot_buffer;
  auto offset = wanted.where.slot * spec_.slot_bytes;
  while (!left.empty()) {
    const auto got = ::pread(descriptor_.get(), left.data(), left.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return got == 0 ? errc::slab_damaged : errc::io_error;
    left = left.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return verify_page(slot_buffer, wanted);
}

} // namespace troupe::io
