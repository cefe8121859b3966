#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "io/foreign/foreign_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::io {

/// The settings for reading pages of other nodes.
struct foreign_storage {
  std::shared_ptr<foreign_reader> reader;
  /// The directory that contains the slab files of all nodes.
  std::filesystem::path directory;
  /// Reads bypass the page cache where the file system supports it.
  bool direct = true;
};

/// A page, and the block that receives it.
struct foreign_page {
  key_digest key;
  slot_ref where;
  std::uint32_t block = 0;
};

/// Reads pages of one rank from another node's slab file into blocks that are laid out as pages. One thread at a time.
class foreign_pages {
public:
  struct options {
    foreign_storage storage;
    namespace_id ns;
    rank_number rank = 0;
    std::uint64_t page_bytes = 0;
    /// Consecutive blocks of `page_bytes` each.
    std::span<std::byte> blocks;
    /// The memory that slots are read into; at least two slots.
    std::uint64_t frame_bytes = std::uint64_t{64} << 20U;
  };

  explicit foreign_pages(options how) : options_(std::move(how)) {}

  /// Reads pages from the file at `path`, below the shared directory, if it has that incarnation. The block of a page
  /// that verifies as the requested one holds it then; other blocks are unchanged. Ends at `until`.
  ///
  /// Returns one code per page: `identity_mismatch` and `corrupt` as `verify_page`, `out_of_range` (no such slot or
  /// block), `timeout`, a code of the engine, or, for all of them, `unsupported`: the file cannot be read.
  /// `take_trouble` has the reason; the file is not tried again for a while.
  std::vector<errc> read(const std::string& path, incarnation_number incarnation, std::span<const foreign_page> pages,
                         timestamp until, timestamp now);

  /// Why a file could not be opened, for the log: once for each file and reason.
  std::string take_trouble() { return std::exchange(trouble_, {}); }

private:
  bool open(const std::string& path, incarnation_number incarnation, timestamp until, timestamp now);
  result<void> try_open(const std::string& path, incarnation_number incarnation, timestamp until);

  options options_;
  std::shared_ptr<foreign_reader::frames> frames_;
  std::shared_ptr<foreign_reader::file> file_;
  /// The one that is open, or could not be opened.
  std::string path_;
  incarnation_number incarnation_ = 0;
  timestamp again_ = timestamp::min();
  std::string trouble_;
  std::string notified_;
};

} // namespace troupe::io
