#pragma once

#include <cstdint>

namespace troupe {

/// A place in memory for one page of a rank: `slot_bytes` of an extent that the arena has lent.
using frame_number = std::uint32_t;

inline constexpr frame_number no_frame = 0xffffffff;

} // namespace troupe
