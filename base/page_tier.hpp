#pragma once

#include <cstdint>

namespace troupe {

/// The tier that held the bytes of a page at the time.
enum class page_tier : std::uint8_t { unknown, memory, disk };

inline constexpr std::uint8_t page_tier_count = 3;

} // namespace troupe
