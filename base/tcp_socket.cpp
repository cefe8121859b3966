#include "base/tcp_socket.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

namespace troupe {

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

} // namespace troupe
