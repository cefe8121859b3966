#pragma once

#include <cstdint>

namespace troupe {

/// Names one life of something whose pages must not be taken for those of another: a rank from its registration to its
/// removal, a slab file from its making to its deletion, the index from one run to the next. Random, so that nothing
/// has to be remembered for no number ever to come twice, also not after a backup was put back. 0 names none: what was
/// written before there were incarnations.
using incarnation_number = std::uint64_t;

/// 64 bits of the system's entropy, never 0.
incarnation_number fresh_incarnation();

} // namespace troupe
