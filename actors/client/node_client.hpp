#pragma once

#include "actors/client/directory_doors.hpp"
#include "actors/client/link/link.hpp"
#include "config/node_config.hpp"
#include "gpu/device_event_table.hpp"
#include "gpu/page_mover.hpp"
#include "io/foreign_pages.hpp"
#include "messages/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

class copy_engine_state;

/// What a process that works with a node runs: the link, a lookup coordinator, and for each rank it serves a copy
/// engine with its coordinators. For threads that are no actors; every call blocks.
class node_client {
public:
  struct options {
    config::transfer_config transfer;
    config::attach_config attach;
    config::remote_config remote{};
    /// How slab files of nodes are read whose storage is shared; without a reader they are not.
    io::foreign_storage storage{};
  };

  /// A rank, and the memory its pages come from and go to.
  struct rank_memory {
    rank_number rank = 0;
    /// Is there as long as a copy may touch its blocks, also one that `stop` has not waited for: what they lie in may
    /// be kept by it.
    std::unique_ptr<page_mover> mover;
    /// Events that tasks may name; null if none do.
    std::shared_ptr<device_event_table> events{};
    /// The same blocks as host memory, in which they lie as pages do; empty where they do not, or nobody asks. With it
    /// and `options::storage`, pages are loaded from slab files of a node whose storage is shared.
    std::span<std::byte> as_pages{};
    /// Spawns what carries out orders, which is a `copy_engine` where nothing is said. It ends as that does.
    std::function<result<copy_engine_actor>(caf::actor_system&, std::shared_ptr<copy_engine_state>)> make_copier{};

    /// With the mover that suits a KV cache on GPU `gpu`, or in host memory. Errors: those of the mover.
    static result<rank_memory> of(rank_number rank, const kv_cache_view& cache, std::optional<int> gpu);
  };

  node_client(caf::actor_system& system, options how);
  node_client(const node_client&) = delete;
  node_client& operator=(const node_client&) = delete;
  /// As `stop`.
  ~node_client();

  /// Attaches, so that the namespace is known. Errors: those of the link, within `limit`.
  result<attach_reply> attach(link_options where, duration limit);

  /// Spawns what serves a rank; between `attach` and `bind`. Errors: `io_error`, where no more threads may be made;
  /// then the rank is not served.
  result<void> add_rank(rank_memory memory);

  /// Waits until all actors are bound to the node. When it is lost later, they are bound again as it comes back.
  result<void> bind(duration limit);

  /// Ends everything, and returns when nothing touches the memory of the ranks any more, or after `limit`: timeout. May
  /// be called again then, to go on waiting. A task under way whose blocks are being written has its answer no sooner
  /// than that is over.
  result<void> stop(duration limit);

  /// The directory of handshakes of the node that was attached to; usable longer than this, as long as the system.
  directory_opener directory() const;

  const lookup_actor& lookup() const noexcept { return parts_.lookup; }
  const link_actor& tie() const noexcept { return link_; }
  /// In the order of `add_rank`.
  const transfer_actor& load(std::size_t i) const { return parts_.ranks.at(i).load; }
  const transfer_actor& save(std::size_t i) const { return parts_.ranks.at(i).save; }

private:
  void end_actors(std::chrono::steady_clock::time_point until);

  caf::actor_system& system_;
  options options_;
  attach_reply node_;
  node_address where_;
  caf::io::middleman_actor entrance_;
  std::shared_ptr<const io::handed_memory> handed_;
  /// Of a node of this process.
  reception_actor local_;
  link_actor link_;
  client_parts parts_;
  std::vector<slab_reading_actor> readers_;
  std::vector<std::weak_ptr<copy_engine_state>> movers_;
};

} // namespace troupe
