#pragma once

#include <cstdint>
#include <optional>
#include <sys/types.h>

/// Who is at the other end of a TCP connection of this host, as far as /proc tells.

namespace troupe::lmcache {

/// The socket at the other end.
struct peer_socket {
  std::uint64_t inode = 0;
  /// Whose it is.
  uid_t user = 0;
};

/// By the descriptor of this end; IPv4, IPv6, and IPv4 that one end has mapped into IPv6. Nothing if the other one is
/// not on this host, or in another network namespace, or has been closed: then nobody knows any more whose it was.
/// Takes milliseconds where there are many connections.
std::optional<peer_socket> find_peer(int descriptor);

/// The process that has this socket; 0 where that cannot be told: it runs in another process namespace, or as somebody
/// whose files this process may not look at. One that has handed the socket on may be named as well as the one that has
/// it now. Looks through all processes of the host.
std::int32_t process_with(const peer_socket& socket);

} // namespace troupe::lmcache
