#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"
#include "io/page.hpp"
#include "io/slab/slab_file.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace troupe::io {

/// A read-only view of another node's slab file, to which that node may write at any moment. It takes no lock and
/// changes nothing. No byte is trusted: a page is the requested one if header and checksum say so, and else a miss. Any
/// thread may read.
class foreign_slab {
public:
  /// Opens `path` if it is the very file that `expected` describes, by its namespace, rank, slot size and incarnation:
  /// another file that has replaced it under the same name is refused. An incarnation of 0 in `expected` matches any.
  /// With `try_direct`, reads bypass the page cache where the file system supports it, so that they see what another
  /// host has written.
  ///
  /// Errors: `not_found`, `identity_mismatch` (another file), `slab_damaged` (no valid trailer, or another length than
  /// it says), `io_error`.
  static result<foreign_slab> open(const std::filesystem::path& path, const slab_spec& expected,
                                   bool try_direct = true);

  /// The identity and shape from its trailer, and its path.
  const slab_spec& spec() const noexcept { return spec_; }

  /// Whether buffers, offsets and lengths of reads have to be multiples of `page_alignment`.
  bool direct() const noexcept { return direct_; }

  /// Valid while this object lives.
  int descriptor() const noexcept { return descriptor_.get(); }

  /// Drops a slot from the page cache; must be called before the slot is read by the descriptor. Where reads go through
  /// the page cache, its copy may be older than what another host has written since. Waits for writes of this host to
  /// that slot.
  void forget(slot_number slot) const noexcept;

  /// Reads the slot of `wanted` into `slot_buffer`, of `slot_bytes` bytes at a multiple of `page_alignment`, and checks
  /// that it holds exactly that page, as a load does. Errors: `identity_mismatch` (a valid page of another identity),
  /// `corrupt` (no valid page), `out_of_range` (no such slot, or an unsuitable buffer), `slab_damaged` (the file was
  /// truncated), `io_error`. Blocks for as long as the file system takes.
  errc read_page(const page_identity& wanted, std::span<std::byte> slot_buffer) const;

private:
  foreign_slab(slab_spec spec, unique_descriptor descriptor, bool direct)
      : spec_(std::move(spec)), descriptor_(std::move(descriptor)), direct_(direct) {}

  slab_spec spec_;
  unique_descriptor descriptor_;
  bool direct_ = false;
};

} // namespace troupe::io
