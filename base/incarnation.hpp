#pragma once

#include <cstdint>

namespace troupe {

/// Names one life of something whose pages must not be taken for those of another life: a rank from its registration to
/// its removal, a slab file from its creation to its deletion, the index from one run to the next. Random, so that no
/// number is ever used twice without a record of past ones, also after a backup was restored. 0 means none: data from
/// before incarnations existed.
using incarnation_number = std::uint64_t;

/// 64 bits of the system's entropy, never 0.
incarnation_number fresh_incarnation();

} // namespace troupe
