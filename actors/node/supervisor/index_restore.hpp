#pragma once

#include "actors/node/directory/directory_journal.hpp"
#include "actors/node/namespaces/namespaces.hpp"
#include "base/error.hpp"
#include "base/write_gate.hpp"
#include "config/node_config.hpp"
#include "messages/messages.hpp"
#include "store/metadata_store.hpp"

#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// Opens the store of a node, below its data directory; null where the config wants none. `busy`, `corrupt` and others
/// come from the store.
/// `gate`: whether it may be written; null where nobody else could take it over.
result<std::shared_ptr<store::metadata_store>> open_index(const config::node_config& options,
                                                          std::shared_ptr<const write_gate> gate = nullptr);

/// What was found in a store besides pages: namespaces and ranks that clients registered at run time.
struct known_namespaces {
  std::vector<add_namespace_request> spaces;
  std::vector<known_rank> ranks;
  /// Those whose pages the node keeps: what serves them was opened by the keeper, which ends it.
  std::vector<served_space> made;
  restored_handshakes handshakes;
};

/// Gives shards and allocators what of the store may be believed, before anybody else talks to them, and erases the
/// rest; then begins a new epoch of the data directory, of which the store knows. Blocks.
///
/// `own_ranks` are the ranks of the config's namespaces, which the shards know without them. All other namespaces are
/// made known to the shards, with an allocator for each of their ranks.
result<known_namespaces> restore_index(caf::actor_system& system, store::metadata_store& from,
                                       const namespaces_config& shards, const config::node_config& options,
                                       std::span<const known_rank> own_ranks, const write_gate* gate = nullptr);

/// For a run without a store: begins an epoch of the data directory of which no index knows, so that one that is there
/// is not believed any more. Before anything is served.
result<void> leave_index_aside(const config::node_config& options, const write_gate* gate = nullptr);

} // namespace troupe
