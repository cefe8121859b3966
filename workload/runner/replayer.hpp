#pragma once

#include "messages/messages.hpp"
#include "workload/replay/device_memory.hpp"
#include "workload/replay/trace.hpp"
#include "workload/runner/run.hpp"
#include "workload/runner/tally.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe::replay {

/// The data that all replayers of a run share; constant during the run.
struct replay_context {
  const trace* what = nullptr;
  run_options options;
  /// Whether blocks are filled and compared; otherwise only transfers are measured.
  bool compared = true;
  std::uint32_t batch_keys = 0;
  lookup_actor lookup;
  link_actor link;
  /// Indexed by rank.
  std::vector<transfer_actor> load;
  std::vector<transfer_actor> save;
  /// Each replayer writes to its own blocks.
  std::vector<std::unique_ptr<device_memory>> devices;
};

/// A replayer's request for the next request: the answer is its number, or the number of requests where none is left.
struct next_request {};

/// The question of a replayer whose node has returned, whether to continue.
struct still_wanted {};

/// Plays requests one after the other, and asks its controller for the next until none is left; there is one replayer
/// for each concurrent request. For each request: look up the longest complete prefix, load it on every rank and
/// compare every byte, produce the missing blocks, save them, release. It reports to the controller.
class replayer : public caf::event_based_actor {
public:
  /// `controller` answers `next_request` and `still_wanted`, receives `run_event`, and outlives the replayer.
  /// `blocks[r]` are this replayer's blocks in the device memory of rank r, enough for the longest request.
  replayer(caf::actor_config& config, std::shared_ptr<const replay_context> scene, caf::actor controller,
           std::vector<std::vector<std::uint32_t>> blocks);

  const char* name() const override { return "replayer"; }

protected:
  caf::behavior make_behavior() override;

private:
  timestamp now() const { return std::chrono::steady_clock::now(); }
  void tell(run_event event);
  void ask_for_request();
  void begin_request();
  void looked_up(const lookup_result& found);
  void load();
  void loaded(rank_number rank, std::size_t first, const result<transfer_result>& outcome, timestamp began);
  /// Compares the loaded blocks, and counts them.
  void compare(rank_number rank, std::size_t first, const transfer_result& outcome, load_ended& counts);
  void save();
  /// Saves the blocks [first, last) of one rank.
  void save_run(rank_number rank, std::size_t first, std::size_t last);
  void saved(std::size_t count, const result<transfer_result>& outcome, timestamp began);
  transfer_task task_for(rank_number rank, std::size_t first, std::size_t last) const;
  /// Whether the block was loaded and is right.
  bool has(rank_number rank, std::size_t block) const { return block < matched_ && good_[rank][block]; }
  void finish_request();
  void node_lost(const error& why);
  void abandon(const error& why);

  std::shared_ptr<const replay_context> scene_;
  caf::actor controller_;
  std::vector<std::vector<std::uint32_t>> blocks_;
  std::uint64_t request_ = 0;
  std::vector<key_digest> keys_;
  std::uint32_t matched_ = 0;
  ticket lease_;
  /// Per rank and block of the prefix: loaded and right.
  std::vector<std::vector<bool>> good_;
  std::size_t waiting_ = 0;
  bool lost_ = false;
};

} // namespace troupe::replay

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::replay::next_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::replay::still_wanted)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::replay::run_event)
