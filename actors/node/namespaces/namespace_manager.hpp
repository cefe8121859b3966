#pragma once

#include "actors/node/namespaces/namespace_files.hpp"
#include "actors/node/tables/page_residence.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/node_condition.hpp"
#include "base/memory_budget.hpp"
#include "io/slab/disk_budget.hpp"
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

struct namespace_manager_options {
  std::shared_ptr<const config::node_config> config;
  std::shared_ptr<namespace_files> files;
  /// The disk budget of these files.
  std::shared_ptr<io::disk_budget> disk;
  /// Shared by all ranks; may be null.
  shared_budget memory;
  metrics_actor meters;
  std::shared_ptr<node_condition> condition;
  /// Shared by all ranks; may be null.
  std::shared_ptr<page_residence> residence;
  std::vector<registry_actor> shards;
  memory_broker_actor broker;
  /// The pace of scrubbing; null: no scrubbing.
  std::shared_ptr<scrub_pace> pace{};
};

/// The actor that opens and closes what serves namespaces created by clients: for each rank an io worker and an
/// allocator, with a slab file that grows while there is disk space, or with memory alone. All its actors end before it
/// ends itself.
///
/// Its files lie in a directory of their own. Files there that are not open when it receives `restored` are removed.
class namespace_manager : public namespace_manager_actor::base {
public:
  namespace_manager(caf::actor_config& config, namespace_manager_options options);

  const char* name() const override { return "namespace_manager"; }
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
    /// The disk space taken from the budget.
    std::uint64_t disk_bytes = 0;
    /// The memory shares of its existing slots.
    std::shared_ptr<std::vector<memory_share>> memory{};
    /// The last attempt to grow has failed, which was logged.
    bool could_not_grow = false;
  };
  using ranks = std::vector<open_rank_entry>;

  /// Actors that were requested to end.
  struct ending {
    std::vector<caf::actor> parts;
    /// The number of them that have not ended.
    std::size_t left = 0;
    /// The time after which the request is answered although they have not ended.
    timestamp patience_ends{};
    /// Called once, when all have ended or that time has passed.
    std::function<void()> answer;
    /// Called when all have ended.
    std::function<void()> ended;
  };

  caf::result<served_namespace> open(const open_namespace_request& wanted);
  caf::result<void> close(const namespace_id& ns);
  result<served_rank> open_one(const open_namespace_request& wanted, rank_number rank, ranks& opened);
  /// The number of slots of a new slab file; 0: there is no disk space for one.
  result<std::uint64_t> first_slots(const namespace_spec& ns, rank_number rank, const ranks& opened) const;
  result<rank_parts> open_parts(const open_namespace_request& wanted, rank_number rank, const ranks& opened,
                                std::uint64_t& disk_bytes);
  result<rank_parts> make_parts(const open_namespace_request& wanted, rank_number rank, const ranks& opened,
                                std::uint64_t& disk_bytes);
  /// The files that are open; of the ranks of this namespace, those in `opened`.
  std::set<std::string> open_files(const namespace_id& ns, const ranks& opened) const;
  /// The disk space of files of an earlier run that are not open yet.
  std::uint64_t bytes_not_open(const namespace_id& ns, const ranks& opened) const;
  /// The slots of a slab file, and for how many whole pages it has disk space.
  struct grown_slab {
    std::uint32_t slots = 0;
    std::uint32_t granted = 0;
  };
  /// Lets the file grow within its disk space, or else with more of it.
  grown_slab grow(const namespace_id& ns, rank_number rank, std::uint32_t wanted, std::uint32_t within_room);
  static grown_slab slab_of(const open_rank_entry& x);
  /// Marks the first `count` ranks as having no resident pages.
  void leave_residence(const namespace_id& ns, rank_number count);
  void remove_files(const namespace_id& ns);
  void sweep();

  /// Ends these ranks. Their disk space returns to the budget when they have ended.
  void end(const ranks& all, std::function<void()> answer);
  void stop(std::uint64_t number, const caf::actor& which);
  void on_down(const caf::down_msg& down);
  void look_at_endings();
  /// Ends all open ranks, and then this actor.
  void leave(const caf::error& why);
  void end_if_alone();

  namespace_manager_options options_;
  std::map<namespace_id, ranks> open_;
  /// Files of an earlier run still have to be opened.
  bool restoring_ = true;
  std::map<std::uint64_t, ending> endings_;
  std::unordered_map<caf::actor_addr, std::uint64_t> ending_of_;
  std::uint64_t last_ending_ = 0;
  open_promises promises_;
  /// The reason with which this actor ends as soon as all its actors have ended.
  std::optional<caf::error> leaving_;
};

} // namespace troupe
