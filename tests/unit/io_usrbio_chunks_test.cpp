#include "base/unique_descriptor.hpp"
#include "io/usrbio/chunk_advice.hpp"
#include "tests/catch.hpp"

#include <fcntl.h>

namespace io_usrbio_chunks_test {

using namespace troupe;
using namespace troupe::io::usrbio;

TEST_CASE("usrbio: who has slots of whole chunks hears nothing, nor who does not know", "[usrbio]") {
  CHECK(chunk_advice(1052672, 1052672).empty());
  CHECK(chunk_advice(1052672, 4096).empty());
  CHECK(chunk_advice(1052672, 0).empty());
}

TEST_CASE("usrbio: slots that are no whole chunks are told of, with chunks of which they are", "[usrbio]") {
  const auto told = chunk_advice(1052672, 1048576);
  CHECK(told.find("slots are of 1052672 bytes and chunks of the file of 1048576") != std::string::npos);
  CHECK(told.find("chunks of 1052672 bytes") != std::string::npos);
  // No chunk is larger than 64 MiB, and what is named is one of which the slot is a multiple.
  constexpr std::uint64_t large = (std::uint64_t{128} << 20U) + 8192;
  CHECK(chunk_advice(large, 1048576).find("chunks of " + std::to_string(large / 5) + " bytes") != std::string::npos);
  CHECK(chunk_advice(large, large / 5).empty());
}

TEST_CASE("usrbio: chunks are as large as the file says", "[usrbio]") {
  const unique_descriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  CHECK(chunk_bytes_of(file.get()) > 0);
  CHECK(chunk_bytes_of(-1) == 0);
}

} // namespace io_usrbio_chunks_test
