#pragma once

#include <cstdint>

namespace troupe {

/// The number of a frame: `slot_bytes` of memory for one page of a rank, in an extent that the arena has assigned.
using frame_number = std::uint32_t;

inline constexpr frame_number no_frame = 0xffffffff;

} // namespace troupe
