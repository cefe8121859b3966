#pragma once

#include "actors/node/namespaces/namespace_names.hpp"
#include "actors/node/registry/lookup_history.hpp"
#include "actors/node/supervisor/client_names.hpp"
#include "actors/node/supervisor/trace_file.hpp"
#include "actors/support/listeners/connected_peers.hpp"
#include "actors/support/listeners/node_roles.hpp"
#include "actors/support/listeners/outgoing_budget.hpp"
#include "actors/support/node_condition.hpp"
#include "base/error.hpp"
#include "base/memory_budget.hpp"
#include "base/unique_descriptor.hpp"
#include "config/node_config.hpp"
#include "events/counters.hpp"
#include "events/feed.hpp"
#include "io/claims/claim_keeper.hpp"
#include "io/data_directory.hpp"
#include "io/memory/extent_source.hpp"
#include "io/slab/disk_budget.hpp"
#include "lmcache/counters.hpp"
#include "messages/messages.hpp"
#include "metrics/request_latencies.hpp"
#include "store/metadata_store.hpp"

#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// A description of what a node has opened, for status output.
struct opened_parts {
  /// The kind of memory of the arena, and whether it is locked, as of now. Thread-safe.
  std::function<std::string()> memory;
  /// The number of slab files of the config, and how they are read and written, and the bytes for namespaces that
  /// clients make; empty if there are neither.
  std::string slabs;
  /// Set if some slab files go through the page cache although the config asks for direct I/O; or are used without
  /// io_uring although the config leaves the choice to the node.
  bool buffered = false;
  bool without_io_uring = false;
  /// The amount of memory that can never hold a page, and why; empty if there is none.
  std::string unusable_memory{};
};

/// What protocols besides the node's own share with it. Null where they are not served.
struct node_protocols {
  std::shared_ptr<lmcache::counters> lmcache{};
  /// Receives what is to be published about keys, and counts it.
  std::shared_ptr<events::feed> feed{};
  std::shared_ptr<const events::counters> events{};
};

/// Handles for interfaces to the node that are no CAF clients, such as HTTP.
struct node_services : node_protocols {
  node_actor node;
  reception_actor reception;
  std::vector<registry_actor> shards;
  namespaces_actor namespaces;
  metrics_actor metrics;
  /// The namespaces of the config, whose pages lie in the node's own slabs.
  std::vector<namespace_id> own_namespaces;
  /// The budget for memory of ranks, keys and leases.
  shared_budget memory;
  /// Whether the node is degraded.
  std::shared_ptr<node_condition> condition;
  /// The secret for hashing textual keys. It stays the same as long as the index exists.
  std::array<std::byte, 32> key_secret{};
  /// The names of namespaces.
  std::shared_ptr<const namespace_names> names;
  /// The budget for slab files of namespaces that clients create.
  std::shared_ptr<const io::disk_budget> disk;
  /// Null if the config has none.
  directory_actor directory;
  /// The arena.
  std::shared_ptr<io::extent_source> extents;
  opened_parts opened;
  /// The last lookups, one history for each shard; empty where they are not kept.
  std::vector<std::shared_ptr<const lookup_history>> lookups;
  /// The names of clients, attached or not any more. Never null.
  std::shared_ptr<client_names> clients = std::make_shared<client_names>();
  /// The latencies of requests, as counted by the metrics actor.
  std::shared_ptr<const request_latencies> latencies;
  /// The roles of the peers that are connected.
  std::shared_ptr<node_roles> roles = std::make_shared<node_roles>();
  /// The processes of this host that are connected by the node's Unix socket.
  std::shared_ptr<connected_peers> peers = std::make_shared<connected_peers>();
  /// The budget for bytes to be sent to clients in other processes.
  std::shared_ptr<outgoing_budget> outgoing{};
};

/// A running node with all its actors. `stop` ends it; the directory stays locked until then.
class running_node {
public:
  running_node(node_actor supervisor, std::vector<caf::actor> children, node_services services,
               std::shared_ptr<store::metadata_store> store, io::directory_lock lock,
               std::unique_ptr<io::claim_keeper> claim)
      : supervisor_(std::move(supervisor)), directory_lock_(std::move(lock)), claim_(std::move(claim)),
        children_(std::move(children)), services_(std::move(services)), store_(std::move(store)) {}

  const node_actor& supervisor() const noexcept { return supervisor_; }
  /// The actor to which clients of this process attach.
  const reception_actor& reception() const noexcept { return services_.reception; }
  const node_services& services() const noexcept { return services_; }

  /// The claim on the data directory; null where no other host can reach it.
  io::claim_keeper* claim() const noexcept { return claim_.get(); }

  /// The lock of the data directory. For one thread at a time.
  io::directory_lock& lock() noexcept { return directory_lock_; }

  /// Sets the recorder of lookups, which is kept until the node has stopped.
  void record(std::unique_ptr<trace_file> recorded) { recorded_ = std::move(recorded); }

  /// Drains within `drain_timeout`, and ends all actors of the node; afterwards slabs and store are closed, and another
  /// node may open them. Blocks; must not be called by an actor. The error names what was not drained.
  result<void> stop(caf::actor_system& system, duration drain_timeout);

private:
  node_actor supervisor_;
  io::directory_lock directory_lock_;
  /// Null where no other host can reach the data directory. It must outlive everything that writes there.
  std::unique_ptr<io::claim_keeper> claim_;
  /// The children, whose ends `stop` waits for.
  std::vector<caf::actor> children_;
  node_services services_;
  /// Null if lookups are not recorded.
  std::unique_ptr<trace_file> recorded_;
  /// Null if the index is not durable.
  std::shared_ptr<store::metadata_store> store_;
};

/// Creates everything that a node needs, slab files first, and spawns its actors. Nothing keeps running when it fails.
/// With `registry.durability`, the node starts with the index of the previous run. Otherwise it starts empty: pages of
/// an earlier run in slab files are not served, which is logged. Blocks, for some seconds where a slab is still in use.
///
/// Errors: those of `io::lock_data_directory` and `io::open_slab_store`.
result<std::unique_ptr<running_node>> start_node(caf::actor_system& system, const config::node_config& options,
                                                 node_protocols protocols = {});

} // namespace troupe
