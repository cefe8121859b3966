#include "config/node_config.hpp"
#include "config/rules.hpp"
#include "tests/unit/config_support.hpp"

namespace config_rules_test {

using namespace troupe;
using namespace troupe::config;

namespace {

using overrides = std::vector<std::string>;

} // namespace

TEST_CASE("config rules: a TCP port for actors needs certificates or an explicit opt-out", "[config]") {
  const std::string host = GENERATE("127.0.0.1", "localhost", "::1", "0.0.0.0", "example.com", "127.evil.com");
  INFO(host);
  const auto with = [&](overrides more) {
    more.insert(more.end(), {"actors.port=0", "actors.host=" + host});
    return more;
  };
  const auto refused = bad(small_config, with({}));
  CHECK(contains(refused, "actors.port: a TCP port is open to every user of this machine"));
  const bool is_local = host == "127.0.0.1" || host == "localhost" || host == "::1";
  CHECK(contains(refused, "and to other machines") == !is_local);
  CHECK(good(small_config, with({"actors.insecure=true"})).actors.port == 0);
  good(small_config, with({"actors.tls.certificate=c", "actors.tls.key=k", "actors.tls.ca=a"}));
  // Off, it does not matter where it would listen.
  good(small_config, {"actors.host=" + host});
}

TEST_CASE("config rules: certificate, key and authorities for actors are set together", "[config]") {
  const overrides all{"actors.tls.certificate=c", "actors.tls.key=k", "actors.tls.ca=a"};
  for (std::size_t missing = 0; missing < all.size(); ++missing) {
    auto some = all;
    some.erase(some.begin() + static_cast<std::ptrdiff_t>(missing));
    const auto name = all[missing].substr(0, all[missing].find('='));
    CHECK(bad(small_config, some).starts_with(name + ": is missing"));
  }
}

TEST_CASE("config rules: the message size limit for actors fits the longest request", "[config]") {
  good(small_config, {"registry.max_batch_keys=65536"});
  good(small_config, {"actors.max_message_bytes=300 KiB"});
  CHECK(
      contains(bad(small_config, {"actors.max_message_bytes=64 KiB"}), "actors.max_message_bytes: 64 KiB has no room"));
  CHECK(contains(bad(small_config, {"registry.max_batch_keys=65536", "actors.max_message_bytes=4 MiB"}),
                 "actors.max_message_bytes: 4 MiB has no room"));
}

TEST_CASE("config rules: events stay on the host", "[config]") {
  for (const auto* endpoint : {"tcp://127.0.0.1:5557", "tcp://localhost:0", "tcp://[::1]:5557", "ipc:///run/events"})
    good(small_config, {std::string("events.endpoint=") + endpoint});
  for (const auto* endpoint : {"tcp://0.0.0.0:5557", "tcp://*:5557", "tcp://cache-1:5557", "tcp://[::]:5557"})
    CHECK(
        contains(bad(small_config, {std::string("events.endpoint=") + endpoint}), "can be reached by other machines"));
  for (const auto* endpoint :
       {"5557", "tcp://127.0.0.1", "tcp://:5557", "tcp://127.0.0.1:65536", "ipc://events", "udp://a:1"})
    CHECK(contains(bad(small_config, {std::string("events.endpoint=") + endpoint}), "events.endpoint"));
  good(small_config, {"events.endpoint=ipc:///run/events", "events.replay_endpoint=ipc:///run/replay"});
  CHECK(contains(bad(small_config, {"events.replay_endpoint=ipc:///run/replay"}), "has no effect"));
  CHECK(contains(bad(small_config, {"events.endpoint=ipc:///run/a", "events.replay_endpoint=ipc:///run/a"}),
                 "a port or path of its own"));
}

TEST_CASE("config rules: limits of a registry shard are consistent with each other and with the config", "[config]") {
  good(small_config, {"registry.max_leases=7", "registry.max_leases_per_owner=7"});
  CHECK(contains(bad(small_config, {"registry.max_leases=7", "registry.max_leases_per_owner=8"}),
                 "registry.max_leases_per_owner: must not be above registry.max_leases, 7"));
  good(small_config, {"registry.max_reserved_pages=7", "registry.max_reservations_per_owner=7"});
  CHECK(contains(bad(small_config, {"registry.max_reserved_pages=7", "registry.max_reservations_per_owner=8"}),
                 "registry.max_reservations_per_owner: must not be above registry.max_reserved_pages, 7"));
  good(small_config, {"registry.max_namespaces=1"});
  CHECK(contains(bad(small_config, {"registry.max_namespaces=1", "http.enabled=true", "hf3fs.vllm=true"}),
                 "registry.max_namespaces: must not be below 2, the number of those in the config"));
  good(small_config, {"registry.max_batch_keys=7", "registry.max_lease_keys=7"});
  CHECK(contains(bad(small_config, {"registry.max_batch_keys=8", "registry.max_lease_keys=7"}),
                 "registry.max_batch_keys: must not be above registry.max_lease_keys, 7: one lease must hold all"));
}

TEST_CASE("config rules: HTTP on a non-loopback host authenticates clients or needs an explicit opt-out", "[config]") {
  const std::string host = GENERATE("0.0.0.0", "10.0.0.1", "::", "example.com", "127.evil.com");
  const auto with = [&](overrides more) {
    more.insert(more.end(), {"http.enabled=true", "http.host=" + host});
    return more;
  };
  CHECK(bad(small_config, with({})) ==
        "http.host: \"" + host +
            "\" can be reached by other machines without authentication: use \"127.0.0.1\", or set http.tokens_file or "
            "http.tls.client_ca, or set http.insecure to true on a trusted network\n");
  good(small_config, with({"http.insecure=true"}));
  good(small_config, with({"http.tokens_file=tokens"}));
  good(small_config, with({"http.tls.certificate=c", "http.tls.key=k", "http.tls.client_ca=a"}));
  good(small_config, with({"http.port=off"}));
  CHECK(contains(bad(small_config, with({"http.port=off", "http.socket=off"})),
                 "http.socket: is \"off\", and so is http.port: clients could not connect; set one of them, or "
                 "http.enabled to false"));
  // Encryption alone does not authenticate clients.
  CHECK(contains(bad(small_config, with({"http.tls.certificate=c", "http.tls.key=k"})), "http.host: "));
  // A disabled listener cannot be reached.
  good(small_config, {"http.host=" + host});
}

TEST_CASE("config rules: HTTP on a loopback host needs no confirmation", "[config]") {
  const std::string host = GENERATE("127.0.0.1", "127.1.2.3", "localhost", "::1");
  CHECK(good(small_config, {"http.enabled=true", "http.host=" + host}).http.host == host);
}

TEST_CASE("config rules: certificate, key and authorities for HTTP are set together", "[config]") {
  CHECK(bad(small_config, {"http.tls.certificate=c"}) == "http.tls.key: is missing: a certificate needs its key\n");
  CHECK(bad(small_config, {"http.tls.key=k"}) == "http.tls.certificate: is missing: a certificate needs its key\n");
  CHECK(bad(small_config, {"http.tls.client_ca=a"}) ==
        "http.tls.client_ca: clients present certificates only over TLS, which needs a certificate of the server: set "
        "http.tls.certificate and http.tls.key\n");
}

TEST_CASE("config rules: the low watermark is not above the high watermark", "[config]") {
  CHECK(bad(small_config, {"storage.low_watermark=0.2"}) ==
        "storage.low_watermark: must not be above storage.high_watermark\n");
  good(small_config, {"storage.low_watermark=0.2", "storage.high_watermark=0.2"});
}

TEST_CASE("config rules: dependent times are ordered", "[config]") {
  CHECK(bad(small_config, {"registry.lease_default=20 min"}) ==
        "registry.lease_default: 20 min is more than registry.lease_max, 10 min\n");
  CHECK(bad(small_config, {"attach.reconnect_backoff_max=1 ms"}) ==
        "attach.reconnect_backoff_min: 100 ms is more than attach.reconnect_backoff_max, 1 ms\n");
  CHECK(bad(small_config, {"caf.heartbeat_interval=3 s"}) ==
        "caf.connection_timeout: 5 s is less than two heartbeats: one late heartbeat would close a connection\n");
}

TEST_CASE("config rules: a namespace needs as many ranks as its world size", "[config]") {
  CHECK(bad(small_config, {"namespaces[0].world_size=3"}) ==
        "namespaces[0].world_size: needs 3 ranks, storage.ranks has 2\n");
  good(small_config, {"namespaces[0].world_size=1"});
}

TEST_CASE("config rules: a slab has room for several slots", "[config]") {
  // A slot is the page of 64 KiB and its header of 4 KiB; a trailer of 4 KiB follows the last slot.
  CHECK(bad(small_config, {"storage.ranks[0].slab_bytes=128 KiB"}) ==
        "storage.ranks[0].slab_bytes: has room for 1 slots of \"chat\", 68 KiB each; at least 8 are needed: 548 KiB\n");
  CHECK(contains(bad(small_config, {"storage.ranks[1].slab_bytes=561151"}), "storage.ranks[1].slab_bytes: has room"));
  const auto smallest = good(small_config, {"storage.ranks[1].slab_bytes=548 KiB"});
  CHECK(slab_slots(smallest.storage.ranks[1].slab_bytes, 64 * kibibyte) == 8);
  // A rank beyond the world size is not this namespace's concern.
  good(small_config, {"storage.ranks[1].slab_bytes=128 KiB", "namespaces[0].world_size=1"});
  // Slots have 32-bit numbers.
  CHECK(contains(bad(small_config, {"storage.ranks[0].slab_bytes=64 TiB", "namespaces[0].kv_cache.layers=1",
                                    "namespaces[0].kv_cache.head_size=1", "namespaces[0].kv_cache.block_tokens=1"}),
                 "storage.ranks[0].slab_bytes: has room for 8589934591 slots of \"chat\", 8 KiB each; at most "
                 "4294967295 can be numbered: "));
}

TEST_CASE("config rules: strict durability is refused for pages that are only in memory", "[config]") {
  const auto refused = "registry.durability: \"strict\" guarantees that a saved page is on the disk, but those of "
                       "\"chat\" are in memory only: choose \"relaxed\" or \"none\", or give them slabs\n";
  for (const auto* way : {"storage.ranks[1].slab_bytes=0", "memory.write_back=never"}) {
    CHECK(bad(small_config, {way, "registry.durability=strict"}) == refused);
    good(small_config, {way, "registry.durability=relaxed"});
    good(small_config, {way});
  }
  good(small_config, {"memory.write_back=on_eviction", "registry.durability=strict"});
  // No namespace has pages on this rank.
  good(small_config, {"storage.ranks[1].slab_bytes=0", "namespaces[0].world_size=1", "registry.durability=strict"});
}

TEST_CASE("config rules: second-hit admission needs a slab and is refused with strict durability", "[config]") {
  CHECK(bad(small_config, {"memory.admission=second_hit", "registry.durability=strict"}) ==
        "memory.admission: \"second_hit\" keeps pages in memory only until they are requested again, but "
        "registry.durability \"strict\" guarantees that a saved page is on the disk: choose \"all\", or \"relaxed\" or "
        "\"none\" there\n");
  CHECK(bad(small_config, {"memory.admission=second_hit", "memory.write_back=never"}) ==
        "memory.admission: \"second_hit\" selects the pages to write, but with memory.write_back \"never\" none is "
        "written: choose \"all\", or another memory.write_back\n");
  for (const auto* way : {"registry.durability=relaxed", "memory.write_back=on_eviction", "memory.write_back=eager"})
    CHECK(good(small_config, {"memory.admission=second_hit", way}).memory.admission == "second_hit");
  good(small_config, {"memory.admission=all", "registry.durability=strict"});
  CHECK(good(small_config, {"memory.prefetch_bytes=0 B"}).memory.prefetch_bytes == 0);
}

TEST_CASE("config rules: slots of a slab are counted without the trailer", "[config]") {
  CHECK(slab_slots(0, 1) == 0);
  CHECK(slab_slots(4096, 1) == 0);
  CHECK(slab_slots(4096 + 8191, 4096) == 0);
  CHECK(slab_slots(4096 + 8192, 4096) == 1);
  CHECK(slab_slots(4096 + 8192, 4097) == 0);
  CHECK(slab_slots(4096 + 10 * 8192 + 8191, 1) == 10);
}

TEST_CASE("config rules: the page size is within its limit and 64 bits", "[config]") {
  const auto kv = [](const char* layers, const char* heads, const char* head_size, const char* tokens) {
    return overrides{std::string{"namespaces[0].kv_cache.layers="} + layers,
                     std::string{"namespaces[0].kv_cache.heads="} + heads,
                     std::string{"namespaces[0].kv_cache.head_size="} + head_size,
                     std::string{"namespaces[0].kv_cache.block_tokens="} + tokens};
  };
  CHECK(bad(small_config, kv("80", "8", "128", "4096")) ==
        "namespaces[0].kv_cache: a page would have 1280 MiB; 1 B to 64 MiB are possible\n");
  // 1024 × 2 × 1024 × 16384 × 2 × 4096 = 2^48: large, and still counted.
  auto most = kv("1024", "1024", "16384", "4096");
  most.insert(most.end(), {"namespaces[0].kv_cache.element_bytes=2"});
  CHECK(contains(bad(small_config, most), "namespaces[0].kv_cache: a page would have "));
  auto limit = kv("64", "8", "512", "64");
  limit.insert(limit.end(), {"storage.ranks[0].slab_bytes=1 GiB", "storage.ranks[1].slab_bytes=1 GiB",
                             "transfer.window_bytes=256 MiB"});
  CHECK(good(small_config, limit).namespaces[0].geometry.page_bytes() == 64 * mebibyte);
}

TEST_CASE("config rules: elements have the size of their type", "[config]") {
  CHECK(bad(small_config, {"namespaces[0].kv_cache.element_bytes=1"}) ==
        "namespaces[0].kv_cache.element_bytes: an element of bfloat16 has 2 bytes, got 1\n");
  CHECK(bad(small_config, {"namespaces[0].dtype=fp8_e4m3"}) ==
        "namespaces[0].kv_cache.element_bytes: an element of fp8_e4m3 has 1 bytes, got 2\n");
  good(small_config, {"namespaces[0].dtype=fp8_e4m3", "namespaces[0].kv_cache.element_bytes=1"});
  CHECK(contains(bad(small_config, {"namespaces[0].dtype=complex"}), "namespaces[0].dtype: expected \"bfloat16\", "));
  CHECK(contains(
      bad(small_config, {"namespaces[0].layout=token-first"}),
      "namespaces[0].layout: expected \"layer-part-head-token\" or \"layer-opaque-block\", got \"token-first\""));
}

TEST_CASE("config rules: layers of other shapes follow the first ones and add to the page", "[config]") {
  const std::string path = "namespaces[0].kv_cache.further_layers";
  const auto mixed = good(small_config, {path + R"(=[{"layers":3,"parts":1,"heads":1,"head_size":132,"element_bytes":1},
                                                      {"layers":1,"heads":2,"head_size":8}])"})
                         .namespaces[0]
                         .geometry;
  CHECK(mixed.further == std::vector<kv_layer_group>{{3, {1, 1, 132, 1}}, {1, {2, 2, 8, 2}}});
  CHECK(mixed.page_bytes() == 64 * kibibyte + 64 * (3 * 132 + 2 * 2 * 8 * 2));
  // One by one, as in other lists.
  const overrides first{path + "[0].layers=1", path + "[0].heads=1", path + "[0].head_size=8"};
  CHECK(good(small_config, first).namespaces[0].geometry.further == std::vector<kv_layer_group>{{1, {2, 1, 8, 2}}});
  const auto with = [](overrides some, overrides more) {
    some.insert(some.end(), more.begin(), more.end());
    return some;
  };
  CHECK(bad(small_config, with(first, {path + "[2].layers=1"})) ==
        path + "[2]: \"" + path + "\" has 1 entries, so the next one is " + path + "[1] (--set)\n");
  CHECK(bad(small_config, {path + "=[{\"layers\":1,\"heads\":1}]"}) ==
        path + "[0].head_size: is missing: Elements of one head. (--set)\n");
  CHECK(bad(small_config, with(first, {path + "[0].block_tokens=16"})) ==
        path + "[0].block_tokens: no such key (--set)\n");

  // They may have their own element type, if it is a valid one.
  for (const auto* bytes : {"1", "2", "4"})
    good(small_config, with(first, {path + "[0].element_bytes=" + bytes}));
  CHECK(bad(small_config, with(first, {path + "[0].element_bytes=3"})) ==
        path + "[0].element_bytes: is 3, and an element has 1, 2 or 4 bytes\n");

  // The bytes of additional layers count.
  CHECK(bad(small_config, with(first, {path + "[0].layers=1024", path + "[0].head_size=512"})) ==
        "namespaces[0].kv_cache: a page would have 131136 KiB; 1 B to 64 MiB are possible\n");
  CHECK(contains(bad(small_config, with(first, {"storage.ranks[0].slab_bytes=548 KiB"})), "has room for 7 slots"));
  const overrides other{R"(namespaces[1]={"name":"code","model":"some/model","dtype":"bfloat16","world_size":2,
      "kv_cache":{"layers":2,"heads":2,"head_size":64,"block_tokens":64}})"};
  CHECK(good(small_config, with(first, other)).namespaces.size() == 2);
}

