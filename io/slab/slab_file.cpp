#include "io/slab/slab_file.hpp"

#include "base/log.hpp"
#include "base/same_file.hpp"
#include "base/size_text.hpp"
#include "io/page.hpp"
#include "io/slab/disk_shortage.hpp"
#include "io/slab/occupied_slots.hpp"
#include "io/slab/slab_growth.hpp"
#include "io/slab/slab_trailer.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <limits.h>
#include <memory>
#include <optional>
#include <span>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <utility>

namespace troupe::io {

namespace {

namespace fs = std::filesystem;

// Another node that creates or deletes the same slab voids one round; ten in a row are no accident.
constexpr int open_rounds = 10;

std::string quoted(const fs::path& path) {
  return "slab '" + path.string() + "'";
}

template <class Call>
auto without_interrupts(Call call) {
  for (;;) {
    const auto outcome = call();
    if (outcome != -1 || errno != EINTR)
      return outcome;
  }
}

result<void> check(const slab_spec& spec) {
  constexpr auto largest = static_cast<std::uint64_t>(INT64_MAX);
  if (spec.slots == 0 || spec.slot_bytes == 0 || spec.slot_bytes % page_alignment != 0)
    return fail(errc::invalid_argument, quoted(spec.path) + " needs at least one slot, and slots of a multiple of " +
                                            std::to_string(page_alignment) + " bytes, not " + describe_slab(spec));
  if (spec.grows && spec.first_slots > spec.slots)
    return fail(errc::invalid_argument, quoted(spec.path) + " would begin with more slots than it can have: " +
                                            std::to_string(spec.first_slots) + " of " + describe_slab(spec));
  if (spec.slots > (largest - slab_trailer_bytes - slab_growth::record_bytes) / spec.slot_bytes)
    return fail(errc::invalid_argument, quoted(spec.path) + " would be larger than any file: " + describe_slab(spec));
  return {};
}

enum class lock_outcome : std::uint8_t { held, taken_by_other, unsupported };

lock_outcome lock(int descriptor) {
  if (without_interrupts([&] { return ::flock(descriptor, LOCK_EX | LOCK_NB); }) == 0)
    return lock_outcome::held;
  return errno == EWOULDBLOCK ? lock_outcome::taken_by_other : lock_outcome::unsupported;
}

result<void> lock_or_say_why(int descriptor, const fs::path& path) {
  switch (lock(descriptor)) {
  case lock_outcome::held:
    return {};
  case lock_outcome::taken_by_other:
    return fail(errc::busy, quoted(path) + " is in use by another node; stop that node or give this one another "
                                           "data_dir");
  case lock_outcome::unsupported:
    break;
  }
  const auto reason = system_error(errno, "cannot lock " + quoted(path));
  return fail(errc::unsupported, reason.text + "; slabs need a file system with flock");
}

// Whether `path` still names the file of the descriptor: it may have been renamed or deleted before the lock was
// acquired.
bool names(const fs::path& path, int descriptor) {
  struct stat by_path {};
  struct stat by_descriptor {};
  return ::stat(path.c_str(), &by_path) == 0 && ::fstat(descriptor, &by_descriptor) == 0 &&
         is_same_file(by_path, by_descriptor);
}

result<void> write_all(int descriptor, std::span<const std::byte> bytes, std::uint64_t offset, const fs::path& path) {
  while (!bytes.empty()) {
    const auto written = without_interrupts(
        [&] { return ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (written <= 0)
      return tl::unexpected(system_error(written == 0 ? EIO : errno, "cannot write to " + quoted(path)));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

std::optional<slab_spec> read_trailer_at(int descriptor, std::uint64_t offset) {
  slab_trailer_block block{};
  std::size_t done = 0;
  while (done < block.size()) {
    const auto got = without_interrupts([&] {
      return ::pread(descriptor, block.data() + done, block.size() - done, static_cast<off_t>(offset + done));
    });
    if (got <= 0)
      return std::nullopt;
    done += static_cast<std::size_t>(got);
  }
  return read_slab_trailer(block);
}

tl::unexpected<error> no_space(const slab_spec& spec, int code) {
  return tl::unexpected(lack_of_disk({quoted(spec.path), slab_file_bytes(spec), code,
                                      free_bytes(spec.path.parent_path()), 0, "configure a smaller slab"}));
}

// Allocates all the space at once, so that a full disk is an error now and not in the middle of a save.
result<void> allocate(int descriptor, const slab_spec& spec) {
  const auto wanted = slab_file_bytes(spec);
  if (spec.length_only) {
    if (::ftruncate(descriptor, static_cast<off_t>(wanted)) != 0)
      return tl::unexpected(system_error(errno, "cannot set the length of " + quoted(spec.path)));
    return {};
  }
  // Checking first avoids filling the disk, for a moment, for its other users.
  if (const auto free = free_bytes(spec.path.parent_path()); free && *free < wanted)
    return no_space(spec, ENOSPC);
  int code = 0;
  if (without_interrupts([&] { return ::fallocate(descriptor, 0, 0, static_cast<off_t>(wanted)); }) != 0) {
    code = errno;
    // glibc's fallback would write to each block instead.
    if (code == EOPNOTSUPP || code == ENOSYS)
      do {
        code = ::posix_fallocate(descriptor, 0, static_cast<off_t>(wanted));
      } while (code == EINTR);
  }
  if (code == ENOSPC || code == EDQUOT)
    return no_space(spec, code);
  if (code != 0)
    return tl::unexpected(system_error(code, "cannot allocate " + size_text(wanted) + " for " + quoted(spec.path)));
  return {};
}

// After a crash there must be no name without the file, and no file without its bytes.
result<void> sync_directory(const fs::path& directory) {
  unique_descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened || ::fsync(opened.get()) != 0)
    return tl::unexpected(system_error(errno, "cannot sync directory '" + directory.string() + "'"));
  return {};
}

// Returns 0 or an errno: EEXIST if the target has appeared.
int rename_without_replacing(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0)
    return 0;
  if (errno != EINVAL && errno != ENOSYS)
    return errno;
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno; // the lock on the temporary name has to suffice
}

// Allocation takes long, and another node may have taken over the directory meanwhile.
result<void> check_gate(const write_gate& gate, const slab_spec& spec) {
  return gate.check("make " + quoted(spec.path));
}

result<void> fill_new_file(int descriptor, slab_spec& spec, const write_gate& gate) {
  if (auto may = check_gate(gate, spec); !may)
    return may;
  // A crashed creator left this: it was never published, so it has no owner.
  if (::ftruncate(descriptor, 0) != 0)
    return tl::unexpected(system_error(errno, "cannot truncate the unfinished " + quoted(spec.path)));
  spec.sparse = spec.sparse && spec.grows && !spec.length_only && can_be_sparse(descriptor);
  auto allocated = spec.grows ? slab_growth::begin(descriptor, spec) : allocate(descriptor, spec);
  if (!allocated)
    return allocated;
  if (auto may = check_gate(gate, spec); !may)
    return may;
  const auto trailer = make_slab_trailer(spec);
  if (auto written = write_all(descriptor, trailer, slab_file_bytes(spec) - slab_trailer_bytes, spec.path); !written)
    return written;
  if (::fsync(descriptor) != 0)
    return tl::unexpected(system_error(errno, "cannot sync " + quoted(spec.path)));
  return check_gate(gate, spec);
}

// Creates the slab, locked and complete; returns no descriptor if another node was faster and the round is void. The
// temporary name is the same for all creators and locked while in use: only one creates at a time, and the next one
// cleans up after a crash.
result<unique_descriptor> create(slab_spec& spec, const write_gate& gate) {
  if (auto may = check_gate(gate, spec); !may)
    return tl::unexpected(may.error());
  spec.incarnation = fresh_incarnation();
  const fs::path temporary = spec.path.string() + ".new";
  unique_descriptor made(::open(temporary.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!made)
    return tl::unexpected(system_error(errno, "cannot create " + quoted(temporary)));
  if (auto locked = lock_or_say_why(made.get(), spec.path); !locked)
    return tl::unexpected(locked.error());
  if (!names(temporary, made.get()))
    return unique_descriptor{}; // its creator has renamed it since we opened it
  if (std::error_code ignored; fs::exists(spec.path, ignored)) {
    ::unlink(temporary.c_str());
    return unique_descriptor{};
  }
  if (auto filled = fill_new_file(made.get(), spec, gate); !filled) {
    // Once the gate is closed another node may own the directory; cleaning up is then its task.
    if (check_gate(gate, spec))
      ::unlink(temporary.c_str());
    return tl::unexpected(filled.error());
  }
  if (const auto code = rename_without_replacing(temporary, spec.path); code != 0) {
    ::unlink(temporary.c_str());
    if (code == EEXIST)
      return unique_descriptor{};
    return tl::unexpected(system_error(code, "cannot rename the new " + quoted(spec.path)));
  }
  if (auto synced = sync_directory(spec.path.parent_path()); !synced)
    return tl::unexpected(synced.error());
  return made;
}

bool same_pages(const slab_spec& a, const slab_spec& b) {
  return a.ns == b.ns && a.rank == b.rank && a.slot_bytes == b.slot_bytes && a.grows == b.grows &&
         (a.grows || a.slots == b.slots);
}

/// In what the pages of two slabs differ, in words.
std::string differences(const slab_spec& a, const slab_spec& b) {
  std::string out;
  const auto note = [&](bool differs, const char* what) {
    if (differs)
      out.append(out.empty() ? "" : ", ").append(what);
  };
  const bool same_name = a.namespace_name == b.namespace_name;
  note(a.ns != b.ns && !same_name, "namespace");
  note(a.ns != b.ns && same_name, "what identifies the namespace beside its name (such as model, layout or salt)");
  note(a.rank != b.rank, "rank");
  note(a.slot_bytes != b.slot_bytes, "bytes of a slot");
  note(a.grows != b.grows || (!a.grows && a.slots != b.slots), "number of slots");
  return out;
}

tl::unexpected<error> not_the_same(const slab_spec& wanted, const slab_spec& found) {
  return fail(errc::identity_mismatch, quoted(wanted.path) + " holds " + describe_slab(found) + ", wanted is " +
                                           describe_slab(wanted) + "; they differ in: " + differences(wanted, found) +
                                           "; give this namespace another data_dir, or delete the file if its pages "
                                           "are no longer needed");
}

result<void> judge(int descriptor, slab_spec& spec) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    return tl::unexpected(system_error(errno, "cannot stat " + quoted(spec.path)));
  if (!S_ISREG(status.st_mode))
    return fail(errc::invalid_argument, quoted(spec.path) + " is not a regular file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const auto wanted = slab_file_bytes(spec);
  if (size >= slab_trailer_bytes) {
    const auto found = read_trailer_at(descriptor, size - slab_trailer_bytes);
    if (found && slab_file_bytes(*found) == size) {
      if (!same_pages(*found, spec))
        return not_the_same(spec, *found);
      spec.incarnation = found->incarnation;
      spec.slots = found->slots;
      spec.sparse = found->sparse;
      return {};
    }
  }
  const std::string way_out = "; delete the file to start anew";
  if (size == wanted)
    return fail(errc::slab_damaged, quoted(spec.path) + " has no sound trailer" + way_out);
  return fail(errc::slab_damaged, quoted(spec.path) + " has " + std::to_string(size) + " bytes instead of " +
                                      std::to_string(wanted) + ": it was truncated or has grown" + way_out);
}

// Opens, locks and checks the existing slab; returns no descriptor if there is none (any more).
result<unique_descriptor> open_existing(slab_spec& spec) {
  // O_NONBLOCK is for a pipe under this name; transfers must not inherit it.
  unique_descriptor opened(::open(spec.path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!opened && errno == ENOENT)
    return unique_descriptor{};
  if (!opened)
    return tl::unexpected(system_error(errno, "cannot open " + quoted(spec.path)));
  if (auto locked = lock_or_say_why(opened.get(), spec.path); !locked)
    return tl::unexpected(locked.error());
  if (!names(spec.path, opened.get()))
    return unique_descriptor{};
  if (auto judged = judge(opened.get(), spec); !judged)
    return tl::unexpected(judged.error());
  if (::fcntl(opened.get(), F_SETFL, ::fcntl(opened.get(), F_GETFL) & ~O_NONBLOCK) != 0)
    return tl::unexpected(system_error(errno, "cannot set up " + quoted(spec.path)));
  return opened;
}

// Switches to O_DIRECT and tests it: some file systems accept the flag and refuse the transfers.
bool switch_to_direct(int descriptor, const slab_spec& spec) {
  const auto flags = ::fcntl(descriptor, F_GETFL);
  if (flags == -1 || ::fcntl(descriptor, F_SETFL, flags | O_DIRECT) != 0)
    return false;
  struct releaser {
    void operator()(void* p) const noexcept { ::free(p); }
  };
  const std::unique_ptr<void, releaser> block(::aligned_alloc(page_alignment, slab_trailer_bytes));
  const auto offset = static_cast<off_t>(spec.slots * spec.slot_bytes);
  const auto got = without_interrupts([&] { return ::pread(descriptor, block.get(), slab_trailer_bytes, offset); });
  if (got == static_cast<ssize_t>(slab_trailer_bytes))
    return true;
  ::fcntl(descriptor, F_SETFL, flags);
  return false;
}

} // namespace

std::uint64_t slab_file_bytes(const slab_spec& spec) noexcept {
  return spec.slots * spec.slot_bytes + (spec.grows ? slab_growth::record_bytes : 0) + slab_trailer_bytes;
}

result<slab_file> slab_file::open(const slab_spec& wanted, bool try_direct, const write_gate& gate) {
  auto spec = wanted;
  std::error_code failed;
  spec.path = fs::absolute(spec.path, failed);
  if (auto sound = check(spec); !sound)
    return tl::unexpected(sound.error());
  fs::create_directories(spec.path.parent_path(), failed);
  if (failed)
    return tl::unexpected(
        system_error(failed.value(), "cannot create directory '" + spec.path.parent_path().string() + "'"));
  for (int round = 0; round < open_rounds; ++round) {
    auto opened = open_existing(spec);
    if (opened && !*opened)
      opened = create(spec, gate);
    if (!opened)
      return tl::unexpected(std::move(opened).error());
    if (!*opened)
      continue;
    std::shared_ptr<slab_growth> growth;
    if (spec.grows) {
      auto found = slab_growth::open(opened->get(), spec);
      if (!found)
        return tl::unexpected(std::move(found).error());
      growth = std::move(*found);
    }
    const bool direct = try_direct && switch_to_direct(opened->get(), spec);
    if (try_direct && !direct)
      log::get("io")->warn("{}: direct I/O not supported by the file system; using the page cache, which costs memory "
                           "and a copy",
                           quoted(spec.path));
    return slab_file(std::move(spec), std::move(*opened), direct, std::move(growth));
  }
  return fail(errc::busy, quoted(spec.path) + " is in use by another node: it was created and deleted " +
                              std::to_string(open_rounds) + " times while this node tried to open it");
}

slab_file::slab_file(slab_spec spec, unique_descriptor descriptor, bool direct, std::shared_ptr<slab_growth> growth)
    : spec_(std::move(spec)), descriptor_(std::move(descriptor)), direct_(direct), growth_(std::move(growth)) {}

slab_file& slab_file::operator=(slab_file&& other) noexcept {
  if (this != &other) {
    unlock();
    spec_ = std::move(other.spec_);
    descriptor_ = std::move(other.descriptor_);
    direct_ = other.direct_;
    growth_ = std::move(other.growth_);
  }
  return *this;
}

slab_file::~slab_file() {
  unlock();
}

// Closing is not enough: a ring that has registered the file keeps it open, and thereby locked, for a while longer.
void slab_file::unlock() noexcept {
  if (descriptor_)
    ::flock(descriptor_.get(), LOCK_UN);
}

errc slab_file::health() const {
  return damage().empty() ? errc::ok : errc::slab_damaged;
}

std::string slab_file::damage() const {
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0) {
    // The file system's daemon has died. The file may be intact, and transfers report their own failures.
    if (errno == ENOTCONN)
      return {};
    return system_error(errno, "cannot stat " + quoted(spec_.path)).text;
  }
  if (status.st_nlink == 0)
    return quoted(spec_.path) + " was deleted while in use";
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const auto wanted = slab_file_bytes(spec_);
  if (size != wanted)
    return quoted(spec_.path) + (size < wanted ? " was truncated" : " has grown") +
           " while in use: " + std::to_string(size) + " bytes instead of " + std::to_string(wanted);
  return {};
}

} // namespace troupe::io
