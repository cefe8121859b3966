#pragma once

#include "actors/node/registry/rank_table.hpp"
#include "actors/node/registry/registry_state.hpp"
#include "actors/support/latency_collector.hpp"
#include "base/log_limit.hpp"
#include "messages/messages.hpp"
#include "store/journal.hpp"
#include "store/metadata_store.hpp"

#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

/// The actor of one shard of the metadata registry. It requests slots from allocators while a reservation waits,
/// reports the outcome of slots to them, and sends changes of child counts to the other shards. Never blocks: between
/// the two halves of a reservation it serves other requests.
class registry : public registry_actor::base {
public:
  /// With a store, every change that must survive a restart is durable before it is answered, and before a slot can be
  /// given to another key; `options.change_feed` must be set then. The registry ends when the store fails, because its
  /// answers would not be reliable any more.
  registry(caf::actor_config& config, const registry_options& options, const std::vector<namespace_spec>& namespaces,
           metrics_actor metrics, std::shared_ptr<store::metadata_store> store = nullptr);

  const char* name() const override { return "registry"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  timestamp now() const { return clock().now(); }

  /// Starts a request for slots, of any kind of writer; `begin` is the state's first half of it.
  template <class Request, class Begin>
  caf::result<reserve_reply> write(const Request& wanted, Begin begin);
  /// Continues with the result of the first half: an answer, slots to request, or another request to wait for.
  template <class Request>
  void go_on(const Request& wanted, result<reserve_plan> plan, caf::response_promise promise, int waits);
  /// Requests slots from the allocator, once the rank's record is durable; `granted` follows in every case, unless the
  /// store fails, which ends this actor.
  void take_slots(plan_id plan, const namespace_id& ns, rank_number rank, std::uint32_t count);
  void granted(plan_id plan, const std::vector<slot_ref>& slots);
  caf::result<void> bind(const registry_peers& peers);
  result<void> add_rank(const add_rank_request& x);
  void await_record(const namespace_id& ns, rank_number rank);
  /// Whether this allocator is still the one of the rank.
  bool serves(const allocator_actor& slots, const namespace_id& ns, rank_number rank) const;
  result<remove_namespace_reply> remove_namespace(const remove_namespace_request& x, timestamp t);
  result<finish_reply> invalidate(const invalidate_request& x, timestamp t);
  void tick_at_once();
  void tick_later();
  /// Sends the messages that the last call produced, before that call is answered.
  void flush();
  /// Passes pending changes to the store, unless it is still writing a batch.
  void write_changes();
  /// The store has written a batch, or could not.
  void written(std::uint8_t code, const std::string& text);
  void store_failed(const error& why);
  /// Reports to the node's condition when the store becomes slow, and when it no longer is.
  void watch_store();
  void notify_worker(worker_notice& x);
  void notify_allocator(const allocator_actor& to, const slots_to_allocator& batch);

  /// Runs one call of the state that has no effect but its answer.
  template <class Call>
  auto look(request_kind kind, std::size_t items, Call call);
  /// Runs one call of the state, sends its messages, records how long it took, and answers.
  template <class Call>
  auto serve(request_kind kind, std::size_t items, Call call);
  /// As `serve`, for calls that change something: the answer waits until the change is durable.
  template <class Call>
  auto serve_change(request_kind kind, std::size_t items, Call call);
  /// As `serve_change`, without a limit on the answers that wait: these callers wait for an answer before the next
  /// request, or send at most one request per page in their memory.
  template <class Call>
  auto serve_any_change(request_kind kind, std::size_t items, Call call);
  void sample(request_kind kind, std::size_t items, timestamp started);
  void send_samples();

  // A promise that is stored here is delivered once: by `granted`, which follows each request for slots exactly once,
  // by `go_on`, by the journal, or by `on_exit`. A call of the state is followed by `flush` before it is answered. This
  // holds with a store too: then the messages to allocators, and the answer, wait in the journal behind the changes.

  registry_state state_;
  std::vector<registry_actor> shards_;
  /// Whether the other shards are known.
  bool bound_ = false;
  rank_table<allocator_actor> allocators_;
  /// Ranks whose registration is not durable yet: how many changes of it are being written.
  std::map<std::pair<namespace_id, rank_number>, std::uint32_t> unrecorded_;
  /// Io workers that are notified of the results of lookups.
  rank_table<io_worker_actor> workers_;
  /// Promises that wait for the slots of a reservation: of the request, and of repetitions of it.
  std::unordered_map<plan_id, std::vector<caf::response_promise>> plans_;
  /// Promises of removals that continue when an allocator has answered for a reservation that the removal ends.
  std::vector<caf::response_promise> removals_;
  /// A request that waits for the plan of another request and is then repeated.
  struct waiting_request {
    allocate_request wanted;
    caf::response_promise promise;
    /// How many more plans it may wait for.
    int waits = 0;
  };
  std::unordered_map<plan_id, std::vector<waiting_request>> waiting_;
  std::shared_ptr<store::metadata_store> store_;
  /// Set if there is a store.
  std::optional<store::journal> journal_;
  /// When the store received the batch that it is writing.
  timestamp write_began_{};
  metrics_actor metrics_;
  latency_collector samples_;
  /// Rate limit of log lines about damaged pages.
  log_limit damage_;
  /// Tick messages that were sent to this actor and have not arrived: always one, seldom two.
  std::size_t ticks_ = 0;
};

} // namespace troupe
