#include "base/hex.hpp"
#include "tests/catch.hpp"

#include <array>

namespace base_hex_test {

using namespace troupe;

TEST_CASE("hex: bytes and words become lower-case hexadecimal digits, the first byte first", "[base]") {
  std::string out = "x";
  const std::array bytes{std::byte{0x00}, std::byte{0x0f}, std::byte{0xf0}, std::byte{0xff}, std::byte{0xa5}};
  append_hex(out, bytes);
  CHECK(out == "x000ff0ffa5");
  out.clear();
  append_hex(out, std::span<const std::byte>{});
  CHECK(out.empty());
  append_hex(out, std::uint64_t{0x0123456789abcdefULL});
  CHECK(out == "0123456789abcdef");
}

TEST_CASE("hex: a hexadecimal digit has a value in either case, and other characters have none", "[base]") {
  for (int c = -128; c < 128; ++c) {
    const auto at = std::string_view{"0123456789abcdefABCDEF"}.find(static_cast<char>(c));
    INFO(c);
    if (at == std::string_view::npos)
      CHECK(hex_value(static_cast<char>(c)) == -1);
    else
      CHECK(hex_value(static_cast<char>(c)) == static_cast<int>(at < 16 ? at : at - 6));
  }
}

} // namespace base_hex_test
