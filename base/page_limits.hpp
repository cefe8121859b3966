#pragma once

#include <cstdint>

namespace troupe {

/// The largest page on one rank: the bound of the config, and of what is generated for a size.
inline constexpr std::uint64_t max_page_bytes = std::uint64_t{64} << 20U;

} // namespace troupe
