#pragma once

#include "actors/actor_support.hpp"
#include "messages/messages.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace troupe {

struct namespaces_config {
  /// All shards of the node.
  std::vector<registry_actor> shards;
  /// A rank may register with so many slots; each takes about 13 bytes of memory.
  std::uint32_t max_slots = 1U << 28U;
  /// Fractions of a rank's slots, as in `config::storage_config`.
  double low_watermark = 0.0;
  double high_watermark = 0.0;
  /// As in `allocator_options`.
  duration rest = std::chrono::seconds(10);
};

/// A rank that is known already when the actor starts.
struct known_rank {
  namespace_id space;
  rank_number rank = 0;
  std::uint32_t slots = 0;
  allocator_actor allocator;
  incarnation_number incarnation = 0;
};

/// The allocator of a rank whose slab file is its clients'. Knows the shards.
allocator_actor spawn_foreign_allocator(caf::actor_system& system, const namespaces_config& options,
                                        const register_rank_request& rank);

/// Namespaces and ranks that come and go while the node runs. Spawns an allocator for each rank, tells all shards, and
/// answers when all have answered; so what is answered is known everywhere. A request that fails on the way can be
/// repeated: shards take the same thing twice.
class namespaces : public namespaces_actor::base {
public:
  namespaces(caf::actor_config& config, namespaces_config options, const std::vector<add_namespace_request>& known,
             const std::vector<known_rank>& ranks);

  const char* name() const override { return "namespaces"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  struct rank_entry {
    std::uint32_t slots = 0;
    allocator_actor allocator;
    bool registered = false;
    std::vector<caf::response_promise> waiting;
  };
  struct space_entry {
    std::string name;
    std::map<rank_number, rank_entry> ranks;
    /// Being removed: this answers who asked.
    std::vector<caf::response_promise> removing;
  };

  caf::result<void> add(const add_namespace_request& wanted);
  caf::result<void> remove(const remove_namespace_request& wanted);
  caf::result<void> register_rank(const register_rank_request& wanted);

  void remove_from(const registry_actor& shard, const remove_namespace_request& wanted,
                   std::function<void(const error&)> then);
  void removal_ended(const namespace_id& space, const error& outcome);
  void registered(const register_rank_request& wanted, const error& outcome);

  namespaces_config options_;
  std::map<namespace_id, space_entry> spaces_;
  open_promises promises_;
};

} // namespace troupe
