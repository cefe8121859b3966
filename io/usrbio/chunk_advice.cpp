#include "io/usrbio/chunk_advice.hpp"

#include <sys/stat.h>

namespace troupe::io::usrbio {

namespace {

/// The largest that 3FS has.
constexpr std::uint64_t largest_chunk = std::uint64_t{64} << 20U;

} // namespace

std::string chunk_advice(std::uint64_t slot_bytes, std::uint64_t chunk_bytes) {
  if (chunk_bytes == 0 || slot_bytes % chunk_bytes == 0)
    return {};
  std::uint64_t parts = 1;
  // Slots are multiples of 4,096 bytes, and so are chunks.
  while (slot_bytes / parts > largest_chunk || slot_bytes % (parts * 4096) != 0)
    ++parts;
  return "slots are of " + std::to_string(slot_bytes) + " bytes and chunks of the file of " +
         std::to_string(chunk_bytes) +
         ", so each page is written with parts of chunks, which 3FS reads and writes whole: give the directory chunks "
         "of " +
         std::to_string(slot_bytes / parts) + " bytes, of which a slot is a multiple, and have the slab made anew";
}

std::uint64_t chunk_bytes_of(int descriptor) noexcept {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && status.st_blksize > 0 ? static_cast<std::uint64_t>(status.st_blksize) : 0;
}

} // namespace troupe::io::usrbio
