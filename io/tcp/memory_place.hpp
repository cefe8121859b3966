#pragma once

#include "base/error.hpp"
#include "io/memory/remote_memory.hpp"
#include "io/tcp/memory_frames.hpp"
#include "io/tcp/tcp_stream.hpp"

#include <cstdint>
#include <vector>

namespace troupe::io::tcp {

/// The most addresses of one memory.
inline constexpr std::size_t addresses_most = 16;

/// Where exposed memory is reached, as its name carries it in bytes: the format, whether connections are encrypted, how
/// many are admitted, and where; the key of the name is the token. With one address this is the port in network byte
/// order, and 4 bytes of an IPv4 address or 16 of an IPv6 address. With several (another format, which earlier versions
/// refuse) it is their number, and of each the port and 16 bytes, as in `host_address`.
struct memory_place {
  /// One to `addresses_most`, each of another interface of its host.
  std::vector<endpoint> where;
  bool encrypted = false;
  std::uint32_t streams = 1;

  /// Where that connection goes: connections take turns. One that is opened again tries the next address, as that of
  /// the last attempt may have lost its network.
  const endpoint& of(const stream_name& which) const noexcept {
    return where[(which.number + which.attempt) % where.size()];
  }

  std::vector<std::uint8_t> bytes() const;
  /// Errors: `invalid_argument`, for the name of memory of another transport or version.
  static result<memory_place> parse(const remote_memory_name& name);
};

} // namespace troupe::io::tcp
