#pragma once

#include "actors/node/allocator/allocator_state.hpp"
#include "actors/node/allocator/eviction_shares.hpp"
#include "base/memory_budget.hpp"
#include "messages/messages.hpp"

#include <unordered_map>
#include <vector>

namespace troupe {

/// The allocator of one (namespace, rank). Asks the registry shards to evict when slots run low, and its io worker to
/// fence slots before they are free again. Without an io worker nobody can: engines write the slab themselves, and
/// `allocator_options::fenced` is false whatever the options say.
class allocator : public allocator_actor::base {
public:
  allocator(caf::actor_config& config, const allocator_options& options, const namespace_id& space, rank_number rank,
            io_worker_actor worker, memory_share memory = {}, slab_grower_actor grower = {});

  const char* name() const override { return "allocator"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  timestamp now() const { return clock().now(); }
  void flush();
  void evict(std::uint32_t wanted);
  void fence(std::vector<slot_ref> slots);
  /// Asks for more: the io worker for memory, where slots are no more than that, or who makes their file grow.
  void grow(std::uint32_t slots);
  template <class Asked>
  void take_growth(Asked asked);
  void fenced(const std::vector<slot_ref>& slots);
  /// What the shards say of slots that they have.
  template <class Call>
  caf::result<slot_results> change(const slot_batch& batch, Call call);
  static slot_results codes(const std::vector<errc>& results);

  /// Is given back with the slots.
  memory_share memory_;
  allocator_state state_;
  namespace_id space_;
  rank_number rank_;
  io_worker_actor worker_;
  /// Null unless slots lie in a file that grows.
  slab_grower_actor grower_;
  std::vector<registry_actor> shards_;
  eviction_shares shares_{0};
  bool bound_ = false;
  std::unordered_map<std::uint64_t, caf::response_promise> waiting_;
  std::uint64_t last_request_ = 0;
};

} // namespace troupe
