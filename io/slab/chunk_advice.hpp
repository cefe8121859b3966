#pragma once

#include <cstdint>
#include <string>

namespace troupe::io {

/// Advice for the operator of a slab whose slots are not whole chunks of its file; empty where they are, or where the
/// chunk size is unknown (0). 3FS writes a part of a chunk by reading and writing the whole chunk.
std::string chunk_advice(std::uint64_t slot_bytes, std::uint64_t chunk_bytes);

/// The chunk size of an open file on 3FS, which reports it as `st_blksize`; 0 where it is not available.
std::uint64_t chunk_bytes_of(int descriptor) noexcept;

} // namespace troupe::io
