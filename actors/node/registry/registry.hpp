#pragma once

#include "actors/node/registry/journal.hpp"
#include "actors/node/registry/rank_table.hpp"
#include "actors/node/registry/registry_state.hpp"
#include "actors/support/latency_collector.hpp"
#include "base/log_limit.hpp"
#include "messages/messages.hpp"
#include "store/metadata_store.hpp"

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace troupe {

/// One shard of the metadata registry. Asks allocators for slots while a reservation waits, tells them what became of
/// their slots, and tells the other shards of children. Never blocks: between the two halves of a reservation it
/// serves other requests.
class registry : public registry_actor::base {
public:
  /// With a store, whatever must survive a restart is durable before it is answered, and before a slot can be given to
  /// another key; `options.change_feed` must be set then. The registry ends when the store fails, because nobody could
  /// rely on its word any more.
  registry(caf::actor_config& config, const registry_options& options, const std::vector<namespace_spec>& spaces,
           metrics_actor metrics, std::shared_ptr<store::metadata_store> store = nullptr);

  const char* name() const override { return "registry"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  timestamp now() const { return clock().now(); }

  /// A request for slots, whoever makes it; `begin` is the state's first half of it.
  template <class Request, class Begin>
  caf::result<reserve_reply> write(const Request& wanted, Begin begin);
  /// Goes on with what the first half found: an answer, slots to ask for, or another request to wait for.
  template <class Request>
  void go_on(const Request& wanted, result<reserve_plan> plan, caf::response_promise promise, int waits);
  /// Asks the allocator for slots; `granted` follows in any case.
  void take_slots(plan_id plan, const namespace_id& space, rank_number rank, std::uint32_t count);
  void granted(plan_id plan, const std::vector<slot_ref>& slots);
  caf::result<void> bind(const registry_peers& peers);
  result<void> add_rank(const add_rank_request& x);
  /// Whether the rank has this allocator, and not another one by now.
  bool serves(const allocator_actor& slots, const namespace_id& space, rank_number rank) const;
  result<remove_namespace_reply> remove_namespace(const remove_namespace_request& x, timestamp t);
  result<finish_reply> invalidate(const invalidate_request& x, timestamp t);
  void tick_at_once();
  void tick_later();
  /// Sends what the last call left behind; before that call is answered.
  void flush();
  /// Gives the store what it has not got, if it is not busy with what it has.
  void write_changes();
  void store_failed(const error& why);
  /// Tells the node's condition when the store is slow, and when it no longer is.
  void watch_store();
  void tell_worker(word_to_worker& x);
  void tell_allocator(const allocator_actor& to, const slots_to_allocator& batch);

  /// Runs one call of the state that nothing follows from but its answer.
  template <class Call>
  auto look(request_kind kind, std::size_t items, Call call);
  /// Runs one call of the state, sends what follows from it, notes how long it took, and answers.
  template <class Call>
  auto serve(request_kind kind, std::size_t items, Call call);
  /// The same for calls that change something: the answer waits until the change is durable.
  template <class Call>
  auto serve_change(request_kind kind, std::size_t items, Call call);
  /// The same for what is not refused however many answers wait: those who ask wait for one answer before they ask
  /// again, or have something to say as often as they have memory for pages.
  template <class Call>
  auto serve_any_change(request_kind kind, std::size_t items, Call call);
  void sample(request_kind kind, std::size_t items, timestamp started);
  void send_samples();

  // A promise that is here is delivered once: by `granted`, which follows each request for slots exactly once, by
  // `go_on`, by the journal, or by `on_exit`. A call of the state is followed by `flush` before it is answered, with a
  // store too: then what the call said to allocators, and the answer, wait in the journal behind its changes.

  registry_state state_;
  std::vector<registry_actor> shards_;
  /// Its peers have been named.
  bool bound_ = false;
  rank_table<allocator_actor> allocators_;
  /// Those that want to know what lookups find.
  rank_table<io_worker_actor> workers_;
  /// Who waits for the slots of a reservation: the request, and repetitions of it.
  std::unordered_map<plan_id, std::vector<caf::response_promise>> plans_;
  /// Who goes on with a removal when an allocator has answered for a reservation that it ends.
  std::vector<caf::response_promise> removals_;
  /// Who waits for another request's plan, to ask again after it.
  struct waiting_request {
    allocate_request wanted;
    caf::response_promise promise;
    /// How many more plans it may wait for.
    int waits = 0;
  };
  std::unordered_map<plan_id, std::vector<waiting_request>> waiting_;
  std::shared_ptr<store::metadata_store> store_;
  /// If there is a store.
  std::optional<journal> journal_;
  /// The batch that is at the store.
  timestamp write_began_{};
  metrics_actor metrics_;
  latency_collector samples_;
  /// Of damaged pages.
  log_limit damage_;
  /// Ticks on their way to this actor; there is always one, and seldom two.
  std::size_t ticks_ = 0;
};

} // namespace troupe
