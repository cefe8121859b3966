#pragma once

#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "base/namespace_spec.hpp"
#include "messages/actors.hpp"

#include <cstdint>
#include <string>
#include <vector>

/// How a client finds its way into a node, and how the actors of a node and of a client learn of one another.
/// These messages carry actor handles.

namespace troupe {

/// Version of everything in messages/. A node refuses clients that speak another one.
inline constexpr std::uint32_t protocol_version = 12;

/// How a client says which namespace it wants.
enum class space_wish : std::uint8_t {
  /// By its name.
  named,
  /// By all that it is: one of another identity is refused.
  exact,
  /// The same; where there is none, the node makes it.
  made,
};

struct attach_request {
  std::uint32_t protocol = protocol_version;
  std::string client_name;
  std::int32_t process = 0;
  /// "elsewhere": the client wants to be treated as one on another host. All else counts for nothing, as the number
  /// does unless an actor of the node's own process sends it: the connection proves which process a client is.
  std::string home{};
  /// The namespace the client wants, by name; empty for the node's first.
  std::string space_name;
  space_wish wish = space_wish::named;
  /// Unless it is `named`; `space_name` says nothing then.
  namespace_spec space;
  /// Set: who attaches is a node of this cluster, which looks up and fetches, and writes nothing.
  std::string cluster{};
};

/// What serves one rank of the namespace.
struct rank_endpoint {
  rank_number rank = 0;
  std::uint64_t slots = 0;
  client_worker_actor worker;
  /// Told to nodes of the cluster where the storage is shared.
  shared_slab slab{};
};

/// What a node allows a client.
struct client_limits {
  /// What it may have pinned at once, per rank.
  std::uint64_t pinned_bytes = 0;
  std::uint32_t batch_keys = 0;
  std::uint32_t batch_pages = 0;
  duration lease{};
  duration reservation{};
};

/// The handles are the client's own: each client gets others, which serve it alone and end with it.
struct attach_reply {
  owner_id owner = 0;
  std::string node_name;
  /// Of the whole spec, its salt included.
  namespace_id space_id;
  /// Without its salt, which is nobody's business but the node's.
  namespace_spec space;
  client_limits limits;
  /// Where pages lie that are gathered and scattered.
  arena_info arena;
  std::vector<client_shard_actor> shards;
  std::vector<rank_endpoint> ranks;
  /// Null where there are no other nodes.
  client_cluster_actor cluster{};
};

/// What a save or load coordinator needs of the node it works with.
struct coordinator_binding {
  owner_id owner = 0;
  /// Keeps the tickets of an owner's coordinators apart.
  std::uint32_t ticket_stream = 0;
  client_limits limits;
  std::vector<client_shard_actor> shards;
  client_worker_actor worker;
  /// Pages that this coordinator may have pinned at once.
  std::uint32_t window_pages = 0;
  /// Where the rank's pages may be read without the node.
  shared_slab slab{};
};

struct lookup_binding {
  owner_id owner = 0;
  std::uint32_t ticket_stream = 0;
  namespace_id space;
  client_limits limits;
  std::vector<client_shard_actor> shards;
  /// Who brings what is not here; null if nobody does.
  client_cluster_actor cluster{};
};

/// What a client brings for one rank.
struct client_rank {
  rank_number rank = 0;
  copy_engine_actor copier;
  transfer_actor load;
  transfer_actor save;
};

/// All of a client's actors that work with the node.
struct client_parts {
  lookup_actor lookup;
  std::vector<client_rank> ranks;
};

/// Told to each shard and allocator of a node when all have been started, once: `exists` to whoever says it again.
struct registry_peers {
  std::vector<registry_actor> shards;
  std::vector<allocator_actor> allocators;
  /// Parallel to `allocators`.
  std::vector<namespace_id> spaces;
  std::vector<rank_number> ranks;
  /// Parallel to `allocators`, or empty: the io workers that are told what lookups find, null where none is.
  std::vector<io_worker_actor> workers{};
};

/// Registers a rank of a namespace, with its slots and who owns them. The same again is fine. Another number of slots
/// is identity_mismatch, naming both, and so is another allocator: it would give out slots that have pages.
/// out_of_range if the namespace has no such rank.
struct add_rank_request {
  namespace_id space;
  rank_number rank = 0;
  std::uint32_t slots = 0;
  allocator_actor allocator;
  /// Kept beside each page of the rank. Another one than before: busy while there are pages. 0: as before.
  incarnation_number incarnation = 0;
  /// Is told what lookups find of the rank; null if nobody is.
  io_worker_actor worker{};
};

/// Before a rank is registered with other slots: it has none from now on, its reservations end, and writers are
/// answered `full`. identity_mismatch if it has pages, or was not cleared since; busy while leases keep some of its
/// slots.
struct retire_rank_request {
  namespace_id space;
  rank_number rank = 0;
};

/// A rank whose slab file is its client's: the node only says which slot belongs to which key. Registered again with
/// the same number of slots: fine; with another: a new registration if it was cleared and nothing is stored in it,
/// which ends its reservations; else identity_mismatch or busy. no_memory where registry.memory_bytes does not suffice.
struct register_rank_request {
  namespace_id space;
  rank_number rank = 0;
  std::uint32_t slots = 0;
};

/// The io worker of a rank, which borrows memory of the arena.
struct memory_borrower {
  namespace_id space;
  rank_number rank = 0;
  io_worker_actor worker;
};

/// What serves one rank of a namespace that was made at run time.
struct served_rank {
  rank_number rank = 0;
  std::uint32_t slots = 0;
  incarnation_number incarnation = 0;
  io_worker_actor worker;
  allocator_actor allocator;
  /// Shards tell the io worker of leases.
  bool listens = false;
  /// What other nodes are told, where the storage is shared.
  shared_slab slab{};
};

/// A namespace that was made at run time, and whose pages the node keeps.
struct served_space {
  namespace_spec spec;
  std::vector<served_rank> ranks;
};

/// Makes a namespace whose pages the node keeps, or says what serves it already.
struct make_namespace_request {
  namespace_spec spec;
};

/// Io workers, allocators, memory and slab files of such a namespace. `stored`: those of an earlier run are looked for.
struct open_space_request {
  namespace_spec spec;
  bool stored = false;
};

/// They end, and the files are removed.
struct close_space_request {
  namespace_id space;
};

/// Before that: nobody may attach to it any more. `busy`, unless forced, while clients are attached.
struct leave_space_request {
  namespace_id space;
  bool force = false;
};

struct rank_stats {
  namespace_id space;
  std::string space_name;
  rank_number rank = 0;
  allocator_stats slots;
  io_stats io;
};

/// One that is attached.
struct client_stats {
  std::string name;
  std::string space_name;
  std::int32_t process = 0;
  /// On another host, where that number means nothing here.
  bool elsewhere = false;
  duration attached_for{};
};

/// Pages between a node and memory of clients elsewhere, other nodes among them, since it has started.
struct remote_stats {
  /// From here to there, as they are loaded; and the other way, as they are saved.
  std::uint64_t put_pages = 0;
  std::uint64_t got_pages = 0;
  std::uint64_t put_bytes = 0;
  std::uint64_t got_bytes = 0;
  /// That were to move, and did not arrive or were not what they should be.
  std::uint64_t put_failures = 0;
  std::uint64_t got_failures = 0;
  /// How often memory of a client was lost while it was attached.
  std::uint64_t lost = 0;
};

struct node_stats {
  registry_stats registry;
  std::vector<rank_stats> ranks;
  std::uint64_t clients = 0;
  /// That are not attached any more, and may still touch the node's memory.
  std::uint64_t departed_clients = 0;
  std::vector<client_stats> attached{};
  cluster_stats cluster{};
  remote_stats remote{};
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
