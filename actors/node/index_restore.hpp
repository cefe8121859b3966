#pragma once

#include "actors/namespaces/namespaces.hpp"
#include "base/error.hpp"
#include "config/node_config.hpp"
#include "messages/messages.hpp"
#include "store/metadata_store.hpp"

#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// Opens the store of a node, below its data directory; null where the config wants none. `busy`, `corrupt` and others
/// come from the store.
result<std::shared_ptr<store::metadata_store>> open_index(const config::node_config& options);

/// What was found in a store besides pages: namespaces and ranks that clients registered at run time.
struct known_namespaces {
  std::vector<add_namespace_request> spaces;
  std::vector<known_rank> ranks;
};

/// Gives shards and allocators what the store has, before anybody else talks to them. Blocks.
///
/// `own` are the namespaces of the config, which the shards know already, and `own_ranks` their ranks, which they do
/// not. All others are made known to the shards, with an allocator for each of their ranks.
result<known_namespaces> restore_index(caf::actor_system& system, store::metadata_store& from,
                                       const namespaces_config& shards, std::span<const namespace_spec> own,
                                       std::span<const known_rank> own_ranks);

} // namespace troupe
