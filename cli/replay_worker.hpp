#pragma once

#include "messages/messages.hpp"
#include "workload/replay/device_memory.hpp"
#include "workload/replay/latency.hpp"
#include "workload/replay/report.hpp"
#include "workload/replay/trace.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe::cli {

/// What all workers of a replay share. Thread-safe as far as said at each member.
struct replay_job {
  // Read-only while the replay runs.
  replay::trace trace;
  std::uint64_t salt = 0;
  std::uint64_t page_bytes = 0;
  std::uint32_t batch_keys = 0;
  duration lease{};
  duration task_deadline{};
  /// How long to wait for a lost node before giving up.
  duration reconnect_limit{};
  lookup_actor lookup;
  link_actor link;
  std::vector<transfer_actor> load;
  std::vector<transfer_actor> save;
  std::vector<std::unique_ptr<replay::device_memory>> devices;

  /// Next request nobody has begun; requests are begun in order.
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stop{false};

  std::mutex mutex; // guards the rest
  replay::replay_report report;
  replay::latency_samples lookup_times;
  replay::latency_samples load_times;
  replay::latency_samples save_times;
  replay::busy_time load_busy;
  replay::busy_time save_busy;
  replay::phase_times phases;
  /// Why the replay was given up, if it was.
  std::optional<error> given_up;
  /// The node refused to save because of a damaged slab.
  bool node_degraded = false;
  /// The first page that was not right, in words.
  std::string first_wrong;
};

/// Plays requests one after the other, taking the next from the job until none is left; as many of them as there are
/// requests at once. For each request: look up the longest complete prefix, load it on every rank and compare every
/// byte, produce what is missing, save it, release.
class replay_worker : public caf::event_based_actor {
public:
  /// `blocks[r]` are this worker's blocks in the device memory of rank r, enough for the longest request.
  replay_worker(caf::actor_config& config, std::shared_ptr<replay_job> job,
                std::vector<std::vector<std::uint32_t>> blocks);

  const char* name() const override { return "replay_worker"; }

protected:
  caf::behavior make_behavior() override;

private:
  timestamp now() const { return std::chrono::steady_clock::now(); }
  void next_request();
  void begin_request();
  void looked_up(const lookup_result& found);
  void load();
  void loaded(rank_number rank, std::size_t first, const result<transfer_result>& outcome, timestamp started);
  void save();
  /// Saves the blocks [first, last) of one rank.
  void save_run(rank_number rank, std::size_t first, std::size_t last);
  void saved(std::size_t count, const result<transfer_result>& outcome, timestamp started);
  void finish_request();
  void node_lost(const error& why);
  void give_up(const error& why);

  std::shared_ptr<replay_job> job_;
  std::vector<std::vector<std::uint32_t>> blocks_;
  std::size_t request_ = 0;
  std::vector<key_digest> keys_;
  std::uint32_t matched_ = 0;
  ticket lease_;
  /// Per rank and block of the prefix: loaded and right.
  std::vector<std::vector<bool>> good_;
  std::size_t waiting_ = 0;
  bool lost_ = false;
};

} // namespace troupe::cli
