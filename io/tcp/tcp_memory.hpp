#pragma once

#include "io/remote_memory.hpp"

#include <cstdint>
#include <memory>

/// Access to memory of another host over TCP. The node connects to a listener of the client, authenticates with a
/// token, and sends orders to write and read the memory, encrypted if configured. The client's own thread carries them
/// out and touches no other memory. So an authenticated node can only access this memory, and other processes nothing.

namespace troupe::io {

/// Makes the client's end: each memory has a listener and a thread. The listener is on `address`, an address of this
/// host in host byte order, and is closed once the node has connected. `encrypted`: whether transfers are encrypted.
std::shared_ptr<memory_exposer> make_tcp_exposer(std::uint32_t address, bool encrypted);

/// Makes the node's end, with `threads` for all peers, at least one. With `encrypted`, peers without encryption are
/// refused: `unsupported`. Errors: `io_error`.
result<std::shared_ptr<remote_mover>> make_tcp_mover(unsigned threads, bool encrypted);

} // namespace troupe::io
