#include "io/slab/slab_growth.hpp"

#include "base/size_text.hpp"
#include "io/slab/disk_shortage.hpp"
#include "io/slab/slab_trailer.hpp"

#include <xxhash.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <type_traits>
#include <unistd.h>

namespace troupe::io {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t record_magic = 0x3157524742414c53ULL; // "SLABGRW1"

struct record_layout {
  std::uint64_t magic;
  std::uint64_t slots;
  std::uint64_t incarnation;
  /// 0 in files that are not sparse.
  std::uint64_t granted;
  std::array<std::byte, slab_trailer_bytes - 40> unused;
  std::uint64_t hash;
};

static_assert(std::is_trivially_copyable_v<record_layout> && sizeof(record_layout) == slab_trailer_bytes);
static_assert(offsetof(record_layout, hash) == 4088);

std::uint64_t hash_of_record(const record_layout& x) {
  return XXH3_64bits(&x, offsetof(record_layout, hash));
}

std::string named(const fs::path& path) {
  return "slab '" + path.string() + "'";
}

/// A block that is suitable for O_DIRECT.
struct aligned_block {
  struct releaser {
    void operator()(void* p) const noexcept { std::free(p); }
  };
  std::unique_ptr<void, releaser> bytes{std::aligned_alloc(page_alignment, slab_trailer_bytes)};
};

std::uint64_t offset_of(const slab_spec& spec, std::size_t record) {
  return spec.slots * spec.slot_bytes + record * slab_trailer_bytes;
}

result<void> write_record(int descriptor, const slab_spec& spec, std::size_t record, std::uint64_t slots,
                          std::uint64_t granted) {
  const auto made = make_growth_record({slots, spec.incarnation, spec.sparse ? granted : 0});
  const aligned_block block;
  if (!block.bytes)
    return fail(errc::no_memory, "the system is out of memory");
  std::memcpy(block.bytes.get(), made.data(), made.size());
  ssize_t written = -1;
  do {
    written = ::pwrite(descriptor, block.bytes.get(), slab_trailer_bytes, static_cast<off_t>(offset_of(spec, record)));
  } while (written == -1 && errno == EINTR);
  if (written != static_cast<ssize_t>(slab_trailer_bytes))
    return tl::unexpected(system_error(written == -1 ? errno : EIO, "cannot write to " + named(spec.path)));
  return {};
}

std::optional<growth_record> record_at(int descriptor, const slab_spec& spec, std::size_t record) {
  const aligned_block block;
  if (!block.bytes)
    return std::nullopt;
  ssize_t got = -1;
  do {
    got = ::pread(descriptor, block.bytes.get(), slab_trailer_bytes, static_cast<off_t>(offset_of(spec, record)));
  } while (got == -1 && errno == EINTR);
  if (got != static_cast<ssize_t>(slab_trailer_bytes))
    return std::nullopt;
  auto found = read_growth_record({static_cast<const std::byte*>(block.bytes.get()), slab_trailer_bytes});
  if (!found || found->incarnation != spec.incarnation || found->slots > spec.slots)
    return std::nullopt;
  if (!spec.sparse)
    found->granted = found->slots;
  return found->granted <= found->slots ? found : std::nullopt;
}

tl::unexpected<error> disk_is_full(const slab_spec& spec, std::uint64_t bytes, int code) {
  auto out = lack_of_disk({named(spec.path), bytes, code, free_bytes(spec.path.parent_path()), spec.spare_bytes,
                           "lower the size of such slabs (storage.disk_bytes)"});
  if (code != EDQUOT)
    out.text = "the disk is full: " + out.text;
  return tl::unexpected(std::move(out));
}

// Allocates the space now, so that a full disk is an error now and not in the middle of a save.
result<void> give_space(int descriptor, const slab_spec& spec, std::uint64_t from, std::uint64_t bytes) {
  if (bytes == 0 || spec.length_only)
    return {};
  // Checking first avoids filling the disk, for a moment, for its other users.
  if (const auto free = free_bytes(spec.path.parent_path()); free && *free < bytes + spec.spare_bytes)
    return disk_is_full(spec, bytes, ENOSPC);
  int code = 0;
  do {
    code = ::fallocate(descriptor, 0, static_cast<off_t>(from), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (code == EINTR);
  // glibc's fallback would write to each block instead.
  if (code == EOPNOTSUPP || code == ENOSYS)
    do {
      code = ::posix_fallocate(descriptor, static_cast<off_t>(from), static_cast<off_t>(bytes));
    } while (code == EINTR);
  if (code == ENOSPC || code == EDQUOT)
    return disk_is_full(spec, bytes, code);
  if (code != 0)
    return tl::unexpected(system_error(code, "cannot allocate " + size_text(bytes) + " for " + named(spec.path)));
  return {};
}

// Where the file system cannot free the space, it stays with the file and is used when the file grows again.
void take_space_back(int descriptor, const slab_spec& spec, std::uint64_t from) {
  const auto end = spec.slots * spec.slot_bytes;
  if (from < end)
    static_cast<void>(::fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                                  static_cast<off_t>(end - from)));
}

} // namespace

growth_record_block make_growth_record(const growth_record& x) {
  record_layout out{};
  out.magic = record_magic;
  out.slots = x.slots;
  out.incarnation = x.incarnation;
  out.granted = x.granted;
  out.hash = hash_of_record(out);
  return std::bit_cast<growth_record_block>(out);
}

std::optional<growth_record> read_growth_record(std::span<const std::byte> block) {
  if (block.size() < slab_trailer_bytes)
    return std::nullopt;
  record_layout x;
  std::memcpy(&x, block.data(), sizeof x);
  if (x.magic != record_magic || x.hash != hash_of_record(x))
    return std::nullopt;
  return growth_record{x.slots, x.incarnation, x.granted};
}

std::optional<current_record> current_growth_record(int descriptor, const slab_spec& spec) {
  const auto first = record_at(descriptor, spec, 0);
  const auto second = record_at(descriptor, spec, 1);
  if (second && (!first || second->slots > first->slots))
    return current_record{*second, 1};
  return first ? std::optional(current_record{*first, 0}) : std::nullopt;
}

result<void> slab_growth::begin(int descriptor, const slab_spec& spec) {
  if (::ftruncate(descriptor, static_cast<off_t>(slab_file_bytes(spec))) != 0)
    return tl::unexpected(system_error(errno, "cannot set the length of " + named(spec.path)));
  const auto tail = spec.slots * spec.slot_bytes;
  if (auto given = give_space(descriptor, spec, tail, slab_file_bytes(spec) - tail); !given)
    return given;
  if (auto given = give_space(descriptor, spec, 0, spec.first_slots * spec.slot_bytes); !given)
    return given;
  for (const std::size_t record : {0U, 1U})
    if (auto written = write_record(descriptor, spec, record, spec.first_slots, spec.first_slots); !written)
      return written;
  return {};
}

result<std::shared_ptr<slab_growth>> slab_growth::open(int descriptor, const slab_spec& spec) {
  const auto found = current_growth_record(descriptor, spec);
  if (!found)
    return fail(errc::slab_damaged,
                named(spec.path) + " has no sound record of its size; delete the file to start anew");
  unique_descriptor own(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!own)
    return tl::unexpected(system_error(errno, "cannot set up " + named(spec.path)));
  take_space_back(descriptor, spec, found->record.slots * spec.slot_bytes);
  return std::shared_ptr<slab_growth>(new slab_growth(std::move(own), spec, found->record, 1 - found->at));
}

result<void> slab_growth::check_number(std::uint64_t slots) const {
  if (slots > spec_.slots)
    return fail(errc::out_of_range, named(spec_.path) + " has " + std::to_string(spec_.slots) +
                                        " slots at most, and was asked for " + std::to_string(slots));
  return {};
}

result<void> slab_growth::record(std::uint64_t slots, std::uint64_t granted) {
  auto notified = write_record(descriptor_.get(), spec_, next_, slots, granted);
  if (notified && ::fdatasync(descriptor_.get()) != 0)
    notified = tl::unexpected(system_error(errno, "cannot sync " + named(spec_.path)));
  if (!notified) {
    // The record may or may not have reached the disk, and the caller treats the space as free. The old count is
    // recorded again, so that a later run does not find a larger file than permitted. Where the disk fails that as
    // well, both counts are correct: no slot beyond `slots_` was used.
    static_cast<void>(write_record(descriptor_.get(), spec_, next_, slots_, this->granted()));
    return notified;
  }
  {
    const std::lock_guard lock(given_mutex_);
    if (spec_.sparse && granted > this->granted())
      given_.push_back({slots_, slots});
    granted_.store(granted, std::memory_order_relaxed);
  }
  slots_ = slots;
  next_ = 1 - next_;
  return {};
}

slab_grant slab_growth::take_granted() {
  const std::lock_guard lock(given_mutex_);
  return {granted(), std::exchange(given_, {})};
}

result<void> slab_growth::grow(std::uint64_t slots) {
  if (slots <= slots_)
    return {};
  if (auto may = check_number(slots); !may)
    return may;
  const auto from = slots_ * spec_.slot_bytes;
  auto grown = give_space(descriptor_.get(), spec_, from, (slots - slots_) * spec_.slot_bytes);
  if (grown)
    grown = record(slots, granted() + (slots - slots_));
  if (!grown)
    take_space_back(descriptor_.get(), spec_, from);
  return grown;
}

result<void> slab_growth::extend(std::uint64_t slots) {
  if (!spec_.sparse)
    return store_growth::extend(slots);
  if (slots <= slots_)
    return {};
  if (auto may = check_number(slots); !may)
    return may;
  return record(slots, granted());
}

} // namespace troupe::io
