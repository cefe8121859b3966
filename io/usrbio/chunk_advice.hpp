#pragma once

#include <cstdint>
#include <string>

namespace troupe::io::usrbio {

/// What to tell an operator of a slab whose slots are not whole chunks of its file; empty where they are, or where the
/// size of chunks is not known (0). 3FS writes a part of a chunk by reading and writing all of it.
std::string chunk_advice(std::uint64_t slot_bytes, std::uint64_t chunk_bytes);

/// The size of chunks of an open file on 3FS, which says it as the best size for transfers (`st_blksize`); 0 where that
/// cannot be asked.
std::uint64_t chunk_bytes_of(int descriptor) noexcept;

} // namespace troupe::io::usrbio
