#include "base/size_text.hpp"
#include "tests/catch.hpp"

#include <limits>

namespace base_size_text_test {

using namespace troupe;

TEST_CASE("size text: byte counts are printed in the customary unit", "[base]") {
  CHECK(size_text(0) == "0 B");
  CHECK(size_text(1023) == "1023 B");
  CHECK(size_text(1024) == "1 KiB");
  CHECK(size_text(1536) == "1.5 KiB");
  CHECK(size_text(67108864) == "64 MiB");
  CHECK(size_text(25276514304) == "23.54 GiB");
  CHECK(size_text(2199023198208) == "2 TiB");
  CHECK(size_text((std::uint64_t{1} << 30U) + (std::uint64_t{11} << 20U)) == "1.01 GiB");
  CHECK(size_text((std::uint64_t{1} << 20U) - 1) == "1 MiB");
  CHECK(size_text(std::numeric_limits<std::uint64_t>::max()) == "16 EiB");
}

} // namespace base_size_text_test
