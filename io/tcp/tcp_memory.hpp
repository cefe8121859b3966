#pragma once

#include "io/remote_memory.hpp"

#include <cstdint>
#include <memory>

/// Memory of another host, over TCP. The node connects to a listener of the client, proves that it was told of the
/// memory by a token, and says what to write to it and what to read, encrypted where that is wanted; the client's own
/// thread does both, and touches nothing else than this memory. So the node can do nothing to the process but that, and
/// nobody else anything.

namespace troupe::io {

/// The client's end: memory with a listener, and a thread, each. The listener is on `address`, an address of this host
/// in the byte order of the host, and is gone once the node has come. Says whether pages are encrypted on their way.
std::shared_ptr<memory_exposer> make_tcp_exposer(std::uint32_t address, bool encrypted);

/// The node's end: that many threads for all peers, at least one. Memory of which pages are not encrypted on their way
/// is refused where they have to be: `unsupported`. Errors: `io_error`.
result<std::shared_ptr<remote_mover>> make_tcp_mover(unsigned threads, bool encrypted);

} // namespace troupe::io
