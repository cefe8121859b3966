#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"
#include "io/slab_file.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace troupe::io {

/// What an open file says it is, with `path` in it: the spec in its trailer, if its length is that of such a file.
/// Errors: `slab_damaged`, `io_error`.
result<slab_spec> identify_slab(int descriptor, const std::filesystem::path& path);

/// A slab file as it lies on the disk, for who looks at it while no node has it. Is opened for reading alone and
/// changes nothing; a lock that many readers can share keeps nodes out as long as it is open.
class slab_reader {
public:
  /// Errors: `not_found`; `busy` (a node has it); `slab_damaged` (no sound trailer, or not the length that it says);
  /// `unsupported` (the file system has no locks); `io_error`.
  static result<slab_reader> open(const std::filesystem::path& path);

  /// What the trailer says the file is.
  const slab_spec& spec() const noexcept { return spec_; }

  /// Slots with disk space, the first ones: all, but in a file that grows.
  std::uint64_t slots() const noexcept { return slots_; }

  /// Reads a whole slot, of `slot_bytes` bytes. `out_of_range`, `io_error`.
  errc read(std::uint64_t slot, std::span<std::byte> into) const;

  /// The page cache need not keep the slot: whoever looks at each page once leaves the cache to others.
  void forget(std::uint64_t slot) const noexcept;

private:
  slab_reader(slab_spec spec, std::uint64_t slots, unique_descriptor descriptor)
      : spec_(std::move(spec)), slots_(slots), descriptor_(std::move(descriptor)) {}

  slab_spec spec_;
  std::uint64_t slots_ = 0;
  unique_descriptor descriptor_;
};

} // namespace troupe::io
