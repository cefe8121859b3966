#pragma once

#include "actors/node/directory/directory_records.hpp"
#include "actors/node/namespaces/namespaces.hpp"
#include "base/error.hpp"
#include "base/write_gate.hpp"
#include "config/node_config.hpp"
#include "events/feed.hpp"
#include "messages/messages.hpp"
#include "store/metadata_store.hpp"

#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// Opens the store of a node below its data directory; null where the config has none. Errors such as `busy` and
/// `corrupt` come from the store. `gate`: whether the store may be written.
result<std::shared_ptr<store::metadata_store>>
open_index(const config::node_config& options, std::shared_ptr<const write_gate> gate = write_gate::always_open());

/// What a store has besides pages: namespaces and ranks that clients registered at run time.
struct known_namespaces {
  std::vector<add_namespace_request> namespaces;
  std::vector<known_rank> ranks;
  /// Those whose pages the node keeps; the keeper has opened what serves them, and will end it.
  std::vector<served_namespace> made;
  restored_handshakes handshakes;
};

/// Restores trusted records of the store to shards and allocators, before any other request reaches them, and erases
/// the rest. Then begins a new epoch of the data directory and records it in the store. Blocks.
///
/// `own_ranks` are the ranks of the config's namespaces, which the shards already know. All other namespaces are
/// registered with the shards, with an allocator for each of their ranks. `events`: where the shards report changes of
/// described keys; null where the node publishes no events.
result<known_namespaces> restore_index(caf::actor_system& system, store::metadata_store& from,
                                       const namespaces_config& shards, const config::node_config& options,
                                       std::span<const known_rank> own_ranks,
                                       const write_gate& gate = *write_gate::always_open(),
                                       const events::feed* events = nullptr);

/// For a run without a store: begins an epoch of the data directory that no index knows, so that an existing index is
/// not trusted any more. To be called before the node serves anything.
result<void> leave_index_aside(const config::node_config& options, const write_gate& gate = *write_gate::always_open());

} // namespace troupe
