#pragma once

#include "messages/messages.hpp"

#include <memory>
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
  return a;
}

/// Asks all shards for their statistics and hands on the sum, or the first error. One of the two is called once.
template <class Self, class Shard, class OnSum, class OnError>
void sum_registry_stats(Self* self, const std::vector<Shard>& shards, duration timeout, OnSum on_sum,
                        OnError on_error) {
  struct gathering {
    registry_stats sum;
    std::size_t waiting = 0;
    bool failed = false;
  };
  auto shared = std::make_shared<gathering>();
  shared->waiting = shards.size();
  for (const auto& shard : shards)
    self->request(shard, timeout, stats_atom_v)
        .then(
            [shared, on_sum](const registry_stats& x) mutable {
              shared->sum += x;
              if (--shared->waiting == 0 && !shared->failed)
                on_sum(shared->sum);
            },
            [shared, on_error](const caf::error& e) mutable {
              if (!std::exchange(shared->failed, true))
                on_error(e);
            });
}

} // namespace troupe
