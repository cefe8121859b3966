#include "io/tcp_socket.hpp"

#include "base/tcp_connect.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

namespace troupe::io {

result<unique_descriptor> connect_tcp(const std::string& host, std::uint16_t port, duration limit) {
  const auto found = resolve_host(host, port);
  if (!found)
    return tl::unexpected<error>(found.error());
  auto made = connect_to_any(*found, limit);
  if (!made)
    return fail(errc::unreachable, "cannot connect to " + endpoint_text(host, port) + ": " + made.error().text);
  return made;
}

std::uint16_t bound_port(int descriptor) noexcept {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &size) != 0)
    return 0;
  if (name.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(name).sin_port);
  if (name.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(name).sin6_port);
  return 0;
}

} // namespace troupe::io
