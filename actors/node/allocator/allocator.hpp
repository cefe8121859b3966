#pragma once

#include "actors/node/allocator/allocator_state.hpp"
#include "actors/node/allocator/eviction_shares.hpp"
#include "base/memory_budget.hpp"
#include "messages/messages.hpp"

#include <unordered_map>
#include <vector>

namespace troupe {

/// The actor that allocates the slots of one (namespace, rank). It asks the registry shards to evict when slots run
/// low, and its io worker to fence slots before they are free again. Without an io worker there is no fence, because
/// engines write the slab themselves, and `allocator_options::fenced` is false in any case.
class allocator : public allocator_actor::base {
public:
  allocator(caf::actor_config& config, const allocator_options& options, const namespace_id& ns, rank_number rank,
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
  /// Requests growth: from the io worker, where slots depend on memory only, or from the actor that grows their file.
  /// `within_room`: how many of them need no more disk space.
  void grow(std::uint32_t slots, std::uint32_t within_room);
  /// Requests more memory from the io worker, for memory slots.
  void grow_frames(std::uint32_t frames);
  /// Passes the answer on to `grown`; after an error there is as much as before.
  template <class Asked, class Grown, class AsBefore>
  void take_growth(Asked asked, const char* of, Grown grown, AsBefore as_before);
  void fenced(const std::vector<slot_ref>& slots);
  /// Tells the io worker which slots are free after a restart.
  void vacate_free();
  /// Applies a change of slots that a shard reports.
  template <class Call>
  caf::result<slot_results> change(const slot_batch& batch, Call call);
  static slot_results codes(const std::vector<errc>& results);

  /// The memory share of the slots; it is returned when the allocator ends.
  memory_share memory_;
  allocator_state state_;
  namespace_id ns_;
  rank_number rank_;
  io_worker_actor worker_;
  /// Null unless the slots are in a file that grows.
  slab_grower_actor grower_;
  std::vector<registry_actor> shards_;
  eviction_shares shares_{0};
  bool bound_ = false;
  std::unordered_map<std::uint64_t, caf::response_promise> waiting_;
  std::uint64_t last_request_ = 0;
};

} // namespace troupe
