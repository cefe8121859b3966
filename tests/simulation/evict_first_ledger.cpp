#include "tests/simulation/evict_first_ledger.hpp"

#include <algorithm>

namespace troupe::simulation {

void evict_first_ledger::committed(std::uint32_t shard, const key_digest& key, bool first, bool transient,
                                   timestamp now, timestamp before) {
  auto& x = keys_[key];
  const bool held = book_.count_of(shard, key, now, before).second > 0;
  if (first) {
    x = {};
    x.transient = transient;
  }
  x.shard = shard;
  x.perhaps_transient = x.perhaps_transient || transient;
  x.perhaps_leased = x.perhaps_leased || held;
  x.made = ++clock_;
  x.made_under_lease = held;
}

void evict_first_ledger::used(const ticket& lease, std::span<const key_digest> keys) {
  for (const auto& key : keys) {
    if (lease.owner == other_node)
      taken_.try_emplace({lease, key}, ++clock_);
    auto& x = keys_[key];
    x.notified = false;
    x.for_sure = false;
    x.leased = true;
  }
}

void evict_first_ledger::perhaps_used(const key_digest& key) {
  const auto found = keys_.find(key);
  if (found == keys_.end())
    return;
  auto& x = found->second;
  x.for_sure = false;
  x.perhaps_leased = x.perhaps_leased || x.leased;
  x.leased = false;
}

void evict_first_ledger::wanted(std::span<const key_digest> keys) {
  for (const auto& key : keys) {
    ++wanted_[key];
    perhaps_used(key);
  }
}

void evict_first_ledger::answered(std::span<const key_digest> keys) {
  for (const auto& key : keys) {
    if (const auto found = wanted_.find(key); found != wanted_.end() && --found->second == 0)
      wanted_.erase(found);
    perhaps_used(key);
  }
}

void evict_first_ledger::kept_there(std::uint32_t shard, const ticket& lease, std::span<const key_digest> keys,
                                    timestamp now) {
  for (const auto& key : keys) {
    const auto taken = taken_.find({lease, key});
    if (taken == taken_.end() || !pages_.is_committed(key) || !book_.lists(shard, lease, key, now))
      continue;
    auto& x = keys_[key];
    // It is the later one of the two.
    if (x.made > taken->second)
      continue;
    x.notified = true;
    x.for_sure = !x.made_under_lease;
  }
  std::erase_if(taken_, [&](const auto& x) { return x.first.first == lease; });
}

bool evict_first_ledger::may_be_evict_first(std::uint32_t shard, const key_digest& key, timestamp now) const {
  const auto found = keys_.find(key);
  if (found == keys_.end())
    return false;
  const auto& x = found->second;
  return x.notified ||
         (x.perhaps_transient && (x.leased || x.perhaps_leased) && book_.holder_of(shard, key, now).empty());
}

bool evict_first_ledger::is_evict_first(std::uint32_t shard, const key_digest& key, timestamp now,
                                        timestamp before) const {
  const auto found = keys_.find(key);
  if (found == keys_.end() || wanted_.contains(key))
    return false;
  const auto& x = found->second;
  return (x.notified && x.for_sure) || (x.transient && x.leased && book_.count_of(shard, key, now, before).second == 0);
}

std::pair<std::size_t, std::size_t> evict_first_ledger::count(std::uint32_t shard, timestamp now, timestamp before) {
  std::erase_if(keys_, [&](const auto& x) { return x.second.shard == shard && !pages_.is_committed(x.first); });
  std::pair<std::size_t, std::size_t> out;
  for (const auto& [key, x] : keys_) {
    if (x.shard != shard)
      continue;
    out.first += is_evict_first(shard, key, now, before) ? 1 : 0;
    out.second += may_be_evict_first(shard, key, now) ? 1 : 0;
  }
  return out;
}

} // namespace troupe::simulation
