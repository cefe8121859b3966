#pragma once

#include "gpu/page_mover.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

/// How large the parts are in which a mover's pages pass through a GPU, and the memory that they take there. Plain
/// rules without CUDA calls, tested as such.

namespace troupe::cuda {

/// The number of pipelines of a direction where there are `before`, when a mover comes that makes `calls` calls at
/// once: as many as the calls of any mover, and two where there are several movers. Two hide the begin and the end of
/// each call, whatever the number of movers.
constexpr std::uint32_t pipelines_for(std::uint32_t before, std::uint32_t calls) noexcept {
  constexpr std::uint32_t enough = 2;
  return std::max({before, calls, std::min(before + calls, enough)});
}

/// The limits of the parts of one mover's pages.
struct part_sizes {
  std::uint64_t staging_bytes = 0;
  std::size_t pages = 0;
  /// Pages of an encoded part; 0 where these pages have no encoding.
  std::size_t encoded_pages = 0;
  /// Whether pages are encoded while they are gathered (`page_plan::codec_tiles`): then no memory is needed for pages
  /// as they are.
  bool encoded_at_once = false;

  /// `part_bytes`: the size of a part, which has one page at least.
  static part_sizes of(std::uint64_t page_bytes, std::uint32_t blocks_per_page, std::uint64_t part_bytes,
                       bool codec_tiles) noexcept;
};

/// The memory of a pipeline. It may be larger than a call needs, as it serves all movers of a device.
struct pipeline_memory {
  /// For one part, of two.
  std::uint64_t staging_bytes = 0;
  /// For the pages of an encoded part as they are, where they are not encoded at once.
  std::uint64_t plain_bytes = 0;
  /// The encoder's.
  std::uint64_t scratch_bytes = 0;

  bool covers(const pipeline_memory& other) const noexcept {
    return staging_bytes >= other.staging_bytes && plain_bytes >= other.plain_bytes &&
           scratch_bytes >= other.scratch_bytes;
  }
  /// What is enough for the calls that either is enough for.
  pipeline_memory joined(const pipeline_memory& other) const noexcept {
    return {std::max(staging_bytes, other.staging_bytes), std::max(plain_bytes, other.plain_bytes),
            std::max(scratch_bytes, other.scratch_bytes)};
  }

  /// What calls of a mover need. `encodes`: whether its gathers encode; scatters decode in any case.
  static pipeline_memory of(const part_sizes& parts, std::uint64_t page_bytes, move_direction direction,
                            bool encodes) noexcept;
};

} // namespace troupe::cuda