TEST_CASE("config rules: there are at most 64 groups of additional layers", "[config]") {
  auto config = good(small_config);
  auto ns = config.namespaces[0];
  ns.geometry.further.resize(64, {1, {1, 1, 1, 1}});
  config.namespaces[0] = ns;
  CHECK(validate(config).empty());
  // The largest config that there can be is still read back.
  for (std::size_t i = 1; i < 64; ++i) {
    config.namespaces.push_back(ns);
    config.namespaces.back().name += std::to_string(i);
    config.namespaces.back().salt = std::to_string(i);
  }
  CHECK(good(to_json(config)) == config);
  config.namespaces.resize(1);
  auto& groups = config.namespaces[0].geometry.further;
  groups.resize(65, {1, {1, 1, 1, 1}});
  CHECK(contains(lines(validate(config)), "kv_cache.further_layers: 65 entries, at most 64 are allowed"));
  groups.assign(64, {1024, {2, 1024, 16384, 4}});
  config.namespaces[0].geometry.block_tokens = 4096;
  CHECK(contains(lines(validate(config)), "namespaces[0].kv_cache: a page would have "));
}

TEST_CASE("config rules: memory has room for extents of pages", "[config]") {
  CHECK(good(small_config, {"memory.bytes=4 MiB"}).memory.bytes == 4 * mebibyte);
  CHECK(bad(small_config, {"memory.client_bytes=64 KiB"}) ==
        "memory.client_bytes: 64 KiB has no room for one slot of \"chat\", 68 KiB each\n");
  auto config = good(small_config, {"memory.bytes=4 MiB"});
  config.namespaces[0].geometry.layers = 64; // 2 MiB, and a header
  config.storage.ranks[0].slab_bytes = config.storage.ranks[1].slab_bytes = gibibyte;
  CHECK(lines(validate(config)) == "memory.bytes: 4 MiB is less than two extents with room for a slot of \"chat\", "
                                   "2052 KiB each; at least 8 MiB are needed\n");
  config.memory.bytes = 8 * mebibyte;
  CHECK(lines(validate(config)).empty());
}

