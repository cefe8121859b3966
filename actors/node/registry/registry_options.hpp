#pragma once

#include "actors/node/eviction/lru_policy.hpp"
#include "actors/node/registry/lookup_history.hpp"
#include "actors/node/registry/request_recorder.hpp"
#include "actors/node/tables/page_residence.hpp"
#include "actors/support/node_condition.hpp"
#include "base/clock.hpp"
#include "base/memory_budget.hpp"
#include "events/feed.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace troupe::config {
struct node_config;
} // namespace troupe::config

namespace troupe {

/// Limits of one registry shard, and its place among the shards.
struct registry_options {
  std::uint32_t shard = 0;
  std::uint32_t shard_count = 1;

  // Limits for clients, from the config.

  /// Keys or pages per request.
  std::uint32_t max_batch = 8192;
  duration max_lease = std::chrono::minutes(10);
  duration max_reservation = std::chrono::minutes(10);
  /// For keys that are located without a lease.
  duration max_protection = std::chrono::minutes(10);
  /// The longest time that slot clients may have been promised before a restart; a restart loses these promises.
  /// Restored keys are protected for as long, where slots are found by number.
  duration promised{};
  std::uint32_t max_leases = 1U << 16;
  std::uint32_t max_leases_per_owner = 1U << 14;
  /// Keys per lease.
  std::uint32_t max_lease_keys = 1U << 16;
  /// Pages reserved at one time: by all, and by one owner (the latter counts requests). Pages of slot clients count
  /// only towards the first.
  std::uint32_t max_reserved_pages = 1U << 20;
  std::uint32_t max_reservations_per_owner = 1U << 12;
  /// How long a key whose turn it is to be evicted is kept by its children; then it is evicted before them. The limit
  /// is needed because parents come from clients and may be wrong, even cyclic.
  duration children_hold = std::chrono::minutes(10);
  /// How long pages from other nodes are kept while anything else can be evicted, unless they are leased earlier. It
  /// covers the time until the request that waits for the last of the fetched pages is notified and leases them.
  duration await_fetched = std::chrono::seconds(3);

  // How long one call keeps the shard from serving others. Operators need not set these: remaining work is done by the
  // next call, so a larger number makes nothing faster, and a smaller one adds a message per part. At some 100 ns per
  // key the pause is one to two milliseconds.

  /// Keys examined by one call of `evict`, whatever is wanted.
  std::uint32_t max_eviction_looks = 1U << 14;
  /// Keys and pages given back by one `tick`.
  std::uint32_t tick_work = 1U << 13;
  /// Keys examined by one call of `clear` or `remove_namespace`.
  std::uint32_t max_clear_looks = 1U << 13;

  /// Answers that wait for the store at one time. Above it, changes are refused until the disk has caught up.
  std::size_t max_waiting_for_store = 1U << 16;

  std::uint32_t max_namespaces = 256;
  /// Size of the arrays that are indexed by rank, used or not: the most ranks that a namespace may have when its ranks
  /// are registered at run time.
  std::uint32_t max_ranks = 1024;

  // Values from the node that the shard belongs to.

  /// Whether changes that must survive a restart are reported in the outbox.
  bool change_feed = false;
  /// Whether results of lookups are reported in the outbox for io workers.
  bool tells_workers = false;
  /// Makes the hash of the key index unpredictable. Any value will do in tests.
  std::uint64_t hash_seed = 0;
  /// Memory budget of keys, leases and reservations, shared with other parts; null for no limit. When it is used up, a
  /// new key replaces one that can be evicted, or its reservation answers full, and there are no new leases.
  shared_budget memory{};
  /// The order in which keys are evicted.
  eviction_factory eviction = make_lru_policy;
  /// Which namespaces cannot save; null if nothing reports that.
  std::shared_ptr<node_condition> condition{};
  /// Receives lookups, and the parents that saves name; null if no trace is wanted.
  std::shared_ptr<request_recorder> recorder{};
  /// Receives the lookups of this shard, and what explains their misses; null if nothing is to be explained.
  std::shared_ptr<lookup_history> history{};
  /// Which pages are in memory; null if unknown.
  std::shared_ptr<const page_residence> residence{};
  /// Receives what is to be published about keys; null if the node publishes no events.
  std::shared_ptr<events::feed> events{};
};

/// Options of one shard of a node with this config. The caller adds what the shards share: a store, their memory
/// budget, a hash seed.
registry_options options_for_shard(const config::node_config& config, std::uint32_t shard);

/// The histories of a node's shards, which together remember what the config asks for; none if it asks for none.
std::vector<std::shared_ptr<lookup_history>> histories_of(const config::node_config& config, timestamp began);

} // namespace troupe
