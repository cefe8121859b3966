#pragma once

#include "gpu/page_mover.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// The division of a list of pages into parts that are copied over PCIe one after the other. Plain rules without CUDA
/// calls, tested as such.

namespace troupe::cuda {

/// Calls `with` once for all encoded moves of a list, if there are any, and then once for the others: those that have
/// lost their encoding by then among them, unless there is room for encoded pages only. `with` is called once for an
/// empty list. Ends with the first error.
template <class With>
result<void> by_encoding(std::span<block_move> moves, const With& with) {
  const auto of_one = [&](page_encoding encoding) -> result<void> {
    const auto has_it = [encoding](const block_move& x) {
      return x.encoding == encoding && !(x.only_encoded && encoding == page_encoding::raw);
    };
    const auto count = static_cast<std::size_t>(std::ranges::count_if(moves, has_it));
    if (count == moves.size())
      return with(moves, encoding);
    if (count == 0)
      return {};
    std::vector<block_move> some;
    std::vector<std::size_t> places;
    some.reserve(count);
    places.reserve(count);
    for (std::size_t i = 0; i < moves.size(); ++i)
      if (has_it(moves[i])) {
        some.push_back(moves[i]);
        places.push_back(i);
      }
    auto done = with(std::span(some), encoding);
    for (std::size_t i = 0; i < places.size(); ++i)
      moves[places[i]] = some[i];
    return done;
  };
  if (!moves.empty())
    if (auto done = of_one(page_encoding::bf16); !done)
      return done;
  for (auto& x : moves)
    if (x.only_encoded && x.encoding == page_encoding::raw)
      x.verdict = errc::unsupported;
  return of_one(page_encoding::raw);
}

/// Host memory that is locked and mapped for devices.
struct locked_range {
  std::byte* host = nullptr;
  std::size_t bytes = 0;
  /// The device's address of the first byte.
  std::byte* device = nullptr;
};

/// The location of a page's memory.
struct page_place {
  /// The device's address of the page; null if it is not locked.
  std::byte* device = nullptr;
  /// The locked range that contains it.
  const locked_range* range = nullptr;
};

/// Pages and their locations.
struct page_list {
  std::span<const block_move> moves;
  std::span<const page_place> places;

  page_list sub(std::size_t first, std::size_t count) const {
    return {moves.subspan(first, count), places.subspan(first, count)};
  }
};

/// The locations of pages. `locked` is in order of address, without overlaps; it must outlive the result.
std::vector<page_place> locate_pages(std::span<const block_move> moves, std::span<const locked_range> locked);

/// Pages that one stream copies together.
struct page_part {
  /// The position of the first page in the list, and the number of consecutive pages.
  std::size_t first = 0;
  std::size_t pages = 0;
  /// The offset of each page in staging memory.
  std::vector<std::uint64_t> offsets;
  /// Whether a page is copied in one piece with the previous one: staging memory repeats their distance.
  std::vector<bool> joined;
  /// Whether the kernel itself accesses host memory, instead of a copy.
  bool direct = false;
};

/// The staging memory of a page: every page that is not one piece with the previous one begins at a multiple of this
/// alignment.
constexpr std::uint64_t staged_bytes(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t alignment = 256;
  return (bytes + alignment - 1) / alignment * alignment;
}

/// The limits of a part.
struct part_limits {
  /// The bytes of a page that are copied.
  std::uint64_t page_bytes = 0;
  /// Bytes of staging memory for one part.
  std::uint64_t staging_bytes = 0;
  /// Pages of one launch.
  std::size_t pages = 0;
  /// Lists of at most this size are moved by kernels alone, if these can access the pages.
  std::uint64_t direct_bytes = 0;
  /// Bytes in this direction that other calls copy first. If 0, a kernel may fetch the end of a scatter, which starts
  /// sooner than a copy but slows the copies of others down. If large enough, a short list is one part, and no byte
  /// between pages is copied.
  std::uint64_t bytes_ahead = 0;
  /// Whether every page is copied in a piece of its own, so that all are equally far apart in staging memory.
  bool apart = false;
};

/// Divides a list of one direction into parts, from the front to the end.
class part_cutter {
public:
  part_cutter(move_direction direction, const part_limits& limits, const page_list& pages);

  bool done() const noexcept { return left() == 0; }
  /// Pages that are in no part yet.
  std::size_t left() const noexcept { return pages_.moves.size() - next_; }

  /// The next part, with at least one page. Must not be called when done.
  page_part next();

private:
  /// Whether a kernel can access these pages in place.
  bool reachable(std::size_t first, std::size_t pages) const noexcept;
  /// Whether page `at` can be copied in one piece with the previous one.
  bool follows(std::size_t at) const noexcept;
  /// The next pages, within these limits.
  page_part take(std::size_t pages, std::uint64_t bytes, bool direct);
  std::size_t pages_in(std::uint64_t bytes) const noexcept { return bytes / limits_.page_bytes; }

  move_direction direction_;
  part_limits limits_;
  page_list pages_;
  std::size_t next_ = 0;
  bool all_direct_ = false;
  /// Other calls use PCIe while this list does not.
  bool hidden_ = false;
  bool whole_ = false;
  /// Pages at the end of a scatter that a kernel fetches.
  std::size_t fetched_ = 0;
};

} // namespace troupe::cuda
