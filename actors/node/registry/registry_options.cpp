#include "actors/node/registry/registry_options.hpp"

#include "actors/node/eviction/eviction_policies.hpp"
#include "config/node_config.hpp"

#include <algorithm>
#include <chrono>

namespace troupe {

registry_options options_for_shard(const config::node_config& config, std::uint32_t shard) {
  const auto& wanted = config.registry;
  const auto& slot_clients = config.hf3fs;
  registry_options out;
  out.shard = shard;
  out.shard_count = wanted.shards;
  out.max_namespaces = wanted.max_namespaces;
  out.max_lease = wanted.lease_max;
  out.max_reservation = std::max(wanted.reservation_deadline, slot_clients.reservation_deadline);
  // A slot client that reserves a page that is already live protects it as long as a reservation of it would last.
  out.max_protection = std::max(out.max_reservation, slot_clients.protect_locations);
  out.max_batch = std::max(wanted.max_batch_keys, config.http.limits.keys);
  out.max_leases = wanted.max_leases;
  out.max_leases_per_owner = wanted.max_leases_per_owner;
  out.max_lease_keys = wanted.max_lease_keys;
  out.max_reserved_pages = wanted.max_reserved_pages;
  out.max_reservations_per_owner = wanted.max_reservations_per_owner;
  out.children_hold = wanted.children_hold;
  out.await_fetched = config.cluster.fetch_time + std::chrono::seconds(1);
  out.eviction = eviction_named(wanted.eviction);
  // Slab files from the config, or for namespaces that clients create.
  const bool slabs = config.memory.write_back != "never" &&
                     (config.storage.disk_bytes > 0 ||
                      std::ranges::any_of(config.storage.ranks, [](const auto& x) { return x.slab_bytes > 0; }));
  out.tells_workers = slabs && (config.memory.prefetch_bytes > 0 || config.memory.admission == "second_hit");
  out.promised = std::max(slot_clients.protect_locations, slot_clients.reservation_deadline);
  return out;
}

std::vector<std::shared_ptr<lookup_history>> histories_of(const config::node_config& config, timestamp began) {
  // A lookup that misses is explained by the removal of one of the keys that its client saved before.
  constexpr std::uint32_t events_per_lookup = 64;
  std::vector<std::shared_ptr<lookup_history>> out;
  const auto lookups = config.registry.explain_lookups;
  const auto events = lookups * events_per_lookup / config.registry.shards;
  // A lookup has a part in each shard; an event concerns one of them.
  for (std::uint32_t shard = 0; lookups > 0 && shard < config.registry.shards; ++shard)
    out.push_back(std::make_shared<lookup_history>(lookups, events, began));
  return out;
}

} // namespace troupe
