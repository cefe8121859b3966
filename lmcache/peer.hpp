#pragma once

#include <cstdint>
#include <optional>
#include <sys/types.h>

/// The peer of a TCP connection on this host, as far as /proc shows it.

namespace troupe::lmcache {

/// The socket of the peer.
struct peer_socket {
  std::uint64_t inode = 0;
  /// Its user.
  uid_t user = 0;
};

/// Finds the peer of the socket with this descriptor; IPv4, IPv6, and IPv4 that one end has mapped into IPv6. None if
/// the peer is not on this host, is in another network namespace, or has been closed: then its user cannot be
/// determined. Takes milliseconds if there are many connections.
std::optional<peer_socket> find_peer(int descriptor);

/// The process with this socket; 0 if it cannot be determined: it runs in another process namespace, or as a user whose
/// files this process may not read. If the socket was passed on, either process may be returned. Searches all processes
/// of the host.
std::int32_t process_with(const peer_socket& socket);

} // namespace troupe::lmcache