TEST_CASE("config rules: memory with huge pages of 1 GiB is a whole number of them", "[config]") {
  CHECK(bad(small_config, {"memory.huge_pages=1 GiB"}) ==
        "memory.bytes: 256 MiB is not a multiple of huge pages of 1 GiB: the rest could not be used\n");
  CHECK(good(small_config, {"memory.huge_pages=1 GiB", "memory.bytes=2 GiB"}).memory.huge_pages == "1 GiB");
  CHECK(good(small_config, {"memory.huge_pages=2 MiB"}).memory.huge_pages == "2 MiB");
}

TEST_CASE("config rules: addresses for pages are those of this host, of TCP", "[config]") {
  const std::string two = "10.0.0.1, 2001:db8::1";
  CHECK(good(small_config, {"remote.addresses=" + two}).remote.addresses == two);
  CHECK(bad(small_config, {"remote.addresses=" + two, "remote.transport=ucx"}) ==
        "remote.addresses: is for remote.transport \"tcp\"; UCX has remote.ucx_interfaces\n");
  CHECK(bad(small_config, {"remote.addresses=cache-1, cache-2"}) ==
        "remote.addresses: expected up to 16 IP addresses of this host, separated by commas, none of them link-local, "
        "got \"cache-1, cache-2\": names are not resolved here, write addresses (--set)\n");
  std::string many = "10.0.0.1";
  for (int i = 2; i <= 17; ++i)
    many += ",10.0.0." + std::to_string(i);
  for (const auto& wrong : {std::string("fe80::1"), std::string("10.0.0.1,"), many})
    CHECK(
        contains(bad(small_config, {"remote.addresses=" + wrong}), "remote.addresses: expected up to 16 IP addresses"));
}

