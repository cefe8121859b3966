#pragma once

#include "config/node_config.hpp"

#include <caf/all.hpp>

namespace troupe {

/// The actor system's options, out of the node's own config; CAF reads neither files nor the command line itself.
class system_config : public caf::actor_system_config {
public:
  explicit system_config(const config::caf_config& options);
};

} // namespace troupe
