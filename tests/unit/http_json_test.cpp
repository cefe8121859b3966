#include "http/server/json_body.hpp"
#include "http/server/json_text.hpp"
#include "tests/catch.hpp"
#include "tests/unit/damaged_text.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace http_json_test {

using namespace troupe;
using namespace troupe::http;

namespace {

/// Text with the padding that bodies have.
class padded {
public:
  explicit padded(std::string_view text) : size_(text.size()), text_(text) { text_.append(body_padding, '"'); }
  std::string_view view() const { return std::string_view{text_}.substr(0, size_); }

private:
  std::size_t size_;
  std::string text_;
};

std::string as_json(std::string_view text) {
  std::string out;
  append_json(out, text);
  return out;
}

template <class T>
std::string number(T x) {
  std::string out;
  append_json(out, x);
  return out;
}

/// "ok", or status and detail.
template <class T>
std::string outcome(const accepted<T>& x) {
  return x ? "ok" : std::to_string(static_cast<int>(x.error().code)) + " " + x.error().detail;
}

std::string parsed(std::string_view text) {
  const padded body{text};
  return outcome(parse_json(body.view()));
}

accepted<simdjson::dom::object> object_of(const padded& body) {
  request_parts parts;
  parts.body = body.view();
  return parse_json_object(request{parts});
}

} // namespace

TEST_CASE("http json: text is written as valid JSON", "[http][json]") {
  CHECK(as_json("") == R"("")");
  CHECK(as_json("plain text of more than eight bytes") == R"("plain text of more than eight bytes")");
  CHECK(as_json("a\"b\\c\nd\re\tf") == R"("a\"b\\c\nd\re\tf")");
  CHECK(as_json(std::string_view{"\0\x01\x1f\x7f", 4}) == "\"\\u0000\\u0001\\u001f\x7f\"");
  CHECK(as_json("é€😀") == "\"é€😀\"");
}

TEST_CASE("http json: each byte is escaped or kept at each position in a word", "[http][json]") {
  for (unsigned byte = 0; byte < 0x80; ++byte)
    for (std::size_t at = 0; at < 17; ++at) {
      std::string text(17, 'x');
      text[at] = static_cast<char>(byte);
      const padded written{as_json(text)};
      const auto root = parse_json(written.view());
      REQUIRE(root);
      CHECK(as_string(*root, "x") == text);
    }
}

TEST_CASE("http json: bytes that are not UTF-8 become U+FFFD", "[http][json]") {
  const std::string bad = "\xef\xbf\xbd";
  CHECK(as_json("a\x80z") == "\"a" + bad + "z\"");
  CHECK(as_json("\xc0\xaf") == "\"" + bad + bad + "\"");
  CHECK(as_json("\xe0\x80\x80") == "\"" + bad + bad + bad + "\"");
  CHECK(as_json("\xed\xa0\x80") == "\"" + bad + bad + bad + "\"");
  CHECK(as_json("\xf4\x90\x80\x80") == "\"" + bad + bad + bad + bad + "\"");
  CHECK(as_json("\xf0\x9f\x98") == "\"" + bad + bad + bad + "\"");
  CHECK(as_json("\xff") == "\"" + bad + "\"");
}

TEST_CASE("http json: random bytes are written as JSON, and UTF-8 is restored unchanged", "[http][json]") {
  const auto seed = GENERATE(11U, 12U, 13U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    const auto is_ascii = i % 2 == 0;
    for (std::size_t n = random() % 40; n > 0; --n)
      text += static_cast<char>(is_ascii ? random() % 0x80 : random() % 0x100);
    const padded written{as_json(text)};
    const auto root = parse_json(written.view());
    REQUIRE(root);
    if (is_ascii)
      CHECK(as_string(*root, "x") == text);
  }
}

