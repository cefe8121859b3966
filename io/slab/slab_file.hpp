#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "base/unique_descriptor.hpp"
#include "base/write_gate.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace troupe::io {

class slab_growth;

/// The specification of a slab file: its owner and its shape.
struct slab_spec {
  std::filesystem::path path;
  namespace_id ns;
  /// The name of the namespace; stored for messages, not compared.
  std::string namespace_name;
  rank_number rank = 0;
  /// Bytes of one slot, a multiple of `page_alignment`; see `io::slot_bytes`.
  std::uint64_t slot_bytes = 0;
  std::uint64_t slots = 0;
  /// True: the file grows, with disk space for some of its slots, see `slab_growth`. False: it has space for all from
  /// the start.
  bool grows = false;
  /// A growing file whose slots may have less disk space than `slot_bytes`, so that it can have more slots than whole
  /// pages. A new file is one if this is set and its file system can free parts of files and tell which are; an
  /// existing one stays what it is. Not compared.
  bool sparse = false;
  /// For a new growing file: the number of slots that get disk space at once. Not compared.
  std::uint64_t first_slots = 0;
  /// For a growing file: the free disk space in bytes below which it does not grow. Not compared.
  std::uint64_t spare_bytes = 0;
  /// A new file gets its length and no disk space: for file systems that allocate only by writing, and where reading a
  /// hole is an error. Not compared.
  bool length_only = false;
  /// Identifies the file among all that were ever made with the same name and contents. It is read from the file, or
  /// generated with it, and not compared. 0 in files of an older version.
  incarnation_number incarnation = 0;
};

/// The size of the whole file: all slots and the 4 KiB trailer behind them, before which a growing file has its
/// records. A growing file has this length from the start, and disk space as it grows.
std::uint64_t slab_file_bytes(const slab_spec& spec) noexcept;

/// The file with the pages of one rank of one namespace. Slot s is at s × slot_bytes; a trailer behind the last slot
/// identifies the file. Owns the descriptor and, while open, an exclusive lock that keeps a second node out. Not
/// thread-safe, except that any thread may do I/O on the descriptor while the slab is open.
class slab_file {
public:
  /// Opens the slab, or creates it if there is none.
  ///
  /// A new file gets all its disk space at once and appears under its name only when it is complete, also when two
  /// nodes create it at the same time. An existing one must match `spec` exactly, and is never truncated, extended or
  /// rewritten. A growing one keeps the number of slots it was made with, whatever `spec` says, and the disk space that
  /// it had last; a new one gets `first_slots`. With `try_direct` the descriptor is switched to O_DIRECT where the file
  /// system supports it. `gate` says whether a file may be made and is checked before each step of that.
  ///
  /// Errors: `invalid_argument` (no slots, unaligned slot size), `no_space`, `busy` (in use by another node),
  /// `identity_mismatch` (another namespace, rank or shape), `slab_damaged` (truncated, grown or without its trailer),
  /// `unsupported` (the file system has no locks), `io_error`.
  static result<slab_file> open(const slab_spec& spec, bool try_direct = true,
                                const write_gate& gate = *write_gate::always_open());

  slab_file(slab_file&&) noexcept = default;
  slab_file& operator=(slab_file&&) noexcept;
  ~slab_file();

  const slab_spec& spec() const noexcept { return spec_; }

  /// Whether reads and writes bypass the page cache; buffers, offsets and lengths must then be aligned.
  bool direct() const noexcept { return direct_; }

  /// The growth of a growing file; else null. Outlives the slab, but then allocates no space.
  const std::shared_ptr<slab_growth>& growth() const noexcept { return growth_; }

  /// Valid while the slab is open.
  int descriptor() const noexcept { return descriptor_.get(); }

  /// `ok`, or `slab_damaged` when the file was deleted, truncated or grown since it was opened.
  errc health() const;

  /// The finding of `health` as a sentence; empty when the file is intact.
  std::string damage() const;

private:
  slab_file(slab_spec spec, unique_descriptor descriptor, bool direct, std::shared_ptr<slab_growth> growth);

  void unlock() noexcept;

  slab_spec spec_;
  unique_descriptor descriptor_;
  bool direct_ = false;
  std::shared_ptr<slab_growth> growth_;
};

} // namespace troupe::io
