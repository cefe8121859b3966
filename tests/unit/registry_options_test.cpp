#include "actors/node/eviction/eviction_policies.hpp"
#include "actors/node/registry/registry_options.hpp"
#include "config/node_config.hpp"
#include "config/schema.hpp"
#include "tests/catch.hpp"

namespace registry_options_test {

using namespace troupe;

TEST_CASE("registry options: the options of a registry shard match the config", "[registry]") {
  config::node_config config;
  config.registry.shards = 7;
  config.registry.max_namespaces = 8;
  config.registry.lease_max = std::chrono::seconds(11);
  config.registry.reservation_deadline = std::chrono::seconds(12);
  config.registry.max_batch_keys = 13;
  config.registry.max_leases = 14;
  config.registry.max_leases_per_owner = 15;
  config.registry.max_lease_keys = 16;
  config.registry.max_reserved_pages = 17;
  config.registry.max_reservations_per_owner = 18;
  config.registry.children_hold = std::chrono::seconds(19);
  config.registry.eviction = "s3-fifo";
  config.hf3fs.reservation_deadline = std::chrono::seconds(20);
  config.hf3fs.protect_locations = std::chrono::seconds(21);
  config.http.limits.keys = 22;
  const auto options = options_for_shard(config, 3);
  CHECK(options.shard == 3);
  CHECK(options.shard_count == 7);
  CHECK(options.max_namespaces == 8);
  CHECK(options.max_lease == std::chrono::seconds(11));
  CHECK(options.max_reservation == std::chrono::seconds(20));
  CHECK(options.max_protection == std::chrono::seconds(21));
  CHECK(options.promised == std::chrono::seconds(21));
  CHECK(options.max_batch == 22);
  CHECK(options.max_leases == 14);
  CHECK(options.max_leases_per_owner == 15);
  CHECK(options.max_lease_keys == 16);
  CHECK(options.max_reserved_pages == 17);
  CHECK(options.max_reservations_per_owner == 18);
  CHECK(options.children_hold == std::chrono::seconds(19));
  CHECK(options.eviction == make_s3_fifo_policy);
  config.registry.eviction = "lru";
  CHECK(options_for_shard(config, 0).eviction == make_lru_policy);
  CHECK(options_for_shard(config::node_config{}, 0).eviction == make_reuse_policy);
}

TEST_CASE("registry options: a shard allows the longest times and largest batches of any kind of client",
          "[registry]") {
  config::node_config config;
  config.registry.reservation_deadline = std::chrono::seconds(30);
  config.hf3fs.reservation_deadline = std::chrono::seconds(10);
  config.hf3fs.protect_locations = std::chrono::seconds(20);
  config.registry.max_batch_keys = 40;
  config.http.limits.keys = 4;
  const auto options = options_for_shard(config, 0);
  CHECK(options.max_reservation == std::chrono::seconds(30));
  CHECK(options.max_protection == std::chrono::seconds(30));
  CHECK(options.promised == std::chrono::seconds(20));
  CHECK(options.max_batch == 40);
}

TEST_CASE("registry options: io workers are notified of leases where there may be slabs, for every protocol",
          "[registry]") {
  config::node_config config;
  config.storage.ranks.clear();
  config.storage.disk_bytes = 0;
  config.memory.write_back = "eager";
  config.memory.admission = "all";
  config.memory.prefetch_bytes = 1U << 20U;
  CHECK_FALSE(options_for_shard(config, 0).tells_workers);
  config.storage.ranks.assign(2, {1U << 20U, {}});
  CHECK(options_for_shard(config, 0).tells_workers);
  config.storage.ranks.clear();
  config.storage.disk_bytes = 1U << 30U;
  CHECK(options_for_shard(config, 0).tells_workers);
  config.memory.prefetch_bytes = 0;
  CHECK_FALSE(options_for_shard(config, 0).tells_workers);
  config.memory.admission = "second_hit";
  CHECK(options_for_shard(config, 0).tells_workers);
  config.memory.write_back = "never";
  CHECK_FALSE(options_for_shard(config, 0).tells_workers);
}

TEST_CASE("registry options: every eviction policy has a name in the config, and every name a policy", "[registry]") {
  std::vector<std::string_view> names;
  for (const auto& x : eviction_policies)
    names.push_back(x.name);
  CHECK(std::ranges::equal(names, config::evictions));
  for (const auto& x : eviction_policies)
    CHECK(eviction_named(x.name) == x.make);
}

} // namespace registry_options_test
