#pragma once

#include "base/error.hpp"
#include "config/node_config.hpp"

#include <caf/all.hpp>

#include <cstddef>

namespace troupe {

/// The options of the actor system, from the node's own config; CAF itself reads neither files nor the command line.
class system_config : public caf::actor_system_config {
public:
  explicit system_config(const config::caf_config& options);

  /// Checks that there are enough threads and file descriptors for an actor system; without them CAF ends the process,
  /// or hangs. To be called right before one is created. `more_threads`: threads that the caller creates at once
  /// besides CAF's own. Errors: `io_error`.
  result<void> check_room(std::size_t more_threads = 0) const;
};

} // namespace troupe
