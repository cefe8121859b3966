#include "base/single_line.hpp"
#include "tests/catch.hpp"

#include <string>
#include <string_view>

namespace base_single_line_test {

using namespace troupe;
using namespace std::string_literals;

namespace {

std::string single_line(std::string_view text) {
  std::string out;
  append_single_line(out, text);
  return out;
}

} // namespace

TEST_CASE("single line: printable text stays unchanged", "[base][single_line]") {
  for (const std::string_view text :
       {"", "peer 'cache-2' disconnected", R"(a \n that is two characters)", "größe 模型 😀"}) {
    INFO(text);
    CHECK(is_single_line(text));
    CHECK(single_line(text) == text);
  }
}

TEST_CASE("single line: line ends and control characters are escaped", "[base][single_line]") {
  CHECK(single_line("a\nb\r\tc") == R"(a\nb\r\tc)");
  CHECK(single_line("\x1b[2Jx\x7f") == R"(\x1b[2Jx\x7f)");
  CHECK(single_line("a\0b"s) == R"(a\x00b)");
  CHECK_FALSE(is_single_line("a\nb"));
}

TEST_CASE("single line: control characters beyond ASCII are escaped", "[base][single_line]") {
  CHECK(single_line("\xc2\x9b"
                    "2J") == R"(\u{009b}2J)");         // CSI in one character
  CHECK(single_line("\xe2\x80\xa8") == R"(\u{2028})"); // a line separator
  CHECK(single_line("a\xe2\x80\xae"
                    "b") == R"(a\u{202e}b)"); // reads from right to left
  CHECK(single_line("\xe2\x81\xa6") == R"(\u{2066})");
  CHECK(single_line("\xc2\xa0\xe2\x80\xa6") == "\xc2\xa0\xe2\x80\xa6"); // a blank and an ellipsis are harmless
}

TEST_CASE("single line: bytes that are not UTF-8 are escaped one by one", "[base][single_line]") {
  CHECK(single_line("a\xff"
                    "b") == R"(a\xffb)");
  CHECK(single_line("\xc0\xaf") == R"(\xc0\xaf)");         // overlong
  CHECK(single_line("\xed\xa0\x80") == R"(\xed\xa0\x80)"); // half of a surrogate pair
  CHECK(single_line("\xe2\x80") == R"(\xe2\x80)");         // truncated
  CHECK(single_line("\xf0\x9f\x98") == R"(\xf0\x9f\x98)");
}

TEST_CASE("single line: every single byte leaves one line of printable ASCII", "[base][single_line]") {
  for (int i = 0; i < 256; ++i) {
    const auto out = single_line(std::string(1, static_cast<char>(i)));
    INFO(i << " " << out);
    CHECK(is_single_line(out));
    for (const char c : out)
      CHECK((c >= ' ' && c <= '~'));
  }
}

} // namespace base_single_line_test
