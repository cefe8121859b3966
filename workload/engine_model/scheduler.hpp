#pragma once

#include "connector/scheduler_half.hpp"
#include "workload/engine_model/block_pool.hpp"
#include "workload/engine_model/options.hpp"
#include "workload/engine_model/request.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace troupe::engine {

/// One request's part of a step, for the workers and for the handling of its output.
struct step_part {
  std::shared_ptr<request> who;
  std::uint32_t tokens = 0;
  /// The last ones of `tokens`, which are drafts.
  std::uint32_t drafts = 0;
  /// `request::num_preemptions` when it was scheduled.
  std::uint32_t preemptions = 0;
  /// The first step since the request was scheduled anew.
  bool first = false;
  /// The forward pass needs a load of this step.
  bool loads = false;

  // Set by the forward pass.
  std::uint32_t start = 0;
  std::uint32_t accepted = 0;
  std::uint32_t sampled = 0;
};

/// The work of a step.
struct scheduled_step {
  std::vector<step_part> parts;
  std::uint32_t total_tokens = 0;
  bool has_sync_kv_loads = false;
  /// Requests that have finished since the previous step.
  std::vector<std::string> finished;
  connector::connector_metadata metadata;
};

/// A model of vLLM's v1 scheduler as seen by a connector: which requests run, with which blocks, and when the connector
/// is called. Deviations from vLLM are marked.
class scheduler {
public:
  using request_table = std::unordered_map<std::string, std::shared_ptr<request>>;

  scheduler(const engine_options& options, connector::scheduler_half& connector, violations& found,
            engine_statistics& statistics);

  /// Returns false if the engine has a request of this id, or if it could never fit.
  bool add(request_spec spec);
  /// Returns false if the engine has no such request, or if it has finished.
  bool abort(std::string_view id);

  scheduled_step schedule();
  /// Handles the output of a step.
  void update_from_output(const scheduled_step& step, const connector::worker_output& output);

  /// Whether the last output of the request was dropped, because it was computed from a failed load.
  bool was_spoilt(const request* x) const { return spoilt_.contains(x); }

  /// There is nothing to do and nothing to report.
  bool idle() const noexcept { return requests_.empty() && finished_ids_.empty(); }
  const request* find(std::string_view id) const;
  /// All requests that hold blocks or wait for some, including finished ones whose blocks are kept for the connector.
  const request_table& requests() const noexcept { return requests_; }
  const std::deque<std::shared_ptr<request>>& waiting() const noexcept { return waiting_; }
  const std::vector<std::shared_ptr<request>>& running() const noexcept { return running_; }
  const block_pool& pool() const noexcept { return pool_; }
  const engine_options& options() const noexcept { return options_; }
  /// Called between steps. With `reset_running_requests` all running requests are preempted first, and may resume in
  /// the next step. Returns false, and resets nothing, while blocks are in use, as those of requests that are loaded or
  /// saved.
  bool reset_prefix_cache(bool reset_running_requests);

private:
  /// Calls f with the connector's view of each request.
  template <class F>
  auto with_view(const request& r, F f) const;
  enum class turn : std::uint8_t { taken, skipped, no_blocks };

  std::uint32_t blocks_for(std::uint32_t tokens) const noexcept;
  void schedule_running(scheduled_step& step);
  void schedule_waiting(scheduled_step& step);
  turn try_waiting(std::size_t position, scheduled_step& step);
  void begin_load(request& r, std::uint32_t local, std::uint32_t external);
  void run(std::size_t position, std::uint32_t computed, std::uint32_t tokens, bool loads, scheduled_step& step);
  void notify_connector(scheduled_step& step);
  void advance(scheduled_step& step);

  std::vector<block_id> get_computed_blocks(const request& r) const;
  bool allocate(request& r, const std::vector<block_id>& hits, std::uint32_t tokens);
  void cache_blocks(request& r, std::uint32_t tokens);
  bool may_hold_for_load(std::size_t blocks, bool& others) const;
  void free_blocks(request& r);
  void preempt(const std::shared_ptr<request>& r);
  /// Preempts a running request between two steps; its output in progress is dropped.
  void preempt_between_steps(const std::shared_ptr<request>& r);
  void end_load(request& r);

  void take_output(const step_part& part);
  void handle_failed_requests(const std::vector<std::string>& failed);
  void handle_invalid_blocks(const std::vector<block_id>& invalid, const scheduled_step& step);
  void handle_synchronous_failures(const std::vector<block_id>& invalid, const scheduled_step& step);
  void compute_again(request& r, std::size_t first_block);
  void take_received(const std::string& id);
  void take_sent(const std::string& id);
  void finish(const std::shared_ptr<request>& r);

  engine_options options_;
  connector::scheduler_half& connector_;
  violations& violations_;
  engine_statistics& statistics_;
  block_pool pool_;
  request_table requests_;
  std::deque<std::shared_ptr<request>> waiting_;
  std::vector<std::shared_ptr<request>> running_;
  std::vector<std::string> finished_ids_;
  /// Since the last step was scheduled.
  std::vector<std::shared_ptr<request>> preempted_between_steps_;
  /// For the output being handled: requests whose outputs are dropped, and requests that end with an error.
  std::unordered_set<const request*> spoilt_;
  std::vector<std::shared_ptr<request>> failed_;

  // State of the step that is being scheduled.
  std::uint32_t budget_ = 0;
  std::vector<std::shared_ptr<request>> preempted_;
  struct listed {
    request* who = nullptr;
    std::uint32_t tokens = 0;
    std::size_t first_new_block = 0;
    bool resumed = false;
    bool fresh = false;
  };
  std::vector<listed> listed_;
  std::vector<connector::scheduled_request> new_requests_;
  std::vector<connector::scheduled_request> cached_requests_;
  std::vector<std::string_view> preempted_ids_;
};

} // namespace troupe::engine
