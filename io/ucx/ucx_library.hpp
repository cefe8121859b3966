#pragma once

#include "base/error.hpp"

#include <ucp/api/ucp.h>

/// The functions of UCX that are used, from a library that is loaded at run time.

#define TROUPE_UCP_FUNCTIONS(X)                                                                                        \
  X(ucp_config_read)                                                                                                   \
  X(ucp_config_modify)                                                                                                 \
  X(ucp_config_release)                                                                                                \
  X(ucp_init_version)                                                                                                  \
  X(ucp_cleanup)                                                                                                       \
  X(ucp_worker_create)                                                                                                 \
  X(ucp_worker_destroy)                                                                                                \
  X(ucp_worker_query)                                                                                                  \
  X(ucp_worker_release_address)                                                                                        \
  X(ucp_worker_get_efd)                                                                                                \
  X(ucp_worker_arm)                                                                                                    \
  X(ucp_worker_progress)                                                                                               \
  X(ucp_mem_map)                                                                                                       \
  X(ucp_mem_unmap)                                                                                                     \
  X(ucp_rkey_pack)                                                                                                     \
  X(ucp_rkey_buffer_release)                                                                                           \
  X(ucp_ep_create)                                                                                                     \
  X(ucp_ep_rkey_unpack)                                                                                                \
  X(ucp_rkey_destroy)                                                                                                  \
  X(ucp_put_nbx)                                                                                                       \
  X(ucp_get_nbx)                                                                                                       \
  X(ucp_ep_flush_nbx)                                                                                                  \
  X(ucp_ep_close_nbx)                                                                                                  \
  X(ucp_request_check_status)                                                                                          \
  X(ucp_request_free)

namespace troupe::io {

struct ucx_library {
// NOLINTNEXTLINE(bugprone-macro-parentheses): it is declared by this name.
#define TROUPE_UCP_MEMBER(name) decltype(&::name) name = nullptr;
  TROUPE_UCP_FUNCTIONS(TROUPE_UCP_MEMBER)
#undef TROUPE_UCP_MEMBER
  decltype(&::ucs_status_string) ucs_status_string = nullptr;

  /// Loads the library with the first call, and never unloads it. Restores the signal handlers that it replaces.
  /// Errors: `unsupported`.
  static result<const ucx_library*> load();

  error failed(ucs_status_t status, const char* doing) const;
};

} // namespace troupe::io
