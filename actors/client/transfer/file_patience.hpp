#pragma once

#include "base/clock.hpp"

/// Timeouts for slab files of other nodes, live or dead.

namespace troupe::transfer {

/// The limit of one order: long for a working file system, and short beside the time of a fetch from another node.
inline constexpr duration read_patience = std::chrono::seconds(2);

/// How long files are not read after not one page of an order could be read.
inline constexpr duration files_pause = std::chrono::seconds(10);

} // namespace troupe::transfer
