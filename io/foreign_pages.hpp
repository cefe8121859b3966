#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "io/foreign_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::io {

/// What pages of other nodes are read with.
struct foreign_storage {
  std::shared_ptr<foreign_reader> reader;
  /// In which the slab files of all nodes lie.
  std::filesystem::path directory;
  /// Reads bypass the page cache where the file system can do that.
  bool direct = true;
};

/// A page, and the block that it goes to.
struct foreign_page {
  key_digest key;
  slot_ref where;
  std::uint32_t block = 0;
};

/// Pages of one rank, from the slab file of another node into blocks of memory that lie as pages do. Of one thread.
class foreign_pages {
public:
  struct options {
    foreign_storage storage;
    namespace_id space;
    rank_number rank = 0;
    std::uint64_t page_bytes = 0;
    /// One behind the other, of `page_bytes` each.
    std::span<std::byte> blocks;
    /// Of memory that slots are read into; two slots at least.
    std::uint64_t frame_bytes = std::uint64_t{64} << 20U;
  };

  explicit foreign_pages(options how) : options_(std::move(how)) {}

  /// Reads them from the file at `path`, below the directory that all share, if it is the one of that incarnation; what
  /// verifies as the page that was asked for is in its block then, and other blocks are as they were. Ends at `until`.
  ///
  /// One code per page: `identity_mismatch` and `corrupt` as `verify_page`, `out_of_range` (no such slot or block),
  /// `timeout`, what the engine says, or, for all of them, `unsupported`: the file cannot be read. Why not is in
  /// `take_trouble`; it is not tried again for a while.
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
  std::string told_;
};

} // namespace troupe::io
