#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace troupe::lmcache::wire {

using byte_view = std::span<const std::byte>;

/// Reads MessagePack in place, value by value, as the caller expects them. No tree is built: a message has up to some
/// hundred thousand numbers, and everything else in it is a few words.
///
/// The first thing that is not as expected, or not there, fails the reader for good: from then on every answer is zero
/// or empty, and `ok` is false. So whoever reads a message looks once, at its end. Every length is compared with the
/// bytes that are there before anything is made of it, and values lie in each other at most `depth_max` deep.
class msgpack_reader {
public:
  /// Deeper than any message, and no danger to the stack.
  static constexpr unsigned depth_max = 32;

  enum class kind : std::uint8_t { nil, boolean, integer, real, text, bytes, array, map, extension, none };

  explicit msgpack_reader(byte_view bytes) noexcept : rest_(bytes) {}

  bool ok() const noexcept { return ok_; }
  /// All was read, and all of it was right.
  bool done() const noexcept { return ok_ && rest_.empty(); }
  void fail() noexcept;

  /// Of the next value, `none` at the end or where there is none.
  kind next() const noexcept;

  /// Whether the next value is nil, which is read then.
  bool take_nil() noexcept;
  /// A number counts as well: 0 is false.
  bool boolean() noexcept;
  /// A boolean counts as well.
  std::int64_t integer() noexcept;
  std::uint64_t natural() noexcept;
  std::uint32_t natural32() noexcept;
  /// An integer counts as well.
  double real() noexcept;
  std::string_view text() noexcept;
  byte_view bytes() noexcept;

  /// How many values follow, or twice as many for a map.
  std::uint32_t array() noexcept;
  std::uint32_t map() noexcept;

  struct extension_value {
    std::int8_t type = 0;
    byte_view bytes;
  };
  extension_value extension() noexcept;

  /// An array of numbers below 2^32, in place of what `out` held.
  void numbers(std::vector<std::uint32_t>& out);

  /// A binary of 32-bit words, the highest byte of each first, in place of what `out` held.
  void words(std::vector<std::uint32_t>& out);

  /// Passes by one value, whatever it is.
  void skip() noexcept;

private:
  byte_view take(std::size_t count) noexcept;
  std::uint8_t head() noexcept;
  std::uint64_t big_endian(std::size_t count) noexcept;
  /// Of `count` values that have a byte at least each.
  std::uint32_t counted(std::uint64_t count) noexcept;
  void skip(unsigned depth) noexcept;

  byte_view rest_;
  bool ok_ = true;
};

} // namespace troupe::lmcache::wire
