#pragma once

#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/doors/doors.hpp"
#include "base/error.hpp"
#include "config/node_config.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

namespace troupe {

/// By what others reach a node; nothing where there are no namespaces to attach to,
/// and clients make none. Ends before the node, and
/// removes its socket then.
struct node_doors {
  std::unique_ptr<doors> open;
  /// Empty if there is none.
  std::filesystem::path socket;
  std::optional<std::uint16_t> port;
};

/// Where a node with this config has its socket; empty if it has none.
std::filesystem::path socket_path(const config::node_config& options);

/// What the config says of connections; for nodes and for clients.
door_options options_of_doors(const config::actors_config& options);

/// Whether the TCP port could be opened now, and its certificates load; the error says what is in the way.
result<void> check_doors(const config::node_config& options);

/// Opens what the config asks for. The caller holds the lock of `data_dir`. Errors say which key to change.
result<node_doors> open_doors(caf::actor_system& system, const running_node& node, const config::node_config& options);

} // namespace troupe
