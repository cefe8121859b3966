#include "lmcache/protocol/msgpack_reader.hpp"

#include <bit>
#include <limits>

namespace troupe::lmcache::protocol {

namespace {

constexpr std::uint8_t u8(std::byte x) noexcept {
  return std::to_integer<std::uint8_t>(x);
}

/// Head bytes of MessagePack that mean one type each.
enum head_byte : std::uint8_t {
  nil_head = 0xc0,
  false_head = 0xc2,
  true_head = 0xc3,
  bin8 = 0xc4,
  ext8 = 0xc7,
  float32 = 0xca,
  float64 = 0xcb,
  uint8 = 0xcc,
  uint16 = 0xcd,
  uint32 = 0xce,
  uint64 = 0xcf,
  int8 = 0xd0,
  int64 = 0xd3,
  fixext1 = 0xd4,
  fixext16 = 0xd8,
  str8 = 0xd9,
  array16 = 0xdc,
  map16 = 0xde,
};

} // namespace

void msgpack_reader::fail() noexcept {
  ok_ = false;
  rest_ = {};
}

byte_view msgpack_reader::take(std::size_t count) noexcept {
  if (count > rest_.size()) {
    fail();
    return {};
  }
  const auto out = rest_.first(count);
  rest_ = rest_.subspan(count);
  return out;
}

std::uint8_t msgpack_reader::head() noexcept {
  const auto byte = take(1);
  return byte.empty() ? 0xc1 : u8(byte[0]); // 0xc1 is never used
}

std::uint64_t msgpack_reader::big_endian(std::size_t count) noexcept {
  std::uint64_t out = 0;
  for (const auto x : take(count))
    out = out << 8U | u8(x);
  return out;
}

std::uint32_t msgpack_reader::counted(std::uint64_t count) noexcept {
  if (count > rest_.size() || count > std::numeric_limits<std::uint32_t>::max()) {
    fail();
    return 0;
  }
  return static_cast<std::uint32_t>(count);
}

msgpack_reader::kind msgpack_reader::next() const noexcept {
  if (rest_.empty())
    return kind::none;
  const auto x = u8(rest_[0]);
  if (x < 0x80 || x >= 0xe0 || (x >= uint8 && x <= int64))
    return kind::integer;
  if (x < 0x90 || (x >= map16 && x < 0xe0))
    return kind::map;
  if (x < 0xa0 || (x >= array16 && x < map16))
    return kind::array;
  if (x < 0xc0 || (x >= str8 && x < array16))
    return kind::text;
  if (x == nil_head)
    return kind::nil;
  if (x == false_head || x == true_head)
    return kind::boolean;
  if (x >= bin8 && x < ext8)
    return kind::bytes;
  if (x == float32 || x == float64)
    return kind::real;
  if ((x >= ext8 && x < float32) || (x >= fixext1 && x <= fixext16))
    return kind::extension;
  return kind::none;
}

bool msgpack_reader::take_nil() noexcept {
  if (next() != kind::nil)
    return false;
  static_cast<void>(head());
  return true;
}

bool msgpack_reader::boolean() noexcept {
  return integer() != 0;
}

std::int64_t msgpack_reader::integer() noexcept {
  const auto x = head();
  if (x < 0x80)
    return x;
  if (x >= 0xe0)
    return static_cast<std::int8_t>(x);
  if (x == false_head || x == true_head)
    return x - false_head;
  if (x >= uint8 && x <= uint64) {
    const auto out = big_endian(std::size_t{1} << (x - uint8));
    if (out <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return static_cast<std::int64_t>(out);
  }
  if (x >= int8 && x <= int64) {
    const auto bytes = std::size_t{1} << (x - int8);
    const auto unused = 64 - 8 * bytes;
    // The highest bit of the bytes is the sign.
    return static_cast<std::int64_t>(big_endian(bytes) << unused) >> unused;
  }
  fail();
  return 0;
}

std::uint64_t msgpack_reader::natural() noexcept {
  if (!rest_.empty() && u8(rest_[0]) == uint64) {
    static_cast<void>(head());
    return big_endian(8);
  }
  const auto out = integer();
  if (out >= 0)
    return static_cast<std::uint64_t>(out);
  fail();
  return 0;
}

std::uint32_t msgpack_reader::natural32() noexcept {
  const auto out = natural();
  if (out <= std::numeric_limits<std::uint32_t>::max())
    return static_cast<std::uint32_t>(out);
  fail();
  return 0;
}

double msgpack_reader::real() noexcept {
  if (next() != kind::real)
    return static_cast<double>(integer());
  if (head() == float32)
    return std::bit_cast<float>(static_cast<std::uint32_t>(big_endian(4)));
  return std::bit_cast<double>(big_endian(8));
}

std::string_view msgpack_reader::text() noexcept {
  const auto x = head();
  byte_view out;
  if (x >= 0xa0 && x < 0xc0)
    out = take(x & 0x1fU);
  else if (x >= str8 && x < array16)
    out = take(big_endian(std::size_t{1} << (x - str8)));
  else
    fail();
  return {reinterpret_cast<const char*>(out.data()), out.size()};
}

byte_view msgpack_reader::bytes() noexcept {
  const auto x = head();
  if (x >= bin8 && x < ext8)
    return take(big_endian(std::size_t{1} << (x - bin8)));
  fail();
  return {};
}

std::uint32_t msgpack_reader::array() noexcept {
  const auto x = head();
  if (x >= 0x90 && x < 0xa0)
    return counted(x & 0xfU);
  if (x >= array16 && x < map16)
    return counted(big_endian(std::size_t{2} << (x - array16)));
  fail();
  return 0;
}

std::uint32_t msgpack_reader::map() noexcept {
  const auto x = head();
  if (x >= 0x80 && x < 0x90)
    return counted(x & 0xfU);
  if (x >= map16 && x < 0xe0)
    return counted(big_endian(std::size_t{2} << (x - map16)));
  fail();
  return 0;
}

msgpack_reader::extension_value msgpack_reader::extension() noexcept {
  const auto x = head();
  std::size_t size = 0;
  if (x >= ext8 && x < float32)
    size = big_endian(std::size_t{1} << (x - ext8));
  else if (x >= fixext1 && x <= fixext16)
    size = std::size_t{1} << (x - fixext1);
  else
    fail();
  extension_value out;
  out.type = static_cast<std::int8_t>(big_endian(1));
  out.bytes = take(size);
  return out;
}

void msgpack_reader::numbers(std::vector<std::uint32_t>& out) {
  const auto count = array();
  out.resize(count);
  auto* const first = rest_.data();
  const auto* at = first;
  const auto* const end = first + rest_.size();
  for (std::uint32_t i = 0; i < count; ++i) {
    // Tokens have one, two or four bytes; other encodings of a number are rare.
    const std::size_t left = static_cast<std::size_t>(end - at);
    const auto x = left > 0 ? u8(at[0]) : std::uint8_t{0xc1};
    if (x < 0x80) {
      out[i] = x;
      at += 1;
    } else if (x == uint16 && left >= 3) {
      out[i] = static_cast<std::uint32_t>(u8(at[1])) << 8U | u8(at[2]);
      at += 3;
    } else if (x == uint32 && left >= 5) {
      out[i] = static_cast<std::uint32_t>(u8(at[1])) << 24U | static_cast<std::uint32_t>(u8(at[2])) << 16U |
               static_cast<std::uint32_t>(u8(at[3])) << 8U | u8(at[4]);
      at += 5;
    } else {
      rest_ = {at, left};
      if (next() != kind::integer)
        fail();
      out[i] = natural32();
      if (!ok_) {
        out.clear();
        return;
      }
      at = rest_.data();
    }
  }
  rest_ = {at, static_cast<std::size_t>(end - at)};
}

void msgpack_reader::words(std::vector<std::uint32_t>& out) {
  out.clear();
  const auto in = bytes();
  if (in.size() % sizeof(std::uint32_t) != 0)
    return fail();
  out.resize(in.size() / sizeof(std::uint32_t));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto* const at = in.data() + i * sizeof(std::uint32_t);
    out[i] = static_cast<std::uint32_t>(u8(at[0])) << 24U | static_cast<std::uint32_t>(u8(at[1])) << 16U |
             static_cast<std::uint32_t>(u8(at[2])) << 8U | u8(at[3]);
  }
}

void msgpack_reader::skip() noexcept {
  skip(0);
}

void msgpack_reader::skip(unsigned depth) noexcept {
  if (depth > depth_max)
    return fail();
  switch (next()) {
  case kind::nil:
    static_cast<void>(head());
    return;
  case kind::boolean:
  case kind::integer:
    static_cast<void>(next() == kind::integer && u8(rest_[0]) == uint64 ? natural()
                                                                        : static_cast<std::uint64_t>(integer()));
    return;
  case kind::real:
    static_cast<void>(real());
    return;
  case kind::text:
    static_cast<void>(text());
    return;
  case kind::bytes:
    static_cast<void>(bytes());
    return;
  case kind::extension:
    static_cast<void>(extension());
    return;
  case kind::array:
    for (auto count = array(); count > 0 && ok_; --count)
      skip(depth + 1);
    return;
  case kind::map:
    for (auto count = 2 * std::uint64_t{map()}; count > 0 && ok_; --count)
      skip(depth + 1);
    return;
  case kind::none:
    return fail();
  }
}

} // namespace troupe::lmcache::protocol
