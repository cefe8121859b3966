#include "base/parse_number.hpp"
#include "tests/catch.hpp"

namespace base_parse_number_test {

using namespace troupe;

TEST_CASE("parse number: a number is parsed only where it is all of the text, and fits", "[base]") {
  CHECK(parse_number("0") == 0U);
  CHECK(parse_number("18446744073709551615") == std::uint64_t{0} - 1);
  CHECK(parse_number<std::uint16_t>("65535") == 65535);
  CHECK(parse_number("ff", 16) == 255U);
  CHECK(parse_number<std::int64_t>("-5") == -5);
  for (const auto* text : {"", " 1", "1 ", "1x", "+1", "-1", "0x1", "18446744073709551616"})
    CHECK_FALSE(parse_number(text));
  CHECK_FALSE(parse_number({}));
  CHECK_FALSE(parse_number<std::uint16_t>("65536"));
}

} // namespace base_parse_number_test
