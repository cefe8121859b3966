#pragma once

#include "io/memory/remote_memory.hpp"

#include <memory>
#include <string>

/// Access to memory of another host through UCX, which supports TCP, RDMA over InfiniBand and Ethernet, and more. The
/// library is loaded when the first of these is made, so processes that use only their own host never load it.

namespace troupe::io {

struct ucx_options {
  /// The value of UCX_TLS.
  std::string transports = "tcp,self";
  /// The value of UCX_NET_DEVICES; empty: UCX chooses.
  std::string interfaces{};
};

/// Makes the client's end: each memory has an address and a thread. Errors: `unsupported` where this was built without
/// UCX, or the library cannot be loaded.
result<std::shared_ptr<memory_exposer>> make_ucx_exposer(const ucx_options& options);

/// Makes the node's end: each peer has an address and a thread, so that a failure of one, also within UCX, does not
/// affect the others. Errors: as above; `io_error` where UCX cannot start with these options.
result<std::shared_ptr<remote_mover>> make_ucx_mover(const ucx_options& options);

} // namespace troupe::io
