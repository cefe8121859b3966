#pragma once

#include "base/clock.hpp"
#include "config/node_config.hpp"
#include "io/memory/remote_memory.hpp"

#include <cstdint>
#include <memory>
#include <string>

/// The transport of pages between hosts that the config names: `io/tcp` or `io/ucx`.

namespace troupe {

/// The client's end, for the node that listens there; port 0: on this host, through a Unix socket. Memory is exposed at
/// the address by which this host reaches the node, which `limit` bounds. No socket is opened and no library is loaded
/// until memory is exposed.
std::shared_ptr<io::memory_exposer> make_memory_exposer(const config::remote_config& how, std::string host,
                                                        std::uint16_t port, duration limit);

/// The node's end. Errors: `unsupported` where this build does not have the transport, `io_error` where it cannot be
/// started.
result<std::shared_ptr<io::remote_mover>> make_remote_mover(const config::remote_config& how);

/// The most connections of an attachment over TCP.
std::uint32_t streams_of(const config::remote_config& how) noexcept;

} // namespace troupe
