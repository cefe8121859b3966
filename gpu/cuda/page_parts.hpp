#pragma once

#include "gpu/page_mover.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// How a list of pages is cut into parts that cross the bus one after the other. No call of CUDA: what crosses when is
/// a rule, and tested as one.

namespace troupe::cuda {

/// Memory of the host that is locked and mapped for devices.
struct locked_range {
  std::byte* host = nullptr;
  std::size_t bytes = 0;
  /// The same byte for a device.
  std::byte* device = nullptr;
};

/// What is known of a page's memory.
struct page_place {
  /// The page as a device sees it; null if it is not locked.
  std::byte* device = nullptr;
  /// Which of the locked ranges it lies in.
  const locked_range* range = nullptr;
};

/// Pages and where they lie.
struct page_list {
  std::span<const block_move> moves;
  std::span<const page_place> places;

  page_list sub(std::size_t first, std::size_t count) const {
    return {moves.subspan(first, count), places.subspan(first, count)};
  }
};

/// Where pages lie. `locked`: in order of address, none in another; must outlive what is returned.
std::vector<page_place> locate_pages(std::span<const block_move> moves, std::span<const locked_range> locked);

/// Pages that one stream takes across the bus together.
struct page_part {
  /// The first page, as a position in the list, and how many follow each other.
  std::size_t first = 0;
  std::size_t pages = 0;
  /// Where each page lies in staging memory.
  std::vector<std::uint64_t> offsets;
  /// Whether a page is one piece with the one before: staging memory repeats their distance.
  std::vector<bool> joined;
  /// Whether the kernel itself reads or writes memory of the host, instead of a copy.
  bool direct = false;
};

/// What a page takes of staging memory, where every page that is no one piece with the one before begins at a multiple
/// of this many bytes.
constexpr std::uint64_t staged_bytes(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t alignment = 256;
  return (bytes + alignment - 1) / alignment * alignment;
}

/// What parts must fit into.
struct part_limits {
  std::uint64_t page_bytes = 0;
  /// Of staging memory for one part.
  std::uint64_t staging_bytes = 0;
  /// Of one launch.
  std::size_t pages = 0;
  /// Lists of at most this size are moved by kernels alone, if these can reach the pages.
  std::uint64_t direct_bytes = 0;
  /// What is to cross the bus in this direction before. Where it is nothing, the end of a scatter may be fetched by a
  /// kernel, which is there sooner than a copy, and slows the copies of others down. Where it is enough, a short list
  /// goes in one part, and no byte between pages is copied along.
  std::uint64_t bytes_ahead = 0;
};

/// Cuts a list of one direction, from the front to the end.
class part_cutter {
public:
  part_cutter(move_direction direction, const part_limits& limits, const page_list& pages);

  bool done() const noexcept { return left() == 0; }
  /// Pages that no part has yet.
  std::size_t left() const noexcept { return pages_.moves.size() - next_; }

  /// The next part; at least one page. Not to be called when done.
  page_part next();

private:
  /// Whether a kernel can read and write these pages where they lie.
  bool reachable(std::size_t first, std::size_t pages) const noexcept;
  /// Whether page `at` can be copied in one piece with the one before it.
  bool follows(std::size_t at) const noexcept;
  /// The next pages, at most so many and of about so many bytes.
  page_part take(std::size_t pages, std::uint64_t bytes, bool direct);
  std::size_t pages_in(std::uint64_t bytes) const noexcept { return bytes / limits_.page_bytes; }

  move_direction direction_;
  part_limits limits_;
  page_list pages_;
  std::size_t next_ = 0;
  bool all_direct_ = false;
  /// Others are at work while this list is not on the bus.
  bool hidden_ = false;
  bool whole_ = false;
  /// Pages at the end of a scatter that a kernel fetches.
  std::size_t fetched_ = 0;
};

} // namespace troupe::cuda
