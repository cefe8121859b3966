#pragma once

#include "actors/client/node_client.hpp"
#include "actors/cluster/arrivals.hpp"
#include "actors/cluster/passing_memory.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace troupe::cluster {

/// For attaching, binding and leaving, which happen one after the other.
inline constexpr auto tie_limit = std::chrono::seconds(3);

/// A namespace as it is here, which one of a peer has to be like.
struct space_here {
  kv_geometry geometry{};
  std::vector<std::shared_ptr<passing_memory>> memory{};
};

/// A namespace, opened in the opener's thread.
struct opened_client {
  std::shared_ptr<node_client> client;
  attach_reply node;
  std::vector<std::shared_ptr<passing_memory>> memory;
  /// Pages that each rank copies at the same time.
  std::uint32_t copies_at_once = 1;
  /// Of each rank, where it is of this node itself: what its client saves comes from there.
  std::vector<std::shared_ptr<arrivals>> coming{};
};

/// Attaches a client to a namespace of a node, its ranks to passing memory: that of the namespace as it is here, or, of
/// this node itself, where nothing is said of how it is here, memory of so many bytes for each rank. Blocks for up to
/// twice `tie_limit`. Errors: those of the client; what is different there from here.
result<opened_client> open_passing_client(caf::actor_system& system, const node_client::options& how,
                                          link_options where, const namespace_id& space, std::uint64_t memory_bytes,
                                          const std::optional<space_here>& like);

} // namespace troupe::cluster
