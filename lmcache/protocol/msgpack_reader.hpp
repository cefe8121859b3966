#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace troupe::lmcache::protocol {

using byte_view = std::span<const std::byte>;

/// A parser of MessagePack in place, value by value, as the caller expects them. No tree is built: a message has up to
/// some hundred thousand numbers, and everything else in it is a few words.
///
/// The first unexpected or missing value fails the reader permanently: from then on every answer is zero or empty, and
/// `ok` is false. So a caller checks once, at the end of a message. Every length is compared with the available bytes
/// before it is used, and values are nested at most `depth_max` deep.
class msgpack_reader {
public:
  /// Deeper than any message, and safe for the stack.
  static constexpr unsigned depth_max = 32;

  enum class kind : std::uint8_t { nil, boolean, integer, real, text, bytes, array, map, extension, none };

  explicit msgpack_reader(byte_view bytes) noexcept : rest_(bytes) {}

  bool ok() const noexcept { return ok_; }
  /// All was read without an error.
  bool done() const noexcept { return ok_ && rest_.empty(); }
  void fail() noexcept;

  /// The kind of the next value, `none` at the end or if it is invalid.
  kind next() const noexcept;

  /// Reads the next value if it is nil; false otherwise.
  bool take_nil() noexcept;
  /// A number is accepted: 0 is false.
  bool boolean() noexcept;
  /// A boolean is accepted.
  std::int64_t integer() noexcept;
  std::uint64_t natural() noexcept;
  std::uint32_t natural32() noexcept;
  /// An integer is accepted.
  double real() noexcept;
  std::string_view text() noexcept;
  byte_view bytes() noexcept;

  /// The number of values that follow; for a map, twice as many.
  std::uint32_t array() noexcept;
  std::uint32_t map() noexcept;

  struct extension_value {
    std::int8_t type = 0;
    byte_view bytes;
  };
  extension_value extension() noexcept;

  /// An array of numbers below 2^32; replaces the content of `out`.
  void numbers(std::vector<std::uint32_t>& out);

  /// A binary of 32-bit words, the highest byte of each first; replaces the content of `out`.
  void words(std::vector<std::uint32_t>& out);

  /// Skips one value of any kind.
  void skip() noexcept;

private:
  byte_view take(std::size_t count) noexcept;
  std::uint8_t head() noexcept;
  std::uint64_t big_endian(std::size_t count) noexcept;
  /// Checks a `count` of values with at least one byte each.
  std::uint32_t counted(std::uint64_t count) noexcept;
  void skip(unsigned depth) noexcept;

  byte_view rest_;
  bool ok_ = true;
};

} // namespace troupe::lmcache::protocol
