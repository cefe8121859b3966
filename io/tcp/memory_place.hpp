#pragma once

#include "base/error.hpp"
#include "io/memory/remote_memory.hpp"
#include "io/tcp/tcp_stream.hpp"

#include <cstdint>
#include <vector>

namespace troupe::io::tcp {

/// The address of exposed memory, as its name carries it in bytes: the format, whether connections are encrypted, how
/// many are admitted, the port in network byte order, and 4 bytes of an IPv4 address or 16 of an IPv6 address. The key
/// of the name is the token.
struct memory_place {
  endpoint where;
  bool encrypted = false;
  std::uint32_t streams = 1;

  std::vector<std::uint8_t> bytes() const;
  /// Errors: `invalid_argument`, for the name of memory of another transport or version.
  static result<memory_place> parse(const remote_memory_name& name);
};

} // namespace troupe::io::tcp
