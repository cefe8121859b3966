#pragma once

#include "actors/node/registry/lru_policy.hpp"
#include "actors/node/registry/request_recorder.hpp"
#include "base/clock.hpp"
#include "base/memory_budget.hpp"
#include "base/node_condition.hpp"
#include "base/page_residence.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace troupe::config {
struct node_config;
} // namespace troupe::config

namespace troupe {

/// Limits of one registry shard, and its place among the shards.
struct registry_options {
  std::uint32_t shard = 0;
  std::uint32_t shard_count = 1;

  // What clients may have of it: from the config.

  /// Keys or pages of one request.
  std::uint32_t max_batch = 8192;
  duration max_lease = std::chrono::minutes(10);
  duration max_reservation = std::chrono::minutes(10);
  /// Of keys that are located without a lease.
  duration max_protection = std::chrono::minutes(10);
  /// The longest time that slot clients may have been promised before a restart, which forgets them. Keys that are
  /// restored are protected for as long, where slots are known by number.
  duration promised{};
  std::uint32_t max_leases = 1U << 16;
  std::uint32_t max_leases_per_owner = 1U << 14;
  /// Keys held by one lease.
  std::uint32_t max_lease_keys = 1U << 16;
  /// Pages reserved at one time, by all and by one owner (the latter counts requests). Those of slot clients count
  /// among all.
  std::uint32_t max_reserved_pages = 1U << 20;
  std::uint32_t max_reservations_per_owner = 1U << 12;
  /// A key whose turn it is to be evicted is kept by its children for so long; then it goes before them. What clients
  /// say of parents may be untrue, and they might name each other in a ring.
  duration children_hold = std::chrono::minutes(10);
  /// Pages of other nodes are kept for so long, or until they are leased, as long as anything else can go: until
  /// whoever waits for the last of those that come with them has heard that they are here, and leases them.
  duration await_fetched = std::chrono::seconds(3);

  // How long one call keeps the shard from serving others. These are no business of an operator's: work that is left is
  // done by the next call, so that a larger number makes nothing faster, and a smaller one adds a message for each
  // part. At some 100 ns a key they are a pause of one to two milliseconds.

  /// Keys looked at by one call of `evict`, whatever is wanted.
  std::uint32_t max_eviction_looks = 1U << 14;
  /// Keys and pages given back by one `tick`.
  std::uint32_t tick_work = 1U << 13;
  /// Keys looked at by one call of `clear` or `remove_namespace`.
  std::uint32_t max_clear_looks = 1U << 13;

  /// Answers that wait for the store at one time. Beyond it, changes are refused until the disk has caught up.
  std::size_t max_waiting_for_store = 1U << 16;

  std::uint32_t max_namespaces = 256;
  /// What the arrays by rank are made for, whether they are used or not: ranks that a namespace may allow itself when
  /// they are registered at run time.
  std::uint32_t max_ranks = 1024;

  // What comes from the node that the shard is part of.

  /// Report in the outbox what has to survive a restart.
  bool change_feed = false;
  /// Report in the outbox what io workers are to know of what lookups find.
  bool tells_workers = false;
  /// Makes the hash of the key index unpredictable. Any value will do in tests.
  std::uint64_t hash_seed = 0;
  /// Of keys, leases and reservations, shared with others; null for no limit. When it is used up, a new key takes the
  /// place of one that can be evicted, or its reservation answers full, and there are no new leases.
  shared_budget memory{};
  /// In which order keys go when room is needed.
  eviction_factory eviction = make_lru_policy;
  /// Says in which namespaces nothing can be saved; null if nobody does.
  std::shared_ptr<node_condition> condition{};
  /// Is told of lookups, and of what saves say of parents; null if nobody asks.
  std::shared_ptr<request_recorder> recorder{};
  /// Which pages are in memory; null if nobody says.
  std::shared_ptr<const page_residence> residence{};
};

/// The policy that the config calls so; that of the default for a name that it does not know.
eviction_factory eviction_named(std::string_view name);

/// Of one shard of a node with this config: all that the config says. What the node's shards share, a store, their
/// memory, an entropy, comes from whoever makes them.
registry_options options_for_shard(const config::node_config& config, std::uint32_t shard);

} // namespace troupe
