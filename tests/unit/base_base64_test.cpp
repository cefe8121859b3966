#include "base/base64.hpp"
#include "tests/catch.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace base_base64_test {

using namespace troupe;

TEST_CASE("base64: the examples of RFC 4648 are converted both ways", "[base][base64]") {
  struct example {
    std::string_view bytes;
    std::string_view text;
  };
  for (const auto& x : {example{"", ""}, example{"f", "Zg=="}, example{"fo", "Zm8="}, example{"foo", "Zm9v"},
                        example{"foob", "Zm9vYg=="}, example{"fooba", "Zm9vYmE="}, example{"foobar", "Zm9vYmFy"}}) {
    CHECK(to_base64(x.bytes) == x.text);
    CHECK(from_base64(x.text) == x.bytes);
  }
}

TEST_CASE("base64: all characters of the alphabet are used, and all bytes return", "[base][base64]") {
  std::string bytes;
  for (int x = 0; x < 256; ++x)
    bytes += static_cast<char>(x);
  for (std::size_t from = 0; from < 4; ++from) {
    const auto part = std::string_view(bytes).substr(from);
    CHECK(from_base64(to_base64(part)) == part);
  }
  CHECK(from_base64("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") ==
        std::string_view("\x00\x10\x83\x10\x51\x87\x20\x92\x8b\x30\xd3\x8f\x41\x14\x93\x51\x55\x97\x61\x96\x9b\x71\xd7"
                         "\x9f\x82\x18\xa3\x92\x59\xa7\xa2\x9a\xab\xb2\xdb\xaf\xc3\x1c\xb3\xd3\x5d\xb7\xe3\x9e\xbb"
                         "\xf3\xdf\xbf",
                         48));
}

TEST_CASE("base64: long texts are converted in several pieces", "[base][base64]") {
  const auto size = GENERATE(std::size_t{3} << 20U, (std::size_t{3} << 20U) + 1, (std::size_t{6} << 20U) - 1);
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<char>(i * 31U >> 3U);
  const auto text = to_base64(bytes);
  CHECK(text.size() == (size + 2) / 3 * 4);
  CHECK(text.find('\0') == std::string::npos);
  CHECK((from_base64(text) == bytes));
}

TEST_CASE("base64: what is not base64 is refused", "[base][base64]") {
  // Wrong lengths, padding at wrong places, blanks, and characters of other alphabets.
  for (const std::string_view text : {"A", "AA", "AAA", "AAAAA", "=", "AAA ="})
    CHECK_FALSE(from_base64(text));
  for (const std::string_view text : {"====", "A===", "=AAA", "A=AA", "AA=A", "AAA=AAAA", "AA==AAAA", "AAAA===="})
    CHECK_FALSE(from_base64(text));
  for (const std::string_view text : {" AAA", "AAA ", " AAAA   ", "AAA\n", "\nAAA", "AA\r\n", "AA\tA", "AAAA\n\n\n\n"})
    CHECK_FALSE(from_base64(text));
  for (const std::string_view text : {"AA-A", "AA_A", "AAA-", "AAA.", "AAA\x80", "\xff\xff\xff\xff"}) {
    INFO("'" << text << "'");
    CHECK_FALSE(from_base64(text));
  }
  CHECK_FALSE(from_base64(std::string_view("AA\0A", 4)));
  CHECK_FALSE(from_base64(std::string_view("AAA\0", 4)));
}

TEST_CASE("base64: unused bits of the last character are ignored", "[base][base64]") {
  CHECK(from_base64("Zh==") == "f");
  CHECK(from_base64("Zm9=") == "fo");
}

} // namespace base_base64_test