TEST_CASE("config rules: a rank can prefer a NUMA node only where the arena is spread over NUMA nodes", "[config]") {
  CHECK(bad(small_config, {"storage.ranks[1].numa_node=1"}) ==
        "storage.ranks[1].numa_node: has no effect without memory.numa \"spread\": set that, or leave this out\n");
  const auto config = good(small_config, {"storage.ranks[1].numa_node=1", "memory.numa=spread"});
  CHECK(config.memory.numa == "spread");
  CHECK(config.storage.ranks[0].numa_node == std::nullopt);
  CHECK(config.storage.ranks[1].numa_node == 1);
  CHECK(good(small_config).memory.numa == "off");
  CHECK(contains(bad(small_config, {"memory.numa=interleave"}), "memory.numa: expected \"off\" or \"spread\""));
  // A key with an error of its own is reported alone.
  CHECK(contains(bad(small_config, {"storage.ranks[1].numa_node=near"}),
                 "storage.ranks[1].numa_node: expected a whole number, 0 to 1023, got \"near\""));
}

TEST_CASE("config rules: buffers have room for a page", "[config]") {
  CHECK(bad(small_config, {"transfer.window_bytes=64 KiB"}) ==
        "transfer.window_bytes: 64 KiB has no room for two slots of \"chat\", 68 KiB each\n");
}

