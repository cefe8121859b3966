#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <cstdint>
#include <string>

/// TCP connections, with errors that say what is wrong.

namespace troupe::io {

/// "HOST:PORT", or "[HOST]:PORT" where the host is an address of IPv6.
std::string endpoint_text(const std::string& host, std::uint16_t port);

/// Connects within `limit`, and blocks so long. Errors: `unreachable`, saying whether the host is unknown, nobody
/// listens there, or nothing came back.
result<unique_descriptor> connect_tcp(const std::string& host, std::uint16_t port, duration limit);

/// The port a socket is bound to; 0 if it is none of TCP's.
std::uint16_t bound_port(int descriptor) noexcept;

} // namespace troupe::io
