#pragma once

#include "actors/node/allocator/allocator_state.hpp"
#include "actors/node/allocator/eviction_shares.hpp"
#include "actors/node/registry/registry_state.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/page_origin.hpp"
#include "base/reuse_counts.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace troupe::offline {

/// A simulation of a node that processes the keys of requests one after the other: the real rules of registry shards
/// and allocators, with one namespace, or one for each group of layers, without actors, bytes or clocks.
class played_cache {
public:
  struct options {
    /// Slots of each rank.
    std::uint64_t capacity = 0;
    std::uint32_t shards = 1;
    eviction_factory policy = nullptr;
    /// As `storage.low_watermark` and `storage.high_watermark`; 0: slots are freed on demand.
    double low_watermark = 0;
    double high_watermark = 0;
    /// Seeds the hashes of keys, which select the sample from which `reuse` learns.
    std::uint64_t seed = 7;
    /// The world size. Ranks are filled and emptied together, so it hardly affects the hits.
    std::uint32_t ranks = 1;
    /// The slots of each rank in the namespace of each group of layers, in place of `capacity`. Empty: one namespace.
    std::vector<std::uint64_t> group_capacities = {};
    /// Whether the namespaces of the groups know of each other, as those of one model do.
    bool groups_related = true;
  };

  explicit played_cache(const options& how);
  ~played_cache();
  played_cache(const played_cache&) = delete;
  played_cache& operator=(const played_cache&) = delete;

  /// Looks up the keys of a request, in prefix order, loads the found ones, and saves the rest. Returns the number of
  /// leading keys found.
  std::size_t play(std::span<const key_digest> keys);

  // -- the same in steps, for a simulation of several nodes

  /// Begins a request: everything that it looks up is leased by the result until `end`.
  ticket begin();
  /// The number of leading keys that are found; leases them as well. `by_peer`: for another node.
  std::size_t match(std::span<const key_digest> keys, ticket lease, bool by_peer = false);
  /// Loads the first `matched` keys.
  void load(std::span<const key_digest> keys, std::size_t matched) { load(keys, 0, matched, 0); }
  /// Saves a half-open range of keys on all ranks; returns the keys that were new on the first one.
  std::vector<key_digest> save(std::span<const key_digest> keys, std::size_t first, std::size_t last,
                               page_origin origin = page_origin::client) {
    return save(keys, first, last, {.origin = origin});
  }
  /// `kept_there`: the keys under the lease of which another node has made pages, and keeps them.
  void end(ticket lease, std::span<const key_digest> kept_there = {}, std::uint32_t group = 0);

  // -- with several groups, each with a lease of its own

  /// Leases every key that is found in the group, and marks it.
  std::vector<std::uint8_t> find(std::span<const key_digest> keys, ticket lease, std::uint32_t group);
  /// Keeps the lease on a half-open range of keys, which is a use, and loads them; gives back the rest.
  void use(std::span<const key_digest> keys, std::size_t first, std::size_t last, ticket lease, std::uint32_t group);
  struct saving {
    page_origin origin = page_origin::client;
    std::uint32_t group = 0;
    /// Whether each key has the one before it as parent: not in the group of a window or of states.
    bool chained = true;
  };
  std::vector<key_digest> save(std::span<const key_digest> keys, std::size_t first, std::size_t last,
                               const saving& how);

  timestamp now() const noexcept { return now_; }
  /// Free slots of a rank.
  std::uint64_t free_slots(rank_number rank) const { return groups_[0].ranks[rank].allocator.stats().free; }
  std::uint64_t evicted_keys() const;
  std::uint32_t shards() const noexcept { return static_cast<std::uint32_t>(shards_.size()); }
  const namespace_id& ns() const noexcept { return groups_[0].ns; }
  result<reuse_reply> report_reuse(std::uint32_t shard) const { return shards_[shard]->report_reuse({ns()}); }
  void learn_reuse(std::uint32_t shard, const reuse_counts& counts);

private:
  struct rank_part {
    allocator_state allocator;
    eviction_shares shares;
  };

  struct group_part {
    namespace_id ns;
    std::vector<rank_part> ranks;
  };

  /// A request for slots, until it is committed.
  struct pending_write {
    std::size_t shard = 0;
    plan_id plan = 0;
    reserve_request request;
    /// One for each key of the request, once the allocator has answered.
    std::vector<location> results;
  };

  /// The evictions that an allocator has requested from the shards, one request each; empty ones are not sent.
  struct pending_eviction {
    std::uint32_t group = 0;
    rank_number rank = 0;
    std::vector<evict_request> requests;
  };

  ticket next_ticket() { return {1, ++sequence_}; }
  std::uint32_t owner_of(const key_digest& key) const;
  std::vector<std::vector<std::size_t>> parts(std::span<const key_digest> keys, std::size_t first,
                                              std::size_t last) const;
  void load(std::span<const key_digest> keys, std::size_t first, std::size_t last, std::uint32_t group);
  std::uint32_t group_of(const namespace_id& ns) const;
  void begin_write(std::size_t shard, std::uint32_t group, reserve_request request);
  void granted(const take_answer& answer);
  bool deliver(registry_state& from);
  void settle();
  void collect(std::uint32_t group, rank_number rank);
  void evict(const pending_eviction& what);

  std::vector<group_part> groups_;
  std::vector<std::unique_ptr<registry_state>> shards_;
  timestamp now_{std::chrono::seconds(1)};
  std::uint64_t sequence_ = 0;
  std::deque<pending_eviction> evictions_;
  /// The writes of the current save; the number of a write is its index.
  std::vector<pending_write> writes_;
  /// How many of them are answered.
  std::size_t answered_ = 0;
};

} // namespace troupe::offline
