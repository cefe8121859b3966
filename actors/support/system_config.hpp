#pragma once

#include "base/error.hpp"
#include "config/node_config.hpp"

#include <caf/all.hpp>

#include <cstddef>

namespace troupe {

/// The actor system's options, out of the node's own config; CAF reads neither files nor the command line itself.
class system_config : public caf::actor_system_config {
public:
  explicit system_config(const config::caf_config& options);

  /// Whether an actor system can start: CAF ends the process, or hangs, where it gets too few threads or open files. To
  /// be asked right before one is made. `more_threads`: those that it makes at once beside CAF's own. Errors:
  /// `io_error`.
  result<void> check_room(std::size_t more_threads = 0) const;
};

} // namespace troupe