TEST_CASE("http json: random text is written as another library writes it", "[http][json]") {
  const auto seed = GENERATE(14U, 15U, 16U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  // But for \b and \f, for which there are shorter escapes.
  const std::vector<std::string> rare{"\"", "\\", "\n", "\r",     "\t",     std::string(1, '\0'), "\x1f", "\x7f", "/",
                                      "é",  "€",  "😀",  "\u0080", "\uffff", "\U0010ffff"};
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (auto n = random() % 70; n > 0; --n)
      text +=
          random() % 20 == 0 ? rare[random() % rare.size()] : std::string(1, static_cast<char>('0' + random() % 64));
    CHECK(as_json(text) == nlohmann::json(text).dump());
  }
}

TEST_CASE("http json: many short items are written as another library writes them", "[http][json]") {
  const auto seed = GENERATE(17U, 18U, 19U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  for (const std::size_t size : {0U, 1U, 2U, 3U, 100U, 5000U}) {
    std::vector<std::uint32_t> numbers(size);
    for (auto& x : numbers)
      x = size < 4 ? std::numeric_limits<std::uint32_t>::max() : static_cast<std::uint32_t>(random() >> random() % 32);
    const auto is_none = [](std::uint32_t x) { return x % 8 == 1; };
    const auto is_large = [](std::uint32_t x) { return x >= 1000; };
    auto as_numbers = nlohmann::json::array();
    auto as_bools = nlohmann::json::array();
    for (const auto x : numbers) {
      as_numbers.push_back(is_none(x) ? nlohmann::json{} : nlohmann::json(x));
      as_bools.push_back(is_large(x));
    }
    std::string out = "before";
    append_short_items(out, numbers, [&](char* to, std::uint32_t x) {
      return is_none(x) ? write_json(to, nullptr) : write_json(to, x);
    });
    CHECK(out == "before" + as_numbers.dump());
    out.clear();
    append_short_items(out, numbers, [&](char* to, std::uint32_t x) { return write_json(to, is_large(x)); });
    CHECK(out == as_bools.dump());
  }
}

TEST_CASE("http json: numbers are written as they are", "[http][json]") {
  CHECK(number(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615");
  CHECK(number(std::numeric_limits<std::int64_t>::min()) == "-9223372036854775808");
  CHECK(number(true) == "true");
  CHECK(number(0.1) == "0.1");
  CHECK(number(std::nan("")) == "null");
  CHECK(number(std::numeric_limits<double>::infinity()) == "null");
  CHECK(number("text") == "\"text\"");
}

TEST_CASE("http json: only valid JSON is accepted", "[http][json]") {
  for (const auto* text :
       {"{}", "[]", "null", "1", "\"x\"", " {\"a\" : [1, 2.5, -3e2, true, null]} ", "\"\\ud83d\\ude00\""})
    CHECK(parsed(text) == "ok");
  CHECK(parsed("") == "400 the body is empty, JSON is expected");
  for (const auto* text : {"{", "}", "[1,]", "{\"a\"}", "{\"a\":}", "{a:1}", "'x'", "01", "1.", "nul", "\"", "\"\\x\"",
                           "\"\n\"", "{} {}", "[1] x", "NaN", "// x\n1", "\"\\ud83d\""}) {
    INFO(text);
    CHECK(parsed(text).starts_with("400 the body is not JSON: "));
  }
  // With the place of the first mistake, as people write bodies by hand.
  CHECK(parsed("{\"a\": 1,\n  \"b\": }") == "400 the body is not JSON: line 2, column 8: this cannot stand here");
  CHECK(parsed("]") == "400 the body is not JSON: line 1, column 1: this cannot stand here");
  CHECK(parsed("[1,\n2") == "400 the body is not JSON: line 2, column 2: it ends in the middle");
  CHECK(parsed("{\"ä\":\"äö\",x}") == "400 the body is not JSON: line 1, column 11: this cannot stand here");
  // Of two mistakes the first, although simdjson finds the other one first.
  CHECK(parsed("{\"a\":1,,\"b\":\"x\ny\"}") == "400 the body is not JSON: line 1, column 8: this cannot stand here");
  // Too long to be read twice for it.
  CHECK(parsed("[" + std::string(70'000, ' ') + "}").starts_with("400 the body is not JSON: The JSON document"));
  CHECK(parsed("\"\xff\"") == "400 the body is not UTF-8");
  CHECK(parsed("{\"unasked\":\"\xc0\xaf\"}") == "400 the body is not UTF-8");
}

TEST_CASE("http json: nesting ends at its limit", "[http][json]") {
  const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  CHECK(parsed(nested(max_json_depth - 1)) == "ok");
  CHECK(parsed(nested(max_json_depth + 1)) == "400 the body is nested deeper than 32 levels");
  CHECK(parsed(std::string(1'000'000, '[')).starts_with("400 "));
}

TEST_CASE("http json: members of the wrong type get 422", "[http][json]") {
  CHECK(outcome(object_of(padded{"[]"})) == "422 body: expected an object");
  const padded body{R"({"s":"x","n":7,"neg":-1,"f":1.5,"b":true,"a":[1,2,3],"o":{"k":1},"z":null,"s":"second"})"};
  const auto x = object_of(body);
  REQUIRE(x);
  CHECK(string_member(*x, "s") == "x");
  CHECK(unsigned_member(*x, "n", 7, 7) == 7U);
  CHECK(optional_bool_member(*x, "b").value() == true);
  CHECK(array_member(*x, "a", 3));
  CHECK(object_member(*x, "o"));
  CHECK(optional_string_member(*x, "s").value() == "x");
  CHECK_FALSE(optional_string_member(*x, "z").value());
  CHECK_FALSE(optional_unsigned_member(*x, "none", 0, 1).value());
  CHECK_FALSE(optional_bool_member(*x, "none").value());
  CHECK(outcome(string_member(*x, "none")) == "422 none: is missing");
  CHECK(outcome(string_member(*x, "n")) == "422 n: expected a string");
  CHECK(outcome(string_member(*x, "z")) == "422 z: expected a string");
  CHECK(outcome(optional_string_member(*x, "n")) == "422 n: expected a string");
  CHECK(outcome(unsigned_member(*x, "n", 8, 9)) == "422 n: expected a whole number, 8 to 9");
  CHECK(outcome(unsigned_member(*x, "n", 0, 6)) == "422 n: expected a whole number, 0 to 6");
  CHECK(outcome(unsigned_member(*x, "neg", 0, 9)) == "422 neg: expected a whole number, 0 to 9");
  CHECK(outcome(unsigned_member(*x, "f", 0, 9)) == "422 f: expected a whole number, 0 to 9");
  CHECK(outcome(optional_bool_member(*x, "n")) == "422 n: expected true or false");
  CHECK(outcome(array_member(*x, "o", 3)) == "422 o: expected an array");
  CHECK(outcome(array_member(*x, "a", 2)) == "413 a: at most 2 items are accepted");
  CHECK(outcome(object_member(*x, "a")) == "422 a: expected an object");
  CHECK(to_response(string_member(*x, "n").error()).body == R"({"detail":"n: expected a string"})");
}

TEST_CASE("http json: a small body is parsed after a large one", "[http][json]") {
  std::string large = "[";
  for (int i = 0; i < 300'000; ++i)
    large += "123456789,";
  large += "1]";
  CHECK(parsed(large) == "ok");
  CHECK(parsed("{}") == "ok");
  CHECK(parsed(large) == "ok");
}

TEST_CASE("http json: damaged JSON is refused or parsed without reading beyond it", "[http][json]") {
  const auto seed = GENERATE(21U, 22U, 23U, 24U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  const std::string sound =
      R"({"keys":["a1","b2","\u00e9","c\n"],"rank":3,"all":true,"deep":{"x":[{"y":null}]},"f":1e3})";
  const test::text_damage damage{.inserted = "{}[]\",:\\0-"};
  for (int i = 0; i < 4000; ++i) {
    const auto text = damage(sound, random);
    const padded body{text};
    const auto x = object_of(body);
    if (!x) {
      CHECK((x.error().code == status::bad_request || x.error().code == status::unprocessable_content));
      continue;
    }
    if (const auto keys = array_member(*x, "keys", 100))
      for (const auto key : *keys)
        static_cast<void>(as_string(key, "keys"));
    static_cast<void>(unsigned_member(*x, "rank", 0, 10));
    static_cast<void>(optional_bool_member(*x, "all"));
  }
}

} // namespace http_json_test
