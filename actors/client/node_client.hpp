#pragma once

#include "actors/client/directory_dialer.hpp"
#include "actors/client/link/link.hpp"
#include "config/node_config.hpp"
#include "gpu/device_event_table.hpp"
#include "gpu/page_mover.hpp"
#include "io/foreign/foreign_pages.hpp"
#include "messages/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

class copy_engine_state;

/// The actors of a process that uses a node: the link, a lookup coordinator, and for each rank that it serves a copy
/// engine with its coordinators. For threads that are not actors; every call blocks.
class node_client {
public:
  struct options {
    config::transfer_config transfer;
    config::attach_config attach;
    config::remote_config remote{};
    /// Reads slab files of nodes whose storage is shared. Without a reader they are not read.
    io::foreign_storage storage{};
  };

  /// A rank, and the memory its pages come from and go to.
  struct rank_memory {
    rank_number rank = 0;
    /// It lives as long as a copy may access its blocks, even a copy that `stop` has not waited for, so it can keep the
    /// memory of the blocks alive.
    std::unique_ptr<page_mover> mover;
    /// Whether the mover encodes pages faster than it could copy them: that of a GPU does.
    bool encodes_fast = false;
    /// Events that tasks may name; null if none do.
    std::shared_ptr<device_event_table> events{};
    /// See `transfer::coordinator_options`.
    std::uint32_t batches_in_window = 4;
    /// The same blocks as host memory in the layout of pages; empty where they have another layout, or this is not
    /// used. With it and `options::storage`, pages are loaded from slab files of a node whose storage is shared.
    std::span<std::byte> as_pages{};
    /// Spawns the actor that carries out orders; a `copy_engine` where this is empty. It ends as that does.
    std::function<result<copy_engine_actor>(caf::actor_system&, std::shared_ptr<copy_engine_state>)> make_copier{};

    /// With the mover that suits a KV cache on GPU `gpu`, or in host memory. `encoding` as in the config: with "raw" a
    /// GPU needs less memory. Errors: those of the mover.
    static result<rank_memory> of(rank_number rank, const kv_cache_view& cache, std::optional<int> gpu,
                                  std::string_view encoding = "auto");
  };

  node_client(caf::actor_system& system, options how);
  node_client(const node_client&) = delete;
  node_client& operator=(const node_client&) = delete;
  /// Calls `stop`.
  ~node_client();

  /// Attaches, after which the namespace is known. Errors: those of the link, within `limit`.
  result<attach_reply> attach(link_options where, duration limit);

  /// Spawns the actors of a rank; between `attach` and `bind`. Errors: `io_error` where no more threads can be created;
  /// then the rank is not served.
  result<void> add_rank(rank_memory memory);

  /// Waits until all actors are bound to the node. After a loss of the node, they are bound again when it comes back.
  result<void> bind(duration limit);

  /// Ends everything. Returns when the memory of the ranks is not accessed any more, or after `limit`: timeout. Then it
  /// may be called again to continue waiting. A task whose blocks are being written is answered only after that has
  /// ended.
  result<void> stop(duration limit);

  /// The handshake directory of the node that was attached to. It may be used after this object's end, as long as the
  /// actor system exists.
  directory_opener directory() const;

  const lookup_actor& lookup() const noexcept { return parts_.lookup; }
  const link_actor& link_handle() const noexcept { return link_; }
  /// In the order of `add_rank`.
  const transfer_actor& load(std::size_t i) const { return parts_.ranks.at(i).load; }
  const transfer_actor& save(std::size_t i) const { return parts_.ranks.at(i).save; }

private:
  void end_actors(std::chrono::steady_clock::time_point until);

  caf::actor_system& system_;
  options options_;
  attach_reply node_;
  node_address where_;
  caf::io::middleman_actor dialer_;
  std::shared_ptr<const io::handed_memory> handed_;
  /// Set for a node of this process.
  reception_actor local_;
  link_actor link_;
  client_parts parts_;
  std::vector<slab_reading_actor> readers_;
  std::vector<std::weak_ptr<copy_engine_state>> movers_;
};

} // namespace troupe
