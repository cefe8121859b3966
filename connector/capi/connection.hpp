#pragma once

#include "connector/capi/boundary.hpp"
#include "connector/runtime.hpp"

#include <memory>

namespace troupe::capi {

/// The state that halves and pools share. Lives as long as the last of them.
struct connection_core {
  std::unique_ptr<connector::runtime> runtime;
};

/// The core of a usable handle.
result<std::shared_ptr<connection_core>> core_of(troupe_connection* connection);

} // namespace troupe::capi

struct troupe_connection : troupe::capi::handle {
  std::shared_ptr<troupe::capi::connection_core> core;
};
