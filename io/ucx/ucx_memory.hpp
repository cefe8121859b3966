#pragma once

#include "io/remote_memory.hpp"

#include <memory>
#include <string>

/// Memory of another host, through UCX, which knows TCP, RDMA over InfiniBand and Ethernet, and more. The library is
/// loaded when the first of these is made, so that processes which never leave their host run nothing of it.

namespace troupe::io {

struct ucx_options {
  /// As UCX_TLS.
  std::string transports = "tcp,self";
  /// As UCX_NET_DEVICES; empty: whichever UCX chooses.
  std::string interfaces{};
};

/// The client's end: memory with an address and a thread of its own each. Errors: `unsupported` where this was built
/// without UCX, or the library cannot be loaded.
result<std::shared_ptr<memory_exposer>> make_ucx_exposer(const ucx_options& options);

/// The node's end: an address and a thread of its own for each peer, so that what goes wrong with one, also within
/// UCX, is not the others'. Errors: as above; `io_error` where UCX cannot be started
/// this way.
result<std::shared_ptr<remote_mover>> make_ucx_mover(const ucx_options& options);

} // namespace troupe::io
