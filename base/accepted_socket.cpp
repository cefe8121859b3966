#include "base/accepted_socket.hpp"

#include <cstddef>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <utility>

namespace troupe {

std::optional<held_socket> held_socket::hold(int descriptor) {
  // By now the number may be that of a file: a duplicate of one that is locked would end the lock when it is closed.
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0)
    return std::nullopt;
  unique_descriptor own(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  size = sizeof cookie;
  if (!own || ::getsockopt(own.get(), SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0)
    return std::nullopt;
  return held_socket(std::move(own), cookie);
}

void held_socket::shut_down() const noexcept {
  // A peer that keeps sending without reading would not notice the end, and the kernel would keep the connection for
  // it.
  const linger reset{1, 0};
  ::setsockopt(own_.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  ::shutdown(own_.get(), SHUT_RDWR);
}

std::uint64_t received_bytes(int descriptor) noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      size < offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received)
    return 0;
  return info.tcpi_bytes_received;
}

} // namespace troupe
