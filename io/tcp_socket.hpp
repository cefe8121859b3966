#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <cstdint>
#include <string>

/// TCP connections, with errors that name the cause.

namespace troupe::io {

/// Connects within `limit`; blocks until then at most. Error: `unreachable`, which says whether the host is unknown,
/// the connection was refused, or it timed out.
result<unique_descriptor> connect_tcp(const std::string& host, std::uint16_t port, duration limit);

/// The port a socket is bound to; 0 if it is not a TCP socket.
std::uint16_t bound_port(int descriptor) noexcept;

} // namespace troupe::io
