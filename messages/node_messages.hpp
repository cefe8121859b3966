#pragma once

#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "base/namespace_spec.hpp"
#include "messages/actors.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// How a client attaches to a node, and how the actors of a node and of a client learn of each other. These messages
/// carry actor handles.

namespace troupe {

/// Version of everything in messages/. A node refuses clients with another one.
inline constexpr std::uint32_t protocol_version = 20;

/// How a client names the namespace that it attaches to.
enum class namespace_wish : std::uint8_t {
  /// By its name.
  named,
  /// By its full description: a namespace with another identity is refused.
  exact,
  /// The same; the node makes the namespace where there is none.
  made,
};

/// Values of `attach_request::home` that have a meaning.
inline constexpr std::string_view home_elsewhere = "elsewhere";
inline constexpr std::string_view home_in_node = "node";

struct attach_request {
  std::uint32_t protocol = protocol_version;
  std::string client_name;
  std::int32_t process = 0;
  /// `home_elsewhere`: the client is to be treated as one on another host. `home_in_node`, which counts only from an
  /// actor of the node's own process: that actor moves the pages of `process`, and ends the attachment itself, so the
  /// end of the process alone does not. Other values are ignored, as is `process` unless an actor of the node's own
  /// process sends it: the connection proves which process a client is.
  std::string home{};
  /// The name of the requested namespace; empty for the node's first.
  std::string namespace_name;
  namespace_wish wish = namespace_wish::named;
  /// Used unless `wish` is `named`; `namespace_name` is ignored then.
  namespace_spec ns;
  /// Set: the client is a node of this cluster, which looks up and fetches, and does not write.
  std::string cluster{};
};

/// The io worker and slots of one rank of the namespace.
struct rank_endpoint {
  rank_number rank = 0;
  std::uint64_t slots = 0;
  client_worker_actor worker;
  /// Only sent to nodes of the cluster, where the storage is shared.
  shared_slab slab{};
};

/// A client's limits at a node.
struct client_limits {
  /// The most bytes that it may have pinned at once, per rank.
  std::uint64_t pinned_bytes = 0;
  std::uint32_t batch_keys = 0;
  std::uint32_t batch_pages = 0;
  duration lease{};
  duration reservation{};
};

/// The handles are for this client only: they serve it alone, and end with it.
struct attach_reply {
  owner_id owner = 0;
  std::string node_name{};
  /// The digest of the whole spec, including its salt.
  namespace_id ns_id{};
  /// Without its salt, which is secret.
  namespace_spec ns{};
  client_limits limits{};
  /// The memory that pages are gathered into and scattered from.
  arena_info arena{};
  std::vector<client_shard_actor> shards{};
  std::vector<rank_endpoint> ranks{};
  /// Null where there are no other nodes.
  client_cluster_actor cluster{};
  /// The node publishes events, and so wants to know what they should say about the client's pages.
  bool wants_descriptions = false;
};

/// What a save or load coordinator needs of its node.
struct coordinator_binding {
  owner_id owner = 0;
  /// Distinguishes the tickets of an owner's coordinators.
  std::uint32_t ticket_stream = 0;
  client_limits limits;
  std::vector<client_shard_actor> shards;
  client_worker_actor worker;
  /// The most pages that this coordinator may have pinned at once.
  std::uint32_t window_pages = 0;
  /// The slab file where the rank's pages may be read without the node.
  shared_slab slab{};
};

struct lookup_binding {
  owner_id owner = 0;
  std::uint32_t ticket_stream = 0;
  namespace_id ns;
  client_limits limits;
  std::vector<client_shard_actor> shards;
  /// Fetches missing pages from peers; null if there are none.
  client_cluster_actor cluster{};
  bool wants_descriptions = false;
};

/// A client's actors for one rank.
struct client_rank {
  rank_number rank = 0;
  copy_engine_actor copier;
  transfer_actor load;
  transfer_actor save;
};

/// All of a client's actors that use the node.
struct client_parts {
  lookup_actor lookup;
  std::vector<client_rank> ranks;
};

/// Sent to each shard and allocator of a node once, when all have been started; a repetition is answered `exists`.
struct registry_peers {
  std::vector<registry_actor> shards;
  std::vector<allocator_actor> allocators;
  /// Parallel to `allocators`.
  std::vector<namespace_id> namespaces;
  std::vector<rank_number> ranks;
  /// Parallel to `allocators`, or empty: the io workers that are notified of what lookups find, null where there is
  /// none.
  std::vector<io_worker_actor> workers{};
};

/// Registers a rank of a namespace, with its slots and its allocator. A repetition with the same values is no error.
/// Another number of slots is identity_mismatch, naming both; so is another allocator, which would give out slots that
/// have pages. out_of_range if the namespace has no such rank.
struct add_rank_request {
  namespace_id ns;
  rank_number rank = 0;
  std::uint32_t slots = 0;
  allocator_actor allocator;
  /// Stored with each page of the rank. Another one than before: busy while there are pages. 0: unchanged.
  incarnation_number incarnation = 0;
  /// Is notified of what lookups find of the rank; may be null.
  io_worker_actor worker{};
};

/// Before a rank is registered with other slots: it loses its slots, its reservations end, and writers are answered
/// `full`. identity_mismatch if it has pages, or was not cleared since; busy while leases hold some of its slots.
struct retire_rank_request {
  namespace_id ns;
  rank_number rank = 0;
};

/// A rank whose slab file belongs to its client: the node only assigns slots to keys. A repetition with the same number
/// of slots is no error. Another number makes a new registration, which ends its reservations, if the rank was cleared
/// and has no pages; else it is identity_mismatch or busy. no_memory where registry.memory_bytes is too small.
struct register_rank_request {
  namespace_id ns;
  rank_number rank = 0;
  std::uint32_t slots = 0;
};

/// The io worker of a rank, to which extents of the arena can be assigned.
struct memory_holder {
  namespace_id ns;
  rank_number rank = 0;
  io_worker_actor worker;
};

/// The actors of one rank of a namespace that was made at run time.
struct served_rank {
  rank_number rank = 0;
  std::uint32_t slots = 0;
  incarnation_number incarnation = 0;
  io_worker_actor worker;
  allocator_actor allocator;
  /// Whether shards notify the io worker of leases.
  bool listens = false;
  /// The slab file that other nodes may read, where the storage is shared.
  shared_slab slab{};
};

/// A namespace that was made at run time, and whose pages the node keeps.
struct served_namespace {
  namespace_spec spec;
  std::vector<served_rank> ranks;
};

/// Makes a namespace whose pages the node keeps, or returns the actors that serve it already.
struct make_namespace_request {
  namespace_spec spec;
};

/// Starts io workers, allocators, memory and slab files of such a namespace. `stored`: those of an earlier run are
/// reused.
struct open_namespace_request {
  namespace_spec spec;
  bool stored = false;
};

/// Ends them, and removes the files.
struct close_namespace_request {
  namespace_id ns;
};

/// Before that: ends attaching to it. `busy`, unless forced, while clients are attached.
struct leave_namespace_request {
  namespace_id ns;
  bool force = false;
};

struct rank_stats {
  namespace_id ns;
  std::string namespace_name;
  rank_number rank = 0;
  allocator_stats slots;
  io_stats io;
};

/// An attached client.
struct client_stats {
  std::string name;
  std::string namespace_name;
  std::int32_t process = 0;
  /// Whether it is on another host, where the process number is meaningless here.
  bool elsewhere = false;
  duration attached_for{};
  /// Differs between clients in the life of a node, and is no secret.
  std::uint64_t number = 0;
  /// Whether it is another node of the cluster, which fetches pages.
  bool is_node = false;
  /// Pages of all ranks since it attached, and their bytes.
  std::uint64_t loaded_pages = 0;
  std::uint64_t saved_pages = 0;
  std::uint64_t loaded_bytes = 0;
  std::uint64_t saved_bytes = 0;
};

struct node_stats {
  registry_stats registry;
  std::vector<rank_stats> ranks;
  std::uint64_t clients = 0;
  /// Disconnected clients that may still access the node's memory.
  std::uint64_t disconnected_clients = 0;
  std::vector<client_stats> attached{};
  cluster_stats cluster{};
  remote_stats remote{};
  /// Those disconnected clients whose processes should have ended by now: `node_state::linger_time` has passed.
  std::uint64_t lingering_clients = 0;
};

/// From the engine thread of an io worker to its actor.
struct io_completion_record {
  std::uint64_t tag = 0;
  std::uint32_t status = 0;
  std::int32_t system_errno = 0;

  friend bool operator==(const io_completion_record&, const io_completion_record&) = default;
};

struct io_completions {
  packed<io_completion_record> records;
};

} // namespace troupe
