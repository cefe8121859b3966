#pragma once

#include "messages/allocator_messages.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// What the allocator of one (namespace, rank) is to be told. To be sent in the order of the members.
struct slots_to_allocator {
  namespace_id space;
  rank_number rank = 0;
  slot_batch publish;
  slot_batch abort;
  slot_batch release;
};

/// What another shard is to be told. Deltas between two shards should arrive in the order they were sent; if they do
/// not, counts are still exact once all have arrived.
struct links_to_shard {
  std::uint32_t shard = 0;
  link_request request;
};

/// What follows from calls to a registry's state, for its actor to send, before it answers the call: an allocator that
/// hears how many slots an eviction freed must have heard of the slots.
struct registry_outbox {
  std::vector<slots_to_allocator> slots;
  std::vector<links_to_shard> links;

  bool empty() const noexcept { return slots.empty() && links.empty(); }
};

/// Collects the outbox of one namespace.
class outbox_collector {
public:
  outbox_collector(namespace_id space, std::uint32_t world_size, std::uint32_t shard_count);

  void publish(rank_number rank, slot_ref where) { of_rank(rank).publish.slots.items.push_back(where); }
  void abort(rank_number rank, slot_ref where) { of_rank(rank).abort.slots.items.push_back(where); }
  void release(rank_number rank, slot_ref where) { of_rank(rank).release.slots.items.push_back(where); }
  void link(std::uint32_t shard, child_delta change);

  /// Appends what was collected, and forgets it.
  void drain_into(registry_outbox& out);

private:
  slots_to_allocator& of_rank(rank_number rank);

  static constexpr std::uint32_t nowhere = 0xffffffff;

  namespace_id space_;
  registry_outbox pending_;
  /// By rank and by shard: where in `pending_` its part stands.
  std::vector<std::uint32_t> rank_at_;
  std::vector<std::uint32_t> shard_at_;
};

} // namespace troupe
