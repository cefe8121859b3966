#pragma once

#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/listeners/listeners.hpp"
#include "base/error.hpp"
#include "config/node_config.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

namespace troupe {

/// The listeners of a node; none where there are no namespaces to attach to and clients cannot create any. Destroyed
/// before the node; the socket file is then removed.
struct node_listeners {
  std::unique_ptr<listeners> open;
  /// The path of the Unix socket; empty if there is none.
  std::filesystem::path socket;
  std::optional<std::uint16_t> port;
};

/// The path of the socket of a node with this config; empty if it has none.
std::filesystem::path socket_path(const config::node_config& options);

/// Checks whether the TCP port can be opened now and the certificates load; the error names the obstacle.
result<void> check_listeners(const config::node_config& options);

/// Opens the configured listeners. The caller holds the lock of `data_dir`. Errors name the key to change.
result<node_listeners> open_listeners(caf::actor_system& system, const running_node& node,
                                      const config::node_config& options);

} // namespace troupe
