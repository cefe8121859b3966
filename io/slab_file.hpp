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

/// What a slab file is to be: whose pages it holds and its shape.
struct slab_spec {
  std::filesystem::path path;
  namespace_id space;
  /// How people call the namespace; stored for messages, not compared.
  std::string space_name;
  rank_number rank = 0;
  /// Bytes of one slot, a multiple of `page_alignment`; see `io::slot_bytes`.
  std::uint64_t slot_bytes = 0;
  std::uint64_t slots = 0;
  /// The file grows: it has disk space for some of its slots, see `slab_growth`. Else for all of them from the start.
  bool grows = false;
  /// Of a file that grows and is made: for how many of its slots there is disk space at once. Not compared.
  std::uint64_t first_slots = 0;
  /// Of a file that grows: it takes no disk space while the disk would have less than this left. Not compared.
  std::uint64_t spare_bytes = 0;
  /// A file that is made gets its length and no disk space: of file systems that give space by no other way than by
  /// writing, and where a hole that is read is an error. Not compared.
  bool length_only = false;
  /// Which file it is, among all that were ever made with the same name and contents: found in the file, or made with
  /// it, and not compared. 0 in files that an older version made.
  incarnation_number incarnation = 0;
};

/// The whole file: all slots and the 4 KiB trailer behind them, before which a file that grows has its records. Such a
/// file has this length from the start, and disk space as it grows.
std::uint64_t slab_file_bytes(const slab_spec& spec) noexcept;

/// The file with the pages of one rank of one namespace. Slot s lies at s × slot_bytes; a trailer behind the last slot
/// says what the file is. Owns the descriptor and, while open, an exclusive lock that keeps a second node out.
/// Not thread-safe, except that any thread may do I/O on the descriptor while the slab is open.
class slab_file {
public:
  /// Opens the slab, making it where there is none.
  ///
  /// A new file gets all its disk space at once and appears under its name only when it is complete, also when two
  /// nodes create it at the same time. An existing one must be exactly what `spec` says, and is never truncated, grown
  /// or rewritten. One that grows has the number of slots it was made with, whatever `spec` says, and disk space for as
  /// many of them as it had at last, or is made with `first_slots`. With `try_direct` the descriptor is switched to
  /// O_DIRECT where the file system can do that. `gate`: whether a file may be made, which is looked at before each
  /// step of it; null where nobody else could take the directory over.
  ///
  /// Errors: `invalid_argument` (no slots, unaligned slot size), `no_space`, `busy` (in use by another node),
  /// `identity_mismatch` (another namespace, rank or shape), `slab_damaged` (truncated, grown or without its trailer),
  /// `unsupported` (the file system has no locks), `io_error`.
  static result<slab_file> open(const slab_spec& spec, bool try_direct = true, const write_gate* gate = nullptr);

  slab_file(slab_file&&) noexcept = default;
  slab_file& operator=(slab_file&&) noexcept;
  ~slab_file();

  const slab_spec& spec() const noexcept { return spec_; }

  /// Whether reads and writes bypass the page cache; buffers, offsets and lengths must then be aligned.
  bool direct() const noexcept { return direct_; }

  /// Of a file that grows; else null. Outlives the slab, but then gives no space to anybody.
  const std::shared_ptr<slab_growth>& growth() const noexcept { return growth_; }

  /// Valid as long as the slab is open.
  int descriptor() const noexcept { return descriptor_.get(); }

  /// `ok`, or `slab_damaged` when the file was deleted, truncated or grown since it was opened.
  errc health() const;

  /// What `health` found, as a sentence; empty when the file is as it should be.
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
