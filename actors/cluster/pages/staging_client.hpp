#pragma once

#include "actors/client/node_client.hpp"
#include "actors/cluster/pages/inbound_transfers.hpp"
#include "actors/cluster/pages/staging_buffer.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace troupe::cluster {

/// The limit for each of attaching, binding and leaving, which run one after the other.
inline constexpr auto session_limit = std::chrono::seconds(3);

/// The shape and staging buffers of a namespace here, which a peer's namespace has to match.
struct namespace_here {
  kv_geometry geometry{};
  std::vector<std::shared_ptr<staging_buffer>> memory{};
};

/// A client that is attached to a namespace.
struct opened_client {
  /// What ends its actors; null in a simulation, which ends them itself.
  std::shared_ptr<node_client> client;
  /// Its coordinators: for lookups, and for each rank.
  lookup_actor lookup{};
  std::vector<transfer_actor> load{};
  std::vector<transfer_actor> save{};
  attach_reply node;
  std::vector<std::shared_ptr<staging_buffer>> memory;
  /// The number of pages that each rank copies at the same time.
  std::uint32_t copies_at_once = 1;
  /// The inbound transfers of each rank, where the namespace is this node's own: its client saves pages from there.
  std::vector<std::shared_ptr<inbound_transfers>> coming{};
};

/// Attaches a client to a namespace of a node, and its ranks to staging buffers: those in `like`, or, for this node's
/// own namespace, where `like` is empty, new ones of `memory_bytes` for each rank. Blocks for up to twice
/// `session_limit`. Errors: those of the client; a namespace that differs from `like`.
result<opened_client> open_staging_client(caf::actor_system& system, const node_client::options& how,
                                          link_options where, const namespace_id& ns, std::uint64_t memory_bytes,
                                          const std::optional<namespace_here>& like);

} // namespace troupe::cluster
