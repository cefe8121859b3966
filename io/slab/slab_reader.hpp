#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"
#include "io/slab/slab_file.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace troupe::io {

/// The identity of an open file, with `path` in it: the spec in its trailer, if the file has the length of such a slab.
/// Errors: `slab_damaged`, `io_error`.
result<slab_spec> identify_slab(int descriptor, const std::filesystem::path& path);

/// The disk space that a sparse slab file was granted, for slots and what is behind them; 0 for other files. It
/// occupies less where its pages are encoded.
std::uint64_t granted_slab_bytes(const std::filesystem::path& path);

/// A slab file on disk that no node has open, for offline inspection. Opened read-only; changes nothing. A shared lock
/// keeps nodes out while it is open.
class slab_reader {
public:
  /// Errors: `not_found`; `busy` (a node has it open); `slab_damaged` (no valid trailer, or another length than it
  /// says); `unsupported` (the file system has no locks); `io_error`.
  static result<slab_reader> open(const std::filesystem::path& path);

  /// The specification from the trailer.
  const slab_spec& spec() const noexcept { return spec_; }

  /// The number of slots with disk space, which are the first ones: all, except in a growing file.
  std::uint64_t slots() const noexcept { return slots_; }

  /// Reads a whole slot, of `slot_bytes` bytes. Errors: `out_of_range`, `io_error`.
  errc read(std::uint64_t slot, std::span<std::byte> into) const;

  /// Drops the slot from the page cache: a scan that reads each page once should not evict other data.
  void forget(std::uint64_t slot) const noexcept;

private:
  slab_reader(slab_spec spec, std::uint64_t slots, unique_descriptor descriptor)
      : spec_(std::move(spec)), slots_(slots), descriptor_(std::move(descriptor)) {}

  slab_spec spec_;
  std::uint64_t slots_ = 0;
  unique_descriptor descriptor_;
};

} // namespace troupe::io
