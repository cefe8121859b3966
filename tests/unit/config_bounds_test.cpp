#include "config/node_config.hpp"
#include "config/outline.hpp"
#include "tests/unit/config_support.hpp"

#include <set>

namespace config_bounds_test {

using namespace troupe;
using namespace troupe::config;

namespace {

/// The ends of a range and what lies just beyond them; empty: there is no value beyond.
struct bounds {
  const char* path;
  const char* below;
  const char* least;
  const char* most;
  const char* above;
};

// Written down once more, so that a bound cannot be changed by accident.
const std::vector<bounds> all_bounds{
    {"actors.port", "", "0", "65535", "65536"},
    {"actors.max_connections", "0", "1", "65536", "65537"},
    {"actors.handshake_time", "999999 ns", "1 ms", "10 min", "600000000001 ns"},
    {"actors.max_message_bytes", "65535", "64 KiB", "1 GiB", "1073741825"},
    {"actors.max_requests", "15", "16", "1048576", "1048577"},
    {"http.port", "", "0", "65535", "65536"},
    {"http.threads", "", "0", "64", "65"},
    {"http.limits.header_bytes", "1023", "1 KiB", "1 MiB", "1048577"},
    {"http.limits.body_bytes", "1023", "1 KiB", "1 GiB", "1073741825"},
    {"http.limits.connections", "0", "1", "65536", "65537"},
    {"http.limits.bodies_bytes", "1023", "1 KiB", "1 TiB", "1099511627777"},
    {"http.limits.connections_per_address", "0", "1", "65536", "65537"},
    {"http.limits.keys", "0", "1", "1048576", "1048577"},
    {"http.limits.requests_per_second", "", "0", "1000000", "1000001"},
    {"http.limits.leases", "0", "1", "16384", "16385"},
    {"http.limits.leased_share", "-0.001", "0", "1", "1.001"},
    {"http.limits.readers_share", "-0.001", "0", "1", "1.001"},
    {"http.limits.readers_lease", "999999 ns", "1 ms", "24 h", "86400000000001 ns"},
    {"http.limits.idle_time", "999999 ns", "1 ms", "24 h", "86400000000001 ns"},
    {"http.limits.receive_time", "999999 ns", "1 ms", "24 h", "86400000000001 ns"},
    {"http.limits.answer_time", "999999 ns", "1 ms", "24 h", "86400000000001 ns"},
    {"http.limits.write_time", "999999 ns", "1 ms", "24 h", "86400000000001 ns"},
    {"handshake.max_payload_bytes", "1023", "1 KiB", "64 MiB", "67108865"},
    {"handshake.memory_bytes", "1048575", "1 MiB", "64 GiB", "68719476737"},
    {"handshake.max_engines", "0", "1", "1048576", "1048577"},
    {"handshake.max_ranks", "0", "1", "65536", "65537"},
    {"handshake.max_waiting", "0", "1", "1048576", "1048577"},
    {"handshake.max_watches", "0", "1", "65536", "65537"},
    {"handshake.max_wait", "999999 ns", "1 ms", "1 h", "3600000000001 ns"},
    {"handshake.ttl_default", "999999 ns", "1 ms", "24 h", "86400000000001 ns"},
    {"handshake.ttl_max", "999999 ns", "1 ms", "24 h", "86400000000001 ns"},
    {"handshake.remember", "999999 ns", "1 ms", "24 h", "86400000000001 ns"},
    {"handshake.watch_patience", "999999 ns", "1 ms", "1 h", "3600000000001 ns"},
    {"handshake.update_bytes", "1023", "1 KiB", "64 MiB", "67108865"},
    {"handshake.http.port", "", "0", "65535", "65536"},
    {"handshake.http.threads", "", "0", "64", "65"},
    {"drain_timeout", "", "0 s", "1 h", "3600000000001 ns"},
    {"statistics_interval", "", "0 s", "24 h", "86400000000001 ns"},
    {"storage.ranks[i].slab_bytes", "", "0", "64 TiB", "70368744177665"},
    {"storage.ranks[i].numa_node", "", "0", "1023", "1024"},
    {"storage.disk_bytes", "", "0", "1024 TiB", "1125899906842625"},
    {"storage.spare_bytes", "", "0", "1024 TiB", "1125899906842625"},
    {"storage.scrub_bytes_per_second", "", "0", "64 GiB", "68719476737"},
    {"storage.claim_lease", "99 ms", "100 ms", "1 min", "60001 ms"},
    {"storage.usrbio_quarantine", "999999 ns", "1 ms", "1 h", "3600000000001 ns"},
    {"storage.low_watermark", "-0.001", "0", "0.5", "0.501"},
    {"storage.high_watermark", "-0.001", "0", "0.5", "0.501"},
    {"memory.bytes", "4194303", "4 MiB", "64 TiB", "70368744177665"},
    {"memory.client_bytes", "65535", "64 KiB", "1 TiB", "1099511627777"},
    {"namespaces[i].world_size", "0", "1", "64", "65"},
    {"namespaces[i].kv_cache.layers", "0", "1", "1024", "1025"},
    {"namespaces[i].kv_cache.parts", "0", "1", "2", "3"},
    {"namespaces[i].kv_cache.heads", "0", "1", "1024", "1025"},
    {"namespaces[i].kv_cache.head_size", "0", "1", "16384", "16385"},
    {"namespaces[i].kv_cache.element_bytes", "0", "1", "4", "5"},
    {"namespaces[i].kv_cache.block_tokens", "0", "1", "4096", "4097"},
    {"namespaces[i].kv_cache.further_layers[i].layers", "0", "1", "1024", "1025"},
    {"namespaces[i].kv_cache.further_layers[i].parts", "0", "1", "2", "3"},
    {"namespaces[i].kv_cache.further_layers[i].heads", "0", "1", "1024", "1025"},
    {"namespaces[i].kv_cache.further_layers[i].head_size", "0", "1", "16384", "16385"},
    {"namespaces[i].kv_cache.further_layers[i].element_bytes", "0", "1", "4", "5"},
    {"registry.shards", "0", "1", "256", "257"},
    {"registry.max_namespaces", "0", "1", "4096", "4097"},
    {"registry.lease_default", "999999 ns", "1 ms", "24 h", "86400000000001 ns"},
    {"registry.lease_max", "999999 ns", "1 ms", "24 h", "86400000000001 ns"},
    {"registry.reservation_deadline", "999999 ns", "1 ms", "1 h", "3600000000001 ns"},
    {"registry.max_batch_keys", "0", "1", "65536", "65537"},
    {"registry.max_leases", "0", "1", "16777216", "16777217"},
    {"registry.max_leases_per_owner", "0", "1", "16777216", "16777217"},
    {"registry.record_keys", "", "0", "1073741824", "1073741825"},
    {"registry.explain_lookups", "", "0", "65536", "65537"},
    {"registry.max_lease_keys", "0", "1", "1048576", "1048577"},
    {"registry.max_reserved_pages", "0", "1", "16777216", "16777217"},
    {"registry.max_reservations_per_owner", "0", "1", "16777216", "16777217"},
    {"registry.children_hold", "999999 ns", "1 ms", "24 h", "86400000000001 ns"},
    {"registry.memory_bytes", "1048575", "1 MiB", "64 TiB", "70368744177665"},
    {"registry.sync_interval", "999999 ns", "1 ms", "1 min", "60000000001 ns"},
    {"hf3fs.world_size", "0", "1", "64", "65"},
    {"hf3fs.protect_locations", "999999 ns", "1 ms", "1 h", "3600000000001 ns"},
    {"hf3fs.reservation_deadline", "999999 ns", "1 ms", "1 h", "3600000000001 ns"},
    {"hf3fs.max_namespaces", "0", "1", "64", "65"},
    {"hf3fs.max_pages_per_rank", "0", "1", "1073741824", "1073741825"},
    {"lmcache.port", "", "0", "65535", "65536"},
    {"lmcache.chunk_tokens", "0", "1", "4096", "4097"},
    {"events.memory_bytes", "", "0 B", "1 TiB", "1099511627777"},
    {"events.buffer_batches", "0", "1", "1048576", "1048577"},
    {"events.buffer_bytes", "1048575", "1 MiB", "1 TiB", "1099511627777"},
    {"events.queue_batches", "0", "1", "1048576", "1048577"},
    {"events.heartbeat", "9999999 ns", "10 ms", "1 h", "3600000000001 ns"},
    {"memory.prefetch_bytes", "", "0 B", "1 TiB", "1099511627777"},
    {"io.queue_depth", "0", "1", "4096", "4097"},
    {"io.threads", "0", "1", "256", "257"},
    {"io.deadline", "999999 ns", "1 ms", "10 min", "600000000001 ns"},
    {"io.max_batch_pages", "0", "1", "4096", "4097"},
    {"io.max_pages_in_flight", "0", "1", "65536", "65537"},
    {"io.max_clients", "0", "1", "4096", "4097"},
    {"transfer.window_bytes", "65535", "64 KiB", "1 TiB", "1099511627777"},
    {"transfer.batch_pages", "0", "1", "4096", "4097"},
    {"transfer.max_tasks", "0", "1", "65536", "65537"},
    {"transfer.task_deadline", "999999 ns", "1 ms", "10 min", "600000000001 ns"},
    {"remote.streams", "-1", "0", "64", "65"},
    {"remote.threads", "-1", "0", "64", "65"},
    {"transfer.remote_bytes", "65535", "64 KiB", "1 TiB", "1099511627777"},
    {"attach.reconnect_backoff_min", "999999 ns", "1 ms", "10 min", "600000000001 ns"},
    {"attach.reconnect_backoff_max", "999999 ns", "1 ms", "10 min", "600000000001 ns"},
    {"attach.request_timeout", "999999 ns", "1 ms", "10 min", "600000000001 ns"},
    {"remote.window_bytes", "65535", "64 KiB", "1 TiB", "1099511627777"},
    {"remote.stall_time", "999999 ns", "1 ms", "10 min", "600000000001 ns"},
    {"cluster.seeds[i].port", "0", "1", "65535", "65536"},
    {"cluster.etcd.endpoints[i].port", "0", "1", "65535", "65536"},
    {"cluster.etcd.lease", "1999999999 ns", "2 s", "10 min", "600000000001 ns"},
    {"cluster.advertise.port", "", "0", "65535", "65536"},
    {"cluster.ask_time", "999999 ns", "1 ms", "10 min", "600000000001 ns"},
    {"cluster.fetch_time", "999999 ns", "1 ms", "10 min", "600000000001 ns"},
    {"cluster.hello_interval", "9999999 ns", "10 ms", "1 min", "60000000001 ns"},
    {"cluster.memory_bytes", "65535", "64 KiB", "1 TiB", "1099511627777"},
    {"caf.scheduler_threads", "", "0", "1024", "1025"},
    {"caf.aggressive_poll_attempts", "", "0", "1000000", "1000001"},
    {"caf.moderate_poll_attempts", "", "0", "1000000", "1000001"},
    {"caf.max_throughput", "0", "1", "1000000", "1000001"},
    {"caf.heartbeat_interval", "9999999 ns", "10 ms", "1 min", "60000000001 ns"},
    {"caf.connection_timeout", "49999999 ns", "50 ms", "10 min", "600000000001 ns"},
};

std::string concrete(std::string path) {
  for (auto at = path.find("[i]"); at != std::string::npos; at = path.find("[i]"))
    path.replace(at, 3, "[0]");
  return path;
}

/// Whether the value is outside of the bounds of the key; rules that relate it to other keys do not count.
bool out_of_bounds(const std::string& path, const std::string& value) {
  const std::vector overrides{path + "=" + value};
  const auto config = parse(small_config, "test.json", overrides);
  if (config)
    return false;
  return std::ranges::any_of(config.error(), [&](const problem& p) {
    return p.path == path && (p.text.starts_with("must be ") || p.text.starts_with("expected "));
  });
}

} // namespace

TEST_CASE("config bounds: every bound is where the schema states it", "[config]") {
  for (const auto& b : all_bounds) {
    const auto path = concrete(b.path);
    INFO(path);
    CHECK_FALSE(out_of_bounds(path, b.least));
    CHECK_FALSE(out_of_bounds(path, b.most));
    CHECK(out_of_bounds(path, b.above));
    if (*b.below != '\0')
      CHECK(out_of_bounds(path, b.below));
    CHECK(out_of_bounds(path, "-1"));
    CHECK(out_of_bounds(path, "18446744073709551616"));
    CHECK(out_of_bounds(path, "1e300"));
    CHECK(out_of_bounds(path, "null"));
    CHECK(out_of_bounds(path, "[]"));
  }
}

TEST_CASE("config bounds: every key with bounds has a test of its bounds", "[config]") {
  std::set<std::string> tested;
  for (const auto& b : all_bounds)
    tested.insert(b.path);
  for (const auto& key : documented_keys())
    if (contains(key.row, " to ") && (contains(key.row, "| size,") || contains(key.row, "| time,") ||
                                      contains(key.row, "whole number,") || contains(key.row, "| number,")))
      CHECK(tested.erase(key.path) == 1);
  CHECK(tested.empty());
}

} // namespace config_bounds_test