TEST_CASE("config rules: limits on pages are ordered", "[config]") {
  // A client takes what its node allows.
  CHECK(good(small_config, {"transfer.batch_pages=257"}).transfer.batch_pages == 257);
  CHECK(bad(small_config, {"io.max_pages_in_flight=255"}) ==
        "io.max_batch_pages: must not be above io.max_pages_in_flight, 255\n");
}

TEST_CASE("config rules: two namespaces differ in name and in identity", "[config]") {
  const std::string other = R"(namespaces[1]={"name":"NAME","model":"MODEL","dtype":"bfloat16","world_size":2,
      "kv_cache":{"layers":2,"heads":2,"head_size":64,"block_tokens":64}})";
  const auto second = [&](std::string_view name, std::string_view model) {
    return overrides{replaced(replaced(other, "NAME", name), "MODEL", model)};
  };
  CHECK(good(small_config, second("code", "other/model")).namespaces.size() == 2);
  CHECK(bad(small_config, second("chat", "other/model")) ==
        "namespaces[1].name: \"chat\" is also the name of namespaces[0]\n");
  CHECK(bad(small_config, second("code", "some/model")) ==
        "namespaces[1]: has the identity of namespaces[0]: they differ only in the name\n");
}

TEST_CASE("config rules: a rule about a key that already has an error is skipped", "[config]") {
  CHECK(bad(small_config, {"registry.lease_max=never"}) ==
        "registry.lease_max: expected a time such as \"30 s\", got \"never\" (--set)\n");
  CHECK(bad(small_config, {"storage.ranks=7"}) == "storage.ranks: expected a list, got 7 (--set)\n");
  CHECK(bad(small_config, {"namespaces[0].kv_cache.layers=many"}) ==
        "namespaces[0].kv_cache.layers: expected a whole number, 1 to 1024, got \"many\" (--set)\n");
}

