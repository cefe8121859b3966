#pragma once

#include "base/namespace_spec.hpp"
#include "http/server/json_body.hpp"
#include "messages/registry_admin_messages.hpp"

/// Reads the body that creates a namespace: its spec, with the shape of its KV cache.

namespace troupe::http::native {

struct create_body {
  namespace_spec spec;
  namespace_options options;
};
accepted<create_body> read_create(const request& r);

} // namespace troupe::http::native
