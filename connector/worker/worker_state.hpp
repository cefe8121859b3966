#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "connector/stats.hpp"
#include "connector/types.hpp"
#include "messages/transfer_messages.hpp"

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::connector {

struct worker_options {
  std::uint32_t blocks_per_page = 1;
  /// Tokens of one block, for statistics.
  std::uint32_t block_tokens = 16;
  /// Whether this worker saves: one of several with the same KV does.
  bool writer = true;
  /// Keys in one task; a longer op becomes several.
  std::uint32_t task_keys_max = 4096;
  /// The most tasks of each kind that are submitted at once.
  std::uint32_t tasks_max = 64;
  duration task_deadline = std::chrono::seconds(30);
  /// The time limit of synchronous loads.
  duration synchronous_load_limit = std::chrono::seconds(5);
};

/// The number of a task at its coordinator: `transfer_task::tag`.
using task_tag = std::uint64_t;

struct submit_load {
  task_tag tag = 0;
  transfer_task work;
};
struct submit_save {
  task_tag tag = 0;
  transfer_task work;
};
/// Cancel these saves: pages that have not been copied out of their blocks yet must never be published once this is
/// answered (`on_cancelled`).
struct cancel_saves {
  std::vector<task_tag> tags;
};

using worker_effect = std::variant<submit_load, submit_save, cancel_saves>;

/// The rules of a connector's worker half: ops become tasks for the load and the save coordinator, and their results
/// become reports. `worker_half` describes the hooks.
///
/// Every submitted task ends through `on_task`, once, which coordinators guarantee. Outstanding tasks are counted per
/// session. Loads go before saves, and synchronous ones before others: while a load waits for its turn, no save is
/// submitted.
///
/// Without an attached node, loads fail at once and nothing is saved: `attach` and `detach`.
///
/// Plain state: after each call the owner carries out the effects in the outbox.
class worker_state {
public:
  /// The most durations of each kind that the statistics keep until they are taken; further tasks are only counted.
  static constexpr std::size_t samples_max = 65536;

  explicit worker_state(const worker_options& options, bool attached = true) : options_(options), attached_(attached) {}

  /// There are coordinators from now on, or other ones than before.
  void attach(const worker_options& options);
  /// There are no coordinators any more: tasks that were not submitted have failed, and submitted ones continue to
  /// their end.
  void detach(timestamp now);
  bool attached() const noexcept { return attached_; }

  void bind(connector_metadata metadata) { bound_ = std::move(metadata); }
  void clear() { bound_ = {}; }

  /// Cancels saves of preempted requests; a repeated call changes nothing.
  void handle_preemptions(std::span<const session_id> preempted, timestamp now);
  /// Whether blocks of preempted requests may still be copied and published. No load is submitted meanwhile.
  bool preempting() const noexcept { return cancels_under_way_ > 0; }
  void on_cancelled(timestamp now);

  /// `ready_event` is passed on with the tasks, see `transfer_task`.
  void start_load_kv(timestamp now, std::uint64_t ready_event = 0);
  void wait_for_save(timestamp now, std::uint64_t ready_event = 0);
  finished_requests get_finished();
  std::vector<block_id> take_load_errors() { return std::exchange(load_errors_, {}); }
  std::vector<store_outcome> take_store_outcomes() { return std::exchange(outcomes_, {}); }
  connector_stats take_stats();

  /// The answer to `submit_load` or `submit_save`.
  void on_task(task_tag tag, const result<transfer_result>& outcome, timestamp now);

  /// Accepts no more tasks; those that were not submitted yet have failed.
  void close(timestamp now);
  bool closed() const noexcept { return closed_; }

  /// Tasks waiting or submitted.
  std::size_t tasks_outstanding() const noexcept { return tasks_.size(); }
  /// Those of them for which a step waits.
  std::size_t synchronous_loads() const noexcept { return synchronous_loads_; }
  /// Requests with outstanding tasks.
  std::size_t sessions() const noexcept { return sessions_.size(); }

  std::vector<worker_effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  struct session {
    std::string request;
    std::uint32_t loads = 0;
    std::uint32_t saves = 0;
    std::uint32_t synchronous_loads = 0;
    /// Blocks that the load has not filled so far.
    std::vector<block_id> errors;
    /// Whether the load was refused, whatever its blocks.
    bool refused = false;
    /// Whether the engine waits for the request to be named as sent.
    bool leaving = false;
  };
  struct task {
    session_id owner = 0;
    bool load = false;
    bool handed_on = false;
    /// Whether its coordinator was requested to cancel it.
    bool cancelled = false;
    timestamp since;
    /// The op that is reported, if it is, and the position in it.
    store_id store = 0;
    std::size_t first = 0;
    bool synchronous = false;
    transfer_task work;
  };
  /// A store, or a load that is reported.
  struct open_store {
    std::vector<std::uint8_t> stored;
    std::size_t tasks_left = 0;
  };

  /// What the tasks of an op have in common.
  struct task_terms {
    session_id owner = 0;
    bool load = false;
    bool synchronous = false;
    store_id store = 0;
    key_digest parent{};
    bool chained = true;
    std::uint64_t ready_event = 0;
  };
  /// Splits an op into tasks, and returns their number.
  std::uint32_t add_tasks(const task_terms& terms, const std::vector<key_digest>& keys,
                          const std::vector<block_id>& blocks, timestamp now);
  void begin_load(load_op& op, std::uint64_t ready_event, timestamp now);
  /// A load that cannot begin has failed.
  void refuse_load(load_op& op);
  /// One task of an op has ended; the op is reported after its last one.
  void end_part(store_id op);
  void drop_all_waiting(errc why, timestamp now);
  bool takes_tasks() const noexcept { return attached_ && !closed_; }
  void pump(timestamp now);
  void hand_on(task_tag tag, timestamp now);
  void end_task(task_tag tag, const result<transfer_result>& outcome, timestamp now);
  void end_load(const task& t, const result<transfer_result>& outcome, timestamp now);
  /// Notes which pages of an op that is reported were filled.
  void report_load(const task& t, const result<transfer_result>& outcome);
  void end_save(const task& t, const result<transfer_result>& outcome, timestamp now);
  /// Ends a task that was not submitted.
  void drop_waiting(task_tag tag, errc why, timestamp now);
  session& session_of(session_id id, const std::string& request);
  /// Reports what has ended, and removes a session without tasks.
  void settle(session_id id, bool load_ended);

  worker_options options_;
  connector_metadata bound_;
  std::unordered_map<session_id, session> sessions_;
  std::unordered_map<task_tag, task> tasks_;
  std::unordered_map<store_id, open_store> stores_;
  std::deque<task_tag> waiting_synchronous_loads_;
  std::deque<task_tag> waiting_loads_;
  std::deque<task_tag> waiting_saves_;
  std::uint32_t loads_handed_on_ = 0;
  std::uint32_t saves_handed_on_ = 0;
  std::uint32_t cancels_under_way_ = 0;
  finished_requests reports_;
  std::vector<block_id> load_errors_;
  std::vector<store_outcome> outcomes_;
  connector_stats stats_;
  std::vector<worker_effect> outbox_;
  task_tag last_tag_ = 0;
  std::size_t synchronous_loads_ = 0;
  bool attached_ = true;
  bool closed_ = false;
};

} // namespace troupe::connector
