#include "base/unique_descriptor.hpp"
#include "io/page.hpp"
#include "io/slab/chunk_advice.hpp"
#include "tests/catch.hpp"

#include <fcntl.h>

namespace io_usrbio_chunks_test {

using namespace troupe;
using namespace troupe::io;

TEST_CASE("usrbio: no advice is given for slots of whole chunks or without known chunks", "[usrbio]") {
  CHECK(chunk_advice(1052672, 1052672).empty());
  CHECK(chunk_advice(1052672, 4096).empty());
  CHECK(chunk_advice(1052672, 0).empty());
}

TEST_CASE("usrbio: slots that are not whole chunks are reported with page sizes that fit", "[usrbio]") {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
  const auto notified = chunk_advice(slot_bytes(mib), mib);
  CHECK(notified.find("slots have 1052672 bytes, including a header of 4096") != std::string::npos);
  CHECK(notified.find("chunks of the file have 1048576") != std::string::npos);
  CHECK(notified.find("pages of 1044480 or 2093056 bytes") != std::string::npos);
  // Less than a chunk.
  CHECK(chunk_advice(slot_bytes(16384), 2 * mib).find("pages of 2093056 bytes") != std::string::npos);
  // The advised page sizes fit all chunk sizes that 3FS offers.
  for (const auto chunk : {mib / 2, mib, 2 * mib, 4 * mib, 16 * mib, 64 * mib})
    for (const std::uint64_t count : {1, 2, 3})
      CHECK(chunk_advice(slot_bytes(count * chunk - page_header_bytes), chunk).empty());
}

TEST_CASE("usrbio: the chunk size is read from the file", "[usrbio]") {
  const unique_descriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  CHECK(chunk_bytes_of(file.get()) > 0);
  CHECK(chunk_bytes_of(-1) == 0);
}

} // namespace io_usrbio_chunks_test
