#pragma once

#include <caf/all.hpp>

#include <string>
#include <vector>

namespace troupe {

/// The name that a process with that id sends in its handshake.
inline std::string handshake_name(caf::actor_system& system, caf::node_id node) {
  std::vector<char> out;
  caf::binary_serializer sink(system, out);
  if (sink(node))
    return {};
  return {out.begin(), out.end()};
}

} // namespace troupe
