#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

/// The frames of the connections between a node and the memory of a client. All numbers are little-endian.
///
///     node, once           hello:   16 bytes that identify the protocol, 32 of the token that authorizes the node,
///                                   the number of this connection, how many the node makes, and how often this
///                                   one was lost before
///     node                 order:   kind, number, offset in the memory, length; a put is followed by its bytes
///     client, in order     answer:  kind and number of the order, length; the answer to a get is followed by its bytes
///
/// The client answers a put when its bytes are in place. It answers `end_stream`, whose offset names another connection
/// and whose length is 0, when that connection no longer accesses the memory, and will not come if it has not come yet.
/// Only after that answer the node may open a connection with the same number again. Any other message ends the
/// connection.

namespace troupe::io::tcp {

static_assert(std::endian::native == std::endian::little, "frames are sent as they are in memory");

inline constexpr std::size_t token_bytes = 32;
/// The most connections to one memory.
inline constexpr std::uint32_t streams_most = 64;
using connection_token = std::array<std::byte, token_bytes>;

struct hello {
  static constexpr std::array<char, 16> this_protocol{'t', 'r', 'o', 'u', 'p', 'e', ' ', 'm',
                                                      'e', 'm', 'o', 'r', 'y', ' ', '3', '\n'};
  std::array<char, 16> protocol = this_protocol;
  connection_token token{};
  std::uint32_t stream = 0;
  std::uint32_t streams = 1;
  /// 0 for the first connection of that number, then one more each time that it is opened again.
  std::uint32_t attempt = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(hello) == 64);

/// One connection among those of all attempts, as the offset of `end_stream` names it.
struct stream_name {
  std::uint32_t number = 0;
  std::uint32_t attempt = 0;

  constexpr std::uint64_t offset() const noexcept { return std::uint64_t{attempt} << 32U | number; }
  static constexpr stream_name of_offset(std::uint64_t x) noexcept {
    return {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(x >> 32U)};
  }
};

enum class order_kind : std::uint32_t { put = 1, get = 2, end_stream = 3 };

struct order {
  order_kind kind = order_kind::put;
  std::uint32_t number = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};
static_assert(sizeof(order) == 24);

struct answer {
  order_kind kind = order_kind::put;
  std::uint32_t number = 0;
  std::uint64_t length = 0;
  friend bool operator==(const answer&, const answer&) = default;
};
static_assert(sizeof(answer) == 16);

template <class Frame>
std::span<std::byte> bytes_of(Frame& x) {
  return std::as_writable_bytes(std::span(&x, 1));
}

/// Whether the order is valid, and lies within that many bytes.
constexpr bool is_sound(const order& x, std::uint64_t memory_bytes) {
  if (x.kind == order_kind::end_stream)
    return x.length == 0 && stream_name::of_offset(x.offset).number < streams_most;
  return (x.kind == order_kind::put || x.kind == order_kind::get) && x.length > 0 && x.offset <= memory_bytes &&
         x.length <= memory_bytes - x.offset;
}

/// Compares in constant time, so that the duration does not reveal a common prefix.
inline bool same_token(const connection_token& a, const connection_token& b) {
  unsigned differ = 0;
  for (std::size_t i = 0; i < token_bytes; ++i)
    differ |= std::to_integer<unsigned>(a[i] ^ b[i]);
  return differ == 0;
}

} // namespace troupe::io::tcp
