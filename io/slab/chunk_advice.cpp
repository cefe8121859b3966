#include "io/slab/chunk_advice.hpp"

#include "io/page.hpp"

#include <sys/stat.h>

namespace troupe::io {

std::string chunk_advice(std::uint64_t slot_bytes, std::uint64_t chunk_bytes) {
  if (chunk_bytes == 0 || slot_bytes % chunk_bytes == 0)
    return {};
  // The slot size is what an operator can choose, by the page size: 3FS offers a few chunk sizes, all powers of two.
  const auto below = slot_bytes / chunk_bytes * chunk_bytes;
  const auto page_of = [](std::uint64_t slot) { return std::to_string(slot - page_header_bytes); };
  return "slots have " + std::to_string(slot_bytes) + " bytes, including a header of " +
         std::to_string(page_header_bytes) + ", and chunks of the file have " + std::to_string(chunk_bytes) +
         " bytes. Each page is written with partial chunks, which 3FS reads and writes whole: pages of " +
         (below > page_header_bytes ? page_of(below) + " or " : "") + page_of(below + chunk_bytes) +
         " bytes would fill whole chunks, and larger pages waste less";
}

std::uint64_t chunk_bytes_of(int descriptor) noexcept {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && status.st_blksize > 0 ? static_cast<std::uint64_t>(status.st_blksize) : 0;
}

} // namespace troupe::io
