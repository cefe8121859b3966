#pragma once

#include "actors/registry/registry_state.hpp"
#include "messages/messages.hpp"

#include <map>
#include <unordered_map>
#include <vector>

namespace troupe {

/// One shard of the metadata registry. Asks allocators for slots while a reservation waits, tells them what became of
/// their slots, and tells the other shards of children. Never blocks: between the two halves of a reservation it
/// serves other requests.
class registry : public registry_actor::base {
public:
  registry(caf::actor_config& config, const registry_options& options, const std::vector<namespace_spec>& spaces,
           metrics_actor metrics);

  const char* name() const override { return "registry"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  timestamp now() const { return clock().now(); }

  caf::result<reserve_reply> reserve(const reserve_request& wanted);
  void granted(plan_id plan, const std::vector<slot_ref>& slots);
  caf::result<void> bind(const registry_peers& peers);
  void tick_at_once();
  void tick_later();
  /// Sends what the last call left behind; before that call is answered.
  void flush();
  void tell_allocator(const slots_to_allocator& batch);
  const allocator_actor* allocator_of(const namespace_id& space, rank_number rank) const;

  /// Runs one call of the state, sends what follows from it, notes how long it took, and answers.
  template <class Call>
  auto serve(request_kind kind, std::size_t items, Call call);
  void sample(request_kind kind, std::size_t items, timestamp started);

  registry_state state_;
  std::vector<registry_actor> shards_;
  std::map<std::pair<namespace_id, rank_number>, allocator_actor> allocators_;
  /// Who waits for the slots of a reservation: the request, and repetitions of it.
  std::unordered_map<plan_id, std::vector<caf::response_promise>> plans_;
  metrics_actor metrics_;
  latency_batch samples_;
  /// Ticks on their way to this actor; there is always one, and seldom two.
  std::size_t ticks_ = 0;
};

} // namespace troupe
