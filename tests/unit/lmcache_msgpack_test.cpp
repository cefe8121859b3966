#include "lmcache/protocol/msgpack_reader.hpp"
#include "lmcache/protocol/msgpack_writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/lmcache_messages.hpp"

#include <nlohmann/json.hpp>

#include <limits>
#include <random>
#include <string>
#include <vector>

namespace lmcache_msgpack_test {

using namespace troupe::lmcache::protocol;
using nlohmann::json;
using troupe::test::packed_json;
using kind = msgpack_reader::kind;

namespace {

byte_view view(const std::string& x) {
  return std::as_bytes(std::span(x));
}

json unpacked(const std::string& x) {
  return json::from_msgpack(x);
}

/// Any value, of a few levels.
json random_value(std::mt19937_64& random, int depth) {
  switch (random() % (depth > 3 ? 6 : 8)) {
  case 0:
    return nullptr;
  case 1:
    return random() % 2 == 0;
  case 2:
    return static_cast<std::int64_t>(random() >> random() % 64);
  case 3:
    return -static_cast<std::int64_t>(random() >> (1 + random() % 63));
  case 4:
    return static_cast<double>(random()) / 3;
  case 5:
    return std::string(random() % 300, 'x');
  case 6: {
    auto out = json::array();
    for (auto n = random() % 20; n > 0; --n)
      out.push_back(random_value(random, depth + 1));
    return out;
  }
  default: {
    auto out = json::object();
    for (auto n = random() % 20; n > 0; --n)
      out["k" + std::to_string(random() % 1000)] = random_value(random, depth + 1);
    return out;
  }
  }
}

/// The value once more, read by the expectations that its kind raises.
json read_value(msgpack_reader& in) {
  switch (in.next()) {
  case kind::nil:
    CHECK(in.take_nil());
    return nullptr;
  case kind::boolean:
    return in.boolean();
  case kind::integer: {
    auto ahead = in;
    const auto natural = ahead.natural();
    if (ahead.ok()) {
      in = ahead;
      return natural;
    }
    return in.integer();
  }
  case kind::real:
    return in.real();
  case kind::text:
    return std::string(in.text());
  case kind::array: {
    auto out = json::array();
    for (auto n = in.array(); n > 0; --n)
      out.push_back(read_value(in));
    return out;
  }
  case kind::map: {
    auto out = json::object();
    for (auto n = in.map(); n > 0; --n) {
      const std::string name(in.text());
      out[name] = read_value(in);
    }
    return out;
  }
  default:
    FAIL("a value of no kind that JSON has");
    return {};
  }
}

} // namespace

TEST_CASE("lmcache msgpack: MessagePack is parsed like another reader does", "[lmcache]") {
  const auto seed = GENERATE(1U, 2U, 3U);
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  for (int i = 0; i < 200; ++i) {
    const auto value = random_value(random, 0);
    const auto text = packed_json(value);
    msgpack_reader in(view(text));
    CHECK(read_value(in) == value);
    CHECK(in.done());
    msgpack_reader passes(view(text));
    passes.skip();
    CHECK(passes.done());
    // Cut short anywhere it is not a value any more.
    if (!text.empty()) {
      const auto part = text.substr(0, random() % text.size());
      msgpack_reader cut(view(part));
      cut.skip();
      CHECK_FALSE(cut.ok());
    }
  }
}

TEST_CASE("lmcache msgpack: numbers of MessagePack keep their value at every bound", "[lmcache]") {
  for (const std::int64_t x :
       {std::int64_t{0}, std::int64_t{127}, std::int64_t{128}, std::int64_t{255}, std::int64_t{256},
        std::int64_t{65535}, std::int64_t{65536}, std::int64_t{4294967295}, std::int64_t{4294967296},
        std::numeric_limits<std::int64_t>::max(), std::int64_t{-1}, std::int64_t{-32}, std::int64_t{-33},
        std::int64_t{-128}, std::int64_t{-129}, std::int64_t{-32769}, std::numeric_limits<std::int64_t>::min()}) {
    INFO(x);
    const auto theirs = packed_json(x);
    msgpack_reader in(view(theirs));
    CHECK(in.integer() == x);
    CHECK(in.done());
    CHECK(unpacked(msgpack_writer().integer(x).take()) == x);
  }
  const auto most = msgpack_writer().natural(std::numeric_limits<std::uint64_t>::max()).take();
  CHECK(unpacked(most) == std::numeric_limits<std::uint64_t>::max());
  msgpack_reader natural(view(most));
  CHECK(natural.natural() == std::numeric_limits<std::uint64_t>::max());
  CHECK(natural.done());
  msgpack_reader integer(view(most));
  CHECK(integer.integer() == 0);
  CHECK_FALSE(integer.ok());
  msgpack_reader passes(view(most));
  passes.skip();
  CHECK(passes.done());
}

TEST_CASE("lmcache msgpack: extensions of MessagePack have any size", "[lmcache]") {
  for (const std::size_t size : {0U, 1U, 2U, 3U, 4U, 8U, 15U, 16U, 17U, 255U, 256U, 65536U}) {
    INFO(size);
    const auto text = packed_json(json::binary(std::vector<std::uint8_t>(size, 7), 5));
    msgpack_reader in(view(text));
    const auto x = in.extension();
    CHECK(in.done());
    CHECK(x.type == 5);
    CHECK(x.bytes.size() == size);
  }
}

TEST_CASE("lmcache msgpack: a value of MessagePack that is of another kind or missing ends the reading", "[lmcache]") {
  const auto nil = packed_json(nullptr);
  msgpack_reader text(view(nil));
  CHECK(text.text().empty());
  CHECK_FALSE(text.ok());
  const auto few = msgpack_writer().array(2).natural(1).take();
  msgpack_reader numbers(view(few));
  std::vector<std::uint32_t> out;
  numbers.numbers(out);
  CHECK_FALSE(numbers.ok());
}

TEST_CASE("lmcache msgpack: heads of MessagePack are written as others write them at every bound", "[lmcache]") {
  for (const std::uint32_t size : {0U, 1U, 15U, 16U, 31U, 32U, 255U, 256U, 65535U, 65536U}) {
    INFO(size);
    const std::string text(size, 'x');
    CHECK(msgpack_writer().text(text).take() == packed_json(text));
    CHECK(msgpack_writer().bytes(text).take() == packed_json(json::binary({text.begin(), text.end()})));
    const auto list = packed_json(json(std::vector<json>(size)));
    const auto head = msgpack_writer().array(size).take();
    CHECK(head == list.substr(0, list.size() - size));
    // The head of a map has the same form, from another first byte on.
    auto fields = msgpack_writer().map(size).take();
    REQUIRE(fields.size() == head.size());
    CHECK(static_cast<unsigned char>(fields[0]) == static_cast<unsigned char>(head[0]) - (size < 16 ? 0x10 : -2));
    CHECK(fields.substr(1) == head.substr(1));
  }
  CHECK(msgpack_writer().integer(-32).take() == packed_json(-32));
}

TEST_CASE("lmcache msgpack: booleans and integers are interchangeable in MessagePack", "[lmcache]") {
  for (const auto& [text, value] : {std::pair(std::string("\xc3"), 1), {std::string("\xc2"), 0}}) {
    msgpack_reader in(view(text));
    CHECK(in.integer() == value);
    CHECK(in.done());
  }
  const std::string one("\x01");
  msgpack_reader in(view(one));
  CHECK(in.boolean());
  const auto ten = packed_json(10);
  msgpack_reader real(view(ten));
  CHECK(real.real() == 10.0);
}

TEST_CASE("lmcache msgpack: texts, bytes, arrays and maps of every length are written as another reader expects",
          "[lmcache]") {
  for (const std::uint32_t n : {0U, 1U, 15U, 16U, 31U, 32U, 255U, 256U, 65535U, 65536U}) {
    INFO(n);
    const std::string text(n, 'a');
    CHECK(unpacked(msgpack_writer().text(text).take()) == text);
    const auto bytes = unpacked(msgpack_writer().bytes(text).take());
    REQUIRE(bytes.is_binary());
    CHECK(bytes.get_binary().size() == n);
    msgpack_writer array;
    array.array(n);
    msgpack_writer map;
    map.map(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      array.natural(i);
      map.text(std::to_string(i)).boolean(true);
    }
    const auto packed_array = array.take();
    CHECK(unpacked(packed_array).size() == n);
    CHECK(unpacked(map.take()).size() == n);
    std::vector<std::uint32_t> numbers{1, 2, 3};
    msgpack_reader in(view(packed_array));
    in.numbers(numbers);
    CHECK(in.done());
    REQUIRE(numbers.size() == n);
    for (std::uint32_t i = 0; i < n; ++i)
      REQUIRE(numbers[i] == i);
  }
}

TEST_CASE("lmcache msgpack: lengths beyond the message are refused", "[lmcache]") {
  for (const std::string& text :
       {std::string("\xdd\xff\xff\xff\xff", 5), std::string("\xdf\xff\xff\xff\xff\x01", 6),
        std::string("\xdb\xff\xff\xff\xff", 5), std::string("\xc6\x7f\xff\xff\xff", 5), std::string("\xc1", 1),
        std::string("\x92\x01", 2), std::string("\xc9\xff\xff\xff\xff\x01", 6), std::string("\x81\xa1", 2)}) {
    msgpack_reader in(view(text));
    in.skip();
    CHECK_FALSE(in.ok());
    CHECK(in.next() == kind::none);
    std::vector<std::uint32_t> numbers;
    msgpack_reader list(view(text));
    list.numbers(numbers);
    CHECK_FALSE(list.ok());
    CHECK(numbers.empty());
  }
  // The nesting is as deep as the message is long.
  const std::string deep(100000, '\x91');
  msgpack_reader in(view(deep));
  in.skip();
  CHECK_FALSE(in.ok());
}

TEST_CASE("lmcache msgpack: a value in 32 arrays or maps is read, and one that is deeper is refused", "[lmcache]") {
  for (const std::string& outer : {std::string("\x91"), std::string("\x81\xa1k")}) {
    std::string text("\x01");
    for (unsigned depth = 0; depth < msgpack_reader::depth_max; ++depth)
      text.insert(0, outer);
    msgpack_reader in(view(text));
    in.skip();
    CHECK(in.done());
    text.insert(0, outer);
    msgpack_reader deeper(view(text));
    deeper.skip();
    CHECK_FALSE(deeper.ok());
  }
}

TEST_CASE("lmcache msgpack: tokens are numbers below 2^32, however they are written", "[lmcache]") {
  std::vector<std::uint32_t> numbers;
  const std::string wide("\x93\xcf\x00\x00\x00\x00\x00\x00\x00\x05\xd1\x00\x07\xce\xff\xff\xff\xff", 18);
  msgpack_reader in(view(wide));
  in.numbers(numbers);
  CHECK(in.done());
  CHECK(numbers == std::vector<std::uint32_t>{5, 7, 0xffffffff});
  for (const std::string& wrong :
       {std::string("\x91\xff", 2), std::string("\x91\xa1x", 3), std::string("\x91\xc3", 2),
        std::string("\x91\xcf\x00\x00\x00\x01\x00\x00\x00\x00", 10), std::string("\x91\xcd\x01", 3)}) {
    msgpack_reader bad(view(wrong));
    bad.numbers(numbers);
    CHECK_FALSE(bad.ok());
    CHECK(numbers.empty());
  }
}

} // namespace lmcache_msgpack_test
