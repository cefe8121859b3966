#pragma once

#include <cstdint>

namespace troupe::io {

/// Slots, buffers and file offsets are multiples of this, as direct I/O requires on common disks.
inline constexpr std::uint64_t page_alignment = 4096;

} // namespace troupe::io
