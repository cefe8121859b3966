#pragma once

#include <algorithm>
#include <cstdint>

namespace troupe::io {

/// How many pages a rank keeps in memory alone, beyond those of its slab file, if it has this many frames of memory and
/// this many slots in the file. The other frames are for pages of the slab: copies of those that are in use, and pages
/// that are being written or read.
///
/// With s slots and f frames, sf / (s + f) frames are for pages of the slab: nearly all frames if the slab is much
/// larger than memory, where copies of its pages are worth more than a little more capacity, and as many as it has
/// slots if it is much smaller. At least a quarter of the frames, so that large batches find room, but no more than
/// there are slots. So a rank holds at least as many pages as the larger of the two.
constexpr std::uint64_t pages_beyond_slab(std::uint64_t frames, std::uint64_t slots) noexcept {
  if (frames == 0 || slots == 0)
    return frames;
  const auto f = static_cast<double>(frames);
  const auto s = static_cast<double>(slots);
  const auto copies = static_cast<std::uint64_t>(f * s / (f + s)) + 1;
  return frames - std::min({slots, frames, std::max(copies, (frames + 3) / 4)});
}

} // namespace troupe::io
