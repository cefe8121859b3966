#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::lmcache::protocol {

/// Appends MessagePack to a text, each value in its shortest form. The caller gives the number of values in arrays and
/// maps, and then appends them.
class msgpack_writer {
public:
  msgpack_writer& nil();
  msgpack_writer& boolean(bool x);
  msgpack_writer& integer(std::int64_t x);
  msgpack_writer& natural(std::uint64_t x);
  msgpack_writer& text(std::string_view x);
  msgpack_writer& bytes(std::string_view x);
  msgpack_writer& array(std::uint32_t count);
  msgpack_writer& map(std::uint32_t count);
  /// 64 bits.
  msgpack_writer& real(double x);
  /// Values that are encoded already.
  msgpack_writer& raw(std::string_view x);

  std::string take() { return std::move(out_); }

private:
  void head(std::uint8_t x) { out_.push_back(static_cast<char>(x)); }
  void big_endian(std::uint64_t x, unsigned bytes);

  std::string out_;
};

} // namespace troupe::lmcache::protocol
