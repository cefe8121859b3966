#pragma once

#include "actors/support/gather.hpp"
#include "messages/messages.hpp"

#include <utility>
#include <vector>

namespace troupe {

inline registry_stats& operator+=(registry_stats& a, const registry_stats& b) {
  a.keys += b.keys;
  a.complete_keys += b.complete_keys;
  a.leases += b.leases;
  a.reservations += b.reservations;
  a.evicted_keys += b.evicted_keys;
  a.invalidated_pages += b.invalidated_pages;
  a.expired_leases += b.expired_leases;
  a.expired_reservations += b.expired_reservations;
  a.refused += b.refused;
  a.resident_bytes += b.resident_bytes;
  a.reclaimed_pages += b.reclaimed_pages;
  a.erased_pages += b.erased_pages;
  a.withheld_slots += b.withheld_slots;
  a.invalidated_in_memory += b.invalidated_in_memory;
  a.invalidated_on_disk += b.invalidated_on_disk;
  a.evict_first_keys += b.evict_first_keys;
  return a;
}

/// Requests the statistics of all shards; `then` gets the sum, or the first error, when all have answered.
template <class Self, class Shard, class Then>
void sum_registry_stats(Self* self, const std::vector<Shard>& shards, duration timeout, Then then) {
  const auto all = gather(shards.size(), registry_stats{}, std::move(then));
  for (const auto& shard : shards)
    self->request(shard, timeout, stats_atom_v)
        .then(
            [all](const registry_stats& x) {
              all->value() += x;
              all->part_done();
            },
            [all](const caf::error& e) { all->part_failed(from_caf(e)); });
}

} // namespace troupe
