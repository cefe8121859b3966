#pragma once

#include <cstdint>

namespace troupe {

/// Where the bytes of a page were when they were seen.
enum class page_tier : std::uint8_t { unknown, memory, disk };

inline constexpr std::uint8_t page_tier_count = 3;

} // namespace troupe
