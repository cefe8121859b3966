#pragma once

#include "actors/node/supervisor/space_files.hpp"
#include "actors/support/actor_support.hpp"
#include "base/memory_budget.hpp"
#include "base/node_condition.hpp"
#include "base/page_residence.hpp"
#include "io/disk_budget.hpp"
#include "messages/messages.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace troupe {

struct space_keeper_options {
  std::shared_ptr<const config::node_config> config;
  std::shared_ptr<space_files> files;
  /// For these.
  std::shared_ptr<io::disk_budget> disk;
  /// Of all ranks; null for none.
  shared_budget memory;
  metrics_actor meters;
  std::shared_ptr<node_condition> condition;
  /// Of all ranks; null for none.
  std::shared_ptr<page_residence> residence;
  std::vector<registry_actor> shards;
  memory_broker_actor broker;
  /// At which slabs are looked at unasked; null: they are not.
  std::shared_ptr<scrub_pace> pace{};
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
    /// For its slots, as many as are there.
    std::shared_ptr<std::vector<memory_share>> memory{};
    /// Growing has failed, which was logged.
    bool could_not_grow = false;
  };
  using ranks = std::vector<open_rank_entry>;

  /// Actors that are told to end.
  struct ending {
    std::vector<caf::actor> parts;
    /// How many of them have not ended.
    std::size_t left = 0;
    /// They have taken long, and those who wait were told.
    timestamp patience_ends{};
    /// Called once, when all have ended, or when they have taken long.
    std::function<void()> answer;
    /// When all have ended.
    std::function<void()> ended;
  };

  caf::result<served_space> open(const open_space_request& wanted);
  caf::result<void> close(const namespace_id& space);
  result<served_rank> open_one(const open_space_request& wanted, rank_number rank, ranks& opened);
  /// Slots of a slab file that is to be made; 0: there is no disk space for one.
  result<std::uint64_t> first_slots(const namespace_spec& space, rank_number rank, const ranks& opened) const;
  result<rank_parts> open_parts(const open_space_request& wanted, rank_number rank, const ranks& opened,
                                std::uint64_t& disk_bytes);
  result<rank_parts> make_parts(const open_space_request& wanted, rank_number rank, const ranks& opened,
                                std::uint64_t& disk_bytes);
  /// Files of what is open: of the ranks of this namespace, those `opened` are.
  std::set<std::string> open_files(const namespace_id& space, const ranks& opened) const;
  /// What files of an earlier run have that are not open yet.
  std::uint64_t bytes_not_open(const namespace_id& space, const ranks& opened) const;
  std::uint32_t grow(const namespace_id& space, rank_number rank, std::uint32_t wanted);
  /// Nobody's memory has anything of the first so many ranks any more.
  void leave_residence(const namespace_id& space, rank_number count);
  void remove_files(const namespace_id& space);
  void sweep();

  /// Ends these. Their disk space is the budget's again when they have ended.
  void end(const ranks& all, std::function<void()> answer);
  void stop(std::uint64_t number, const caf::actor& which);
  void on_down(const caf::down_msg& down);
  void look_at_endings();
  /// Ends what is open, and then this actor.
  void leave(const caf::error& why);
  void end_if_alone();

  space_keeper_options options_;
  std::map<namespace_id, ranks> open_;
  /// Files of an earlier run are there that are to be opened still.
  bool restoring_ = true;
  std::map<std::uint64_t, ending> endings_;
  std::unordered_map<caf::actor_addr, std::uint64_t> ending_of_;
  std::uint64_t last_ending_ = 0;
  open_promises promises_;
  /// Why it ends as soon as nothing of its own is left.
  std::optional<caf::error> leaving_;
};

} // namespace troupe
