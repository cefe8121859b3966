#pragma once

#include "actors/node/supervisor/rank_parts.hpp"
#include "base/memory_budget.hpp"
#include "base/node_condition.hpp"
#include "io/disk_budget.hpp"
#include "messages/messages.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <vector>

namespace troupe {

struct space_keeper_options {
  std::shared_ptr<const config::node_config> config;
  std::shared_ptr<io::extent_source> extents;
  /// For slab files.
  std::shared_ptr<io::disk_budget> disk;
  /// Of all ranks; null for none.
  shared_budget memory;
  metrics_actor meters;
  std::shared_ptr<node_condition> condition;
  std::vector<registry_actor> shards;
  memory_broker_actor broker;
};

/// Opens and closes what serves namespaces that clients make: for each rank an io worker and an allocator, with a slab
/// file that grows as long as there is disk space, or with memory alone. What it has opened ends with it, before it
/// has ended itself.
///
/// Its files lie in a folder of their own, where nobody else has any: what is not open there when it is told `restored`
/// goes.
class space_keeper : public space_keeper_actor::base {
public:
  space_keeper(caf::actor_config& config, space_keeper_options options);

  const char* name() const override { return "space_keeper"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  struct open_rank_entry {
    rank_number rank = 0;
    io_worker_actor worker;
    allocator_actor allocator;
    /// Null where pages are in memory only.
    std::shared_ptr<io::store_growth> growth;
    std::uint64_t slots_max = 0;
    /// Of the budget.
    std::uint64_t disk_bytes = 0;
    /// Growing has failed, which was logged.
    bool disk_was_full = false;
  };
  using ranks = std::vector<open_rank_entry>;

  result<served_space> open(const open_space_request& wanted);
  result<served_rank> open_one(const open_space_request& wanted, rank_number rank, ranks& opened);
  /// Slots of a slab file that is to be made; 0: there is no disk space for one.
  result<std::uint64_t> first_slots(const namespace_spec& space, rank_number rank, const ranks& opened) const;
  result<rank_parts> open_parts(const open_space_request& wanted, rank_number rank, const ranks& opened,
                                std::uint64_t& disk_bytes);
  /// What files of an earlier run have that are not open yet: of the ranks of this namespace, those `opened` are.
  std::uint64_t bytes_not_open(const namespace_id& space, const ranks& opened) const;
  std::uint32_t grow(const namespace_id& space, rank_number rank, std::uint32_t wanted);
  /// Ends these, and returns when they have ended.
  void end(const ranks& all);
  void remove_files(const namespace_id& space);
  void sweep() const;

  space_keeper_options options_;
  std::map<namespace_id, ranks> open_;
  /// Files of an earlier run are there that are to be opened still.
  bool restoring_ = true;
};

} // namespace troupe
