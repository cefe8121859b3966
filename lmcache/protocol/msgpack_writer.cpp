#include "lmcache/protocol/msgpack_writer.hpp"

#include <bit>

namespace troupe::lmcache::protocol {

void msgpack_writer::big_endian(std::uint64_t x, unsigned bytes) {
  for (auto i = bytes; i > 0; --i)
    out_.push_back(static_cast<char>(x >> (8 * (i - 1)) & 0xffU));
}

msgpack_writer& msgpack_writer::nil() {
  head(0xc0);
  return *this;
}

msgpack_writer& msgpack_writer::boolean(bool x) {
  head(x ? 0xc3 : 0xc2);
  return *this;
}

msgpack_writer& msgpack_writer::integer(std::int64_t x) {
  if (x >= 0)
    return natural(static_cast<std::uint64_t>(x));
  const auto bits = static_cast<std::uint64_t>(x);
  if (x >= -32) {
    head(static_cast<std::uint8_t>(bits));
  } else {
    head(0xd3);
    big_endian(bits, 8);
  }
  return *this;
}

msgpack_writer& msgpack_writer::natural(std::uint64_t x) {
  if (x < 0x80) {
    head(static_cast<std::uint8_t>(x));
  } else if (x <= 0xff) {
    head(0xcc);
    big_endian(x, 1);
  } else if (x <= 0xffff) {
    head(0xcd);
    big_endian(x, 2);
  } else if (x <= 0xffffffff) {
    head(0xce);
    big_endian(x, 4);
  } else {
    head(0xcf);
    big_endian(x, 8);
  }
  return *this;
}

msgpack_writer& msgpack_writer::text(std::string_view x) {
  if (x.size() < 32) {
    head(static_cast<std::uint8_t>(0xa0U | x.size()));
  } else if (x.size() <= 0xff) {
    head(0xd9);
    big_endian(x.size(), 1);
  } else if (x.size() <= 0xffff) {
    head(0xda);
    big_endian(x.size(), 2);
  } else {
    head(0xdb);
    big_endian(x.size(), 4);
  }
  out_.append(x);
  return *this;
}

msgpack_writer& msgpack_writer::bytes(std::string_view x) {
  if (x.size() <= 0xff) {
    head(0xc4);
    big_endian(x.size(), 1);
  } else if (x.size() <= 0xffff) {
    head(0xc5);
    big_endian(x.size(), 2);
  } else {
    head(0xc6);
    big_endian(x.size(), 4);
  }
  out_.append(x);
  return *this;
}

msgpack_writer& msgpack_writer::array(std::uint32_t count) {
  if (count < 16) {
    head(static_cast<std::uint8_t>(0x90U | count));
  } else if (count <= 0xffff) {
    head(0xdc);
    big_endian(count, 2);
  } else {
    head(0xdd);
    big_endian(count, 4);
  }
  return *this;
}

msgpack_writer& msgpack_writer::map(std::uint32_t count) {
  if (count < 16) {
    head(static_cast<std::uint8_t>(0x80U | count));
  } else if (count <= 0xffff) {
    head(0xde);
    big_endian(count, 2);
  } else {
    head(0xdf);
    big_endian(count, 4);
  }
  return *this;
}

msgpack_writer& msgpack_writer::real(double x) {
  head(0xcb);
  big_endian(std::bit_cast<std::uint64_t>(x), 8);
  return *this;
}

msgpack_writer& msgpack_writer::raw(std::string_view x) {
  out_.append(x);
  return *this;
}

} // namespace troupe::lmcache::protocol
