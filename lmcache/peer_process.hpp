#pragma once

#include <cstdint>

namespace troupe::lmcache {

/// The process of this host that holds the other end of a TCP connection, by its descriptor here; 0 where that cannot
/// be told: it runs on another host, in another process namespace, or as somebody whose files this process may not look
/// at. Reads /proc: takes milliseconds. A process that has handed the connection on may be named as well as the one
/// that has it now.
std::int32_t peer_process(int descriptor);

} // namespace troupe::lmcache
