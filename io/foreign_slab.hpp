#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"
#include "io/page.hpp"
#include "io/slab_file.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace troupe::io {

/// The slab file of somebody else, who may be writing to it at any moment, for who only reads. Takes no lock and
/// changes nothing. Nothing that is read is believed: a page is what was asked for if header and checksum say so, and
/// else a miss. Any thread may read.
class foreign_slab {
public:
  /// Opens `path` if it is the very file that `expected` describes, by its namespace, rank, slot size and incarnation:
  /// no other file that has come to lie under the same name is ever taken for it. With an incarnation of 0 in
  /// `expected`, any incarnation will do. With `try_direct`, reads bypass the page cache where the file system can do
  /// that, so that they find what another host has written.
  ///
  /// Errors: `not_found`, `identity_mismatch` (another file), `slab_damaged` (no sound trailer, or not the length that
  /// it says), `io_error`.
  static result<foreign_slab> open(const std::filesystem::path& path, const slab_spec& expected,
                                   bool try_direct = true);

  /// What its trailer says it is, and where it lies.
  const slab_spec& spec() const noexcept { return spec_; }

  /// Whether buffers, offsets and lengths of reads have to be multiples of `page_alignment`.
  bool direct() const noexcept { return direct_; }

  /// Valid as long as this is.
  int descriptor() const noexcept { return descriptor_.get(); }

  /// To be called before a slot is read by the descriptor: where reads go through the page cache, what that has kept of
  /// the slot may be older than what another host has written since. Waits for what this host has still to write of it.
  void forget(slot_number slot) const noexcept;

  /// Reads the slot of `wanted` into `slot_buffer`, of `slot_bytes` bytes at a multiple of `page_alignment`, and checks
  /// that it holds exactly that page, whole, as a load does. `identity_mismatch`: a sound page of something else;
  /// `corrupt`: no sound page; `out_of_range`: no such slot, or no such buffer; `slab_damaged`: the file has become
  /// shorter; `io_error`. Blocks for as long as the file system takes.
  errc read_page(const page_identity& wanted, std::span<std::byte> slot_buffer) const;

private:
  foreign_slab(slab_spec spec, unique_descriptor descriptor, bool direct)
      : spec_(std::move(spec)), descriptor_(std::move(descriptor)), direct_(direct) {}

  slab_spec spec_;
  unique_descriptor descriptor_;
  bool direct_ = false;
};

} // namespace troupe::io