TEST_CASE("config rules: the slots of all slabs fit into the memory of the registry", "[config]") {
  const overrides slabs{"storage.ranks[0].slab_bytes=7 GiB", "storage.ranks[1].slab_bytes=7 GiB"};
  auto small = slabs;
  small.push_back("registry.memory_bytes=2 MiB");
  const auto problems = bad(small_config, small);
  CHECK(contains(problems, "registry.memory_bytes: 2 MiB has "));
  // A namespace has its slots on the ranks that it uses.
  small.push_back("namespaces[0].world_size=1");
  good(small_config, small);
  good(small_config, slabs);
  // Clients have no slabs.
  small.back() = "node_name=client";
  good(small_config, small, purpose::client);
}

TEST_CASE("config rules: credentials for etcd are complete, and no password is sent unencrypted over a network",
          "[config]") {
  const std::string host = GENERATE("127.0.0.1", "localhost", "::1", "etcd.example", "10.0.0.5", "127.evil.com");
  INFO(host);
  const bool is_local = host == "127.0.0.1" || host == "localhost" || host == "::1";
  const auto with = [&](const overrides& more) {
    overrides all{"cluster.name=ours",
                  "actors.port=7000",
                  "actors.insecure=true",
                  "remote.enabled=true",
                  "cluster.etcd.endpoints[0].host=127.0.0.1",
                  "cluster.etcd.endpoints[0].port=2379",
                  "cluster.etcd.endpoints[1].port=2379",
                  "cluster.etcd.endpoints[1].host=" + host};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const overrides login{"cluster.etcd.user=me", "cluster.etcd.password_file=p"};
  const auto also = [&](const overrides& more) {
    auto all = with(login);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  if (is_local) {
    good(small_config, with(login));
  } else {
    const auto refused = bad(small_config, with(login));
    CHECK(contains(refused, "cluster.etcd.user: the password would be sent to \"" + host + "\" in clear text"));
    CHECK(contains(refused, "set cluster.etcd.tls.ca, or set cluster.etcd.insecure to true"));
  }
  good(small_config, with({}));
  CHECK(good(small_config, also({"cluster.etcd.insecure=true"})).cluster.etcd.user == "me");
  good(small_config, also({"cluster.etcd.tls.ca=a"}));
  good(small_config, also({"cluster.etcd.tls.ca=a", "cluster.etcd.tls.certificate=c", "cluster.etcd.tls.key=k"}));
  CHECK(contains(bad(small_config, with({"cluster.etcd.user=me"})), "cluster.etcd.password_file: is missing"));
  CHECK(contains(bad(small_config, with({"cluster.etcd.password_file=p"})), "cluster.etcd.user: is missing"));
  CHECK(contains(bad(small_config, with({"cluster.etcd.tls.ca=a", "cluster.etcd.tls.key=k"})),
                 "cluster.etcd.tls.certificate: is missing"));
  CHECK(contains(bad(small_config, with({"cluster.etcd.tls.ca=a", "cluster.etcd.tls.certificate=c"})),
                 "cluster.etcd.tls.key: is missing"));
  CHECK(contains(bad(small_config, with({"cluster.etcd.tls.certificate=c", "cluster.etcd.tls.key=k"})),
                 "cluster.etcd.tls.ca: is missing"));
}

TEST_CASE("config rules: a cluster node finds its peers by seeds, by etcd, or by both", "[config]") {
  const overrides node{"cluster.name=ours", "actors.port=7000", "actors.insecure=true", "remote.enabled=true"};
  const overrides seeds{"cluster.seeds[0].host=a", "cluster.seeds[0].port=7000"};
  const overrides etcd{"cluster.etcd.endpoints[0].host=e", "cluster.etcd.endpoints[0].port=2379"};
  const auto with = [](overrides all, const overrides& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  CHECK(contains(bad(small_config, node), "a cluster needs both a name and seeds or cluster.etcd.endpoints"));
  good(small_config, with(node, seeds));
  // Slab files that nodes of a cluster share are those of a cluster.
  good(small_config, with(with(node, seeds), {"storage.shared=true"}));
  CHECK(contains(bad(small_config, {"storage.shared=true"}), "storage.shared: is for nodes of a cluster"));
  good(small_config, with(node, etcd));
  good(small_config, with(with(node, seeds), etcd));
  CHECK(contains(bad(small_config, etcd), "cluster.name: a cluster needs both a name and seeds"));
  const auto all = with(node, etcd);
  CHECK(contains(bad(small_config, with(all, {"cluster.etcd.lease=2500 ms"})), "is not a whole number of seconds"));
  CHECK(contains(bad(small_config, with(all, {"cluster.etcd.prefix=/mine"})), "must end with a slash"));
  CHECK(contains(bad(small_config, with(all, {"actors.host=0.0.0.0"})),
                 "cluster.advertise.host: 0.0.0.0 is a listening address"));
  good(small_config, with(all, {"actors.host=0.0.0.0", "cluster.advertise.host=here"}));
  CHECK(contains(bad(small_config, with(all, {"actors.port=0"})), "cluster.advertise.port: is needed"));
  good(small_config, with(all, {"actors.port=0", "cluster.advertise.port=7000"}));
}

TEST_CASE("config rules: a config that uses UCX gets a notice that it is experimental", "[config]") {
  CHECK_FALSE(notice_of_experimental(good(small_config, {})));
  CHECK_FALSE(notice_of_experimental(good(small_config, {"remote.enabled=true", "remote.transport=tcp"})));
  const auto notice = notice_of_experimental(good(small_config, {"remote.enabled=true", "remote.transport=ucx"}));
  REQUIRE(notice);
  CHECK(to_string(*notice).starts_with("remote.transport: UCX is experimental"));
}

} // namespace config_rules_test
