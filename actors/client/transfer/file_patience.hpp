#pragma once

#include "base/clock.hpp"

/// How long somebody waits for slab files of other nodes, dead or alive.

namespace troupe::transfer {

/// How long one order may take: long for any file system that works, and a part of what a fetch from another node may.
inline constexpr duration read_patience = std::chrono::seconds(2);

/// For how long files are left alone that could not be read at all.
inline constexpr duration files_pause = std::chrono::seconds(10);

} // namespace troupe::transfer
