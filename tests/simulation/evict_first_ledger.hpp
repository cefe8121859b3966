#pragma once

#include "base/identifiers.hpp"
#include "tests/simulation/lease_book.hpp"
#include "tests/simulation/page_ledger.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>

namespace troupe::simulation {

/// Tracks which keys may be evicted first, by the requests to shards and their answers: keys whose pages another node
/// has read under its lease and keeps, until they are used; and transient keys whenever they are not being read. Where
/// this cannot be known, as at the moment at which a lease expires, a key may be evict-first, and need not.
class evict_first_ledger {
public:
  /// The owner id of the node that the world plays.
  static constexpr owner_id other_node = 0x6e6f64652d32;

  evict_first_ledger(const lease_book& book, const page_ledger& pages) : book_(book), pages_(pages) {}

  void clear() {
    keys_.clear();
    taken_.clear();
    wanted_.clear();
  }

  /// A page of the key was committed; whether it is its first one, and whether it was fetched to go. `before`: a lease
  /// that had expired by then has been ended.
  void committed(std::uint32_t shard, const key_digest& key, bool first, bool transient, timestamp now,
                 timestamp before);
  /// A lookup or a locate has found them, under this lease.
  void used(const ticket& lease, std::span<const key_digest> keys);
  /// A client is about to save these keys, which uses those that exist already, and may take no lease on them: some
  /// time before the answer.
  void wanted(std::span<const key_digest> keys);
  void answered(std::span<const key_digest> keys);
  /// Another node has given this lease back, which held them before, and keeps pages of those.
  void kept_there(std::uint32_t shard, const ticket& lease, std::span<const key_digest> keys, timestamp now);

  bool may_be_evict_first(std::uint32_t shard, const key_digest& key, timestamp now) const;
  bool is_evict_first(std::uint32_t shard, const key_digest& key, timestamp now, timestamp before) const;
  /// How many are, at least and at most. Forgets keys that do not exist.
  std::pair<std::size_t, std::size_t> count(std::uint32_t shard, timestamp now, timestamp before);

private:
  /// May have been used under no lease.
  void perhaps_used(const key_digest& key);

  struct record {
    std::uint32_t shard = 0;
    /// Whether it is transient, for certain and perhaps: the shard may have forgotten an earlier page of it.
    bool transient = false;
    bool perhaps_transient = false;
    /// Whether another node has reported it since it was used; and whether the report must be believed.
    bool notified = false;
    bool for_sure = false;
    /// Whether it was leased since it became transient, for certain and perhaps.
    bool leased = false;
    bool perhaps_leased = false;
    /// When its last page was made, and whether it may have been held then.
    std::uint64_t made = 0;
    bool made_under_lease = false;
  };

  const lease_book& book_;
  const page_ledger& pages_;
  std::map<key_digest, record> keys_;
  /// When a lease of the other node has got a key.
  std::map<std::pair<ticket, key_digest>, std::uint64_t> taken_;
  /// How often each is requested by pending requests.
  std::map<key_digest, std::uint32_t> wanted_;
  std::uint64_t clock_ = 0;
};

} // namespace troupe::simulation
