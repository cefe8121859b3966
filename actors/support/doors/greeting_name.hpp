#pragma once

#include <caf/all.hpp>

#include <string>
#include <vector>

namespace troupe {

/// How a process with that id names itself when it greets.
inline std::string greeting_name(caf::actor_system& system, caf::node_id node) {
  std::vector<char> out;
  caf::binary_serializer sink(system, out);
  if (sink(node))
    return {};
  return {out.begin(), out.end()};
}

} // namespace troupe
