#pragma once

#include "actors/node/namespaces/namespace_names.hpp"
#include "actors/node/supervisor/trace_file.hpp"
#include "actors/support/doors/connected_peers.hpp"
#include "actors/support/doors/node_roles.hpp"
#include "actors/support/doors/outgoing_budget.hpp"
#include "base/error.hpp"
#include "base/memory_budget.hpp"
#include "base/node_condition.hpp"
#include "base/unique_descriptor.hpp"
#include "config/node_config.hpp"
#include "io/claim_keeper.hpp"
#include "io/data_directory.hpp"
#include "io/disk_budget.hpp"
#include "io/extent_source.hpp"
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

/// What a node has opened, for people.
struct opened_parts {
  /// In what the arena lies, and whether it is locked, as of now. Thread-safe.
  std::function<std::string()> memory;
  /// How many slab files of the config there are, and how they are read and written; empty if there are none.
  std::string slabs;
  /// Some of them go through the page cache, although the config asks for direct I/O; or without io_uring, although it
  /// leaves the choice to the node.
  bool buffered = false;
  bool without_io_uring = false;
  /// That much of the memory can never hold a page, and why; empty if that is not so.
  std::string unusable_memory{};
};

/// What an interface to the node that is no client of CAF needs, such as HTTP.
struct node_services {
  node_actor node;
  reception_actor reception;
  std::vector<registry_actor> shards;
  namespaces_actor namespaces;
  metrics_actor metrics;
  /// Namespaces of the config, whose pages lie in the node's own slabs.
  std::vector<namespace_id> own_spaces;
  /// Memory of ranks, keys and leases.
  shared_budget memory;
  /// Whether the node is degraded.
  std::shared_ptr<node_condition> condition;
  /// Hashes keys that are text. Stays the same as long as the index does.
  std::array<std::byte, 32> key_secret{};
  /// Which namespace has which name.
  std::shared_ptr<const namespace_names> names;
  /// Of slab files of namespaces that clients make.
  std::shared_ptr<const io::disk_budget> disk;
  /// Null if the config wants none.
  directory_actor directory;
  /// The arena.
  std::shared_ptr<io::extent_source> extents;
  /// Null if clients of LMCache are not served.
  std::shared_ptr<lmcache::counters> lmcache;
  opened_parts opened;
  /// How long requests have taken, as the metrics actor counts them.
  std::shared_ptr<const request_latencies> latencies;
  /// Who has come in by the node's doors.
  std::shared_ptr<node_roles> roles = std::make_shared<node_roles>();
  /// Which processes of this host have come in by the node's Unix socket.
  std::shared_ptr<connected_peers> peers = std::make_shared<connected_peers>();
  /// Bytes that are on their way to clients of other processes.
  std::shared_ptr<outgoing_budget> outgoing{};
};

/// A node with all its actors. Ends with `stop`; the directory stays locked until then.
class running_node {
public:
  running_node(node_actor supervisor, std::vector<caf::actor> children, node_services services,
               std::shared_ptr<store::metadata_store> store, io::directory_lock lock,
               std::unique_ptr<io::claim_keeper> claim)
      : supervisor_(std::move(supervisor)), directory_lock_(std::move(lock)), claim_(std::move(claim)),
        children_(std::move(children)), services_(std::move(services)), store_(std::move(store)) {}

  const node_actor& supervisor() const noexcept { return supervisor_; }
  /// Where clients of this process attach.
  const reception_actor& reception() const noexcept { return services_.reception; }
  const node_services& services() const noexcept { return services_; }

  /// On the data directory; null where no other host can reach it.
  io::claim_keeper* claim() const noexcept { return claim_.get(); }

  /// Of the data directory. By one thread at a time.
  io::directory_lock& lock() noexcept { return directory_lock_; }

  /// Kept until the node has stopped.
  void record(std::unique_ptr<trace_file> recorded) { recorded_ = std::move(recorded); }

  /// Drains, within the config's limit, and ends all actors of the node: afterwards slabs and store are closed, and
  /// another node may open them. Blocks; must not be called by an actor. The error says what did not come to rest.
  result<void> stop(caf::actor_system& system, duration drain_timeout);

private:
  node_actor supervisor_;
  io::directory_lock directory_lock_;
  /// Null where no other host can reach the data directory. Ends after all that writes there.
  std::unique_ptr<io::claim_keeper> claim_;
  /// Its children, to see them end.
  std::vector<caf::actor> children_;
  node_services services_;
  /// Null if lookups are not recorded.
  std::unique_ptr<trace_file> recorded_;
  /// Null if the index is not durable.
  std::shared_ptr<store::metadata_store> store_;
};

/// Makes everything a node needs, slab files first, and spawns its actors. Nothing keeps running when it fails.
/// With `registry.durability`, it starts with the index of the run before; else empty: pages left in slab files by an
/// earlier run are not served, which is logged. Blocks, for some seconds where a slab is still in use.
///
/// Errors: those of `io::lock_data_directory` and `io::open_slab_store`.
result<std::unique_ptr<running_node>> start_node(caf::actor_system& system, const config::node_config& options,
                                                 std::shared_ptr<lmcache::counters> lmcache = nullptr);

} // namespace troupe
