#pragma once

#include "io/segment.hpp"

#include <cstdint>
#include <memory>

namespace troupe::simulation {

/// Real page buffer memory, taken from a pool of the thread where possible: making it costs many system calls. What it
/// holds is the same in every run.
std::shared_ptr<io::segment> take_segment(std::uint64_t bytes);

} // namespace troupe::simulation
