#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/host_address.hpp"
#include "base/unique_descriptor.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <sys/socket.h>
#include <vector>

/// TCP connections to hosts that may have several addresses, with errors that name the cause.

namespace troupe {

/// "HOST:PORT", or "[HOST]:PORT" where the host is an IPv6 address.
std::string endpoint_text(const std::string& host, std::uint16_t port);

struct socket_address {
  sockaddr_storage name{};
  socklen_t size = 0;

  /// For a socket of the address's family.
  static socket_address of(const host_address& address, std::uint16_t port) noexcept;

  bool is_ipv6() const noexcept { return name.ss_family == AF_INET6; }
  /// In host byte order.
  std::uint16_t port() const noexcept;
  /// The address without the port.
  std::string text() const;
};

/// Whether the host is given by an address, so that there is nothing to resolve.
bool is_numeric_host(const std::string& host);

/// How long a name may take by itself: long enough for a second name server after a silent one.
constexpr duration resolve_time = std::chrono::seconds(15);

/// All addresses of a host, as the resolver sorts them. Blocks for `limit` at most, and until `cancelled`, which is
/// asked now and then, is true; not for an address. Errors, which say that the name cannot be resolved: `unreachable`;
/// `timeout` where no name server has answered; `io_error` where no thread can be started. `cancelled`.
result<std::vector<socket_address>> resolve_host(const std::string& host, std::uint16_t port,
                                                 duration limit = resolve_time,
                                                 const std::function<bool()>& cancelled = {});

/// Connects to the first of the addresses that accepts, in the order of `connect_race`; blocks for `limit` at most, and
/// until `cancelled`, which is asked now and then, is true. The result does not block. Errors: `unreachable`, which
/// says for each address whether it refused or was silent; `timeout` where all were silent; `cancelled`.
result<unique_descriptor> connect_to_any(const std::vector<socket_address>& addresses, duration limit,
                                         const std::function<bool()>& cancelled = {});

bool is_ipv6_socket(int descriptor) noexcept;

} // namespace troupe
