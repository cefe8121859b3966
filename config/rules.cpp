#include "config/rules.hpp"

#include "base/geometry_bounds.hpp"
#include "base/identifiers.hpp"
#include "base/memory_budget.hpp"
#include "base/page_limits.hpp"
#include "config/document.hpp"
#include "config/memory_rules.hpp"
#include "config/units.hpp"
#include "io/memory/extent_source.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>

namespace troupe::config {

namespace {

/// With fewer slots, transfers cannot continue while others are being evicted.
constexpr std::uint64_t min_slots = 8;

/// Slot numbers have 32 bits.
constexpr std::uint64_t max_slots = std::numeric_limits<slot_number>::max();

/// None for a shape that is refused anyway.
std::optional<std::uint64_t> possible_page_bytes(const kv_geometry& g) {
  if (find_broken_bound(g, geometry_extent::whole))
    return std::nullopt;
  return g.page_bytes();
}

std::optional<std::uint32_t> element_bytes_of(std::string_view dtype) {
  if (dtype == "float32")
    return 4;
  if (dtype == "bfloat16" || dtype == "float16")
    return 2;
  if (dtype == "fp8_e4m3" || dtype == "fp8_e5m2" || dtype == "int8")
    return 1;
  return std::nullopt;
}

bool is_loopback(std::string_view host) {
  const auto is_ipv4 = std::ranges::all_of(host, [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
  return host == "localhost" || host == "::1" || (host.starts_with("127.") && is_ipv4);
}

/// The host of `tcp://HOST:PORT`.
std::string_view host_of_endpoint(std::string_view endpoint) {
  constexpr std::string_view scheme = "tcp://";
  if (!endpoint.starts_with(scheme))
    return {};
  const auto host = endpoint.substr(scheme.size(), endpoint.rfind(':') - scheme.size());
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

class checker {
public:
  checker(const node_config& config, std::vector<problem>& problems)
      : config_(config), problems_(problems), known_(std::ssize(problems)) {}

  void check(purpose what_for) {
    what_for_ = what_for;
    check_addresses();
    check_watermarks();
    check_times();
    check_cluster();
    check_huge_pages();
    check_numa();
    demand(config_.remote.addresses.empty() || config_.remote.transport == "tcp", "remote.addresses",
           "is for remote.transport \"tcp\"; UCX has remote.ucx_interfaces", {"remote.transport"});
    demand(config_.io.max_batch_pages <= config_.io.max_pages_in_flight, "io.max_batch_pages",
           "must not be above io.max_pages_in_flight, " + std::to_string(config_.io.max_pages_in_flight),
           {"io.max_pages_in_flight"});
    check_registry();
    check_admission();
    for (std::size_t i = 0; i < config_.namespaces.size(); ++i)
      check_namespace(i);
    if (what_for == purpose::server) {
      check_memory();
      // A node that serves only HTTP gets its namespaces and ranks from its clients.
      const bool gets_some = config_.http.enabled || config_.handshake.http.enabled || config_.actors.serves_makers() ||
                             config_.lmcache.enabled;
      demand(gets_some || !config_.storage.ranks.empty(), "storage.ranks",
             "a node without HTTP, whose clients create no namespaces, needs at least one rank",
             {"http.enabled", "actors.make_namespaces"});
      demand(gets_some || !config_.namespaces.empty(), "namespaces",
             "a node without HTTP, whose clients create no namespaces, needs at least one",
             {"http.enabled", "actors.make_namespaces"});
    }
  }

private:
  void check_addresses() {
    const auto& a = config_.actors;
    const auto& tls = a.tls;
    const auto set = [&](const auto& file, std::string_view path) {
      demand(file.has_value() || !(tls.certificate || tls.key || tls.ca), path,
             "is missing: both sides present a certificate, so certificate, key and ca are needed together",
             {"actors.tls."});
    };
    set(tls.certificate, "actors.tls.certificate");
    set(tls.key, "actors.tls.key");
    set(tls.ca, "actors.tls.ca");
    demand(a.port == port_off || a.insecure || tls.certificate, "actors.port",
           "a TCP port is open to every user of this machine" +
               std::string(is_loopback(a.host) ? "" : " and to other machines") +
               " without authentication: leave it \"off\" and attach by actors.socket, or set actors.tls, or set "
               "actors.insecure to true if all of them are trusted",
           {"actors.insecure", "actors.tls", "actors.host"});
    const auto longest =
        std::uint64_t{64} * std::max(config_.registry.max_batch_keys, config_.io.max_batch_pages) + 4096;
    demand(longest <= a.max_message_bytes, "actors.max_message_bytes",
           format_size(a.max_message_bytes) +
               " has no room for a request of registry.max_batch_keys keys or "
               "io.max_batch_pages pages; it takes " +
               format_size(longest),
           {"registry.max_batch_keys", "io.max_batch_pages"});
    check_http();
  }

  void check_http() {
    check_server(config_.http, "http");
    check_server(server_of(config_.handshake.http, config_.http.limits), "handshake.http");
    check_hf3fs();
    check_lmcache();
    check_events();
    const auto& x = config_.handshake;
    demand(x.ttl_default <= x.ttl_max, "handshake.ttl_default", "must not be above handshake.ttl_max",
           {"handshake.ttl_max"});
    demand(x.max_payload_bytes <= x.memory_bytes, "handshake.max_payload_bytes",
           "must not be above handshake.memory_bytes, " + format_size(x.memory_bytes), {"handshake.memory_bytes"});
    demand(!x.http.enabled || x.enabled, "handshake.http.enabled", "needs handshake.enabled", {"handshake.enabled"});
  }

  void check_lmcache() {
    const auto& x = config_.lmcache;
    demand(!x.enabled || is_loopback(x.host), "lmcache.host",
           "\"" + x.host +
               "\" can be reached by other machines, and the LMCache protocol has no authentication: use \"127.0.0.1\"",
           {"lmcache.enabled"});
    demand(!x.enabled || config_.actors.make_namespaces, "actors.make_namespaces",
           "is false, but each model that comes over lmcache.port needs a namespace that is created for it",
           {"lmcache.enabled"});
    const auto& huge = config_.memory.huge_pages;
    demand(!x.enabled || (huge != "2 MiB" && huge != "1 GiB"), "memory.huge_pages",
           "is \"" + huge +
               "\", but with lmcache.enabled the memory is in /dev/shm, which has no reserved huge pages: use \"auto\"",
           {"lmcache.enabled"});
    const bool on_3fs = config_.io.engine.starts_with("usrbio");
    demand(!on_3fs || (huge != "2 MiB" && huge != "1 GiB"), "memory.huge_pages",
           "is \"" + huge + "\", and with io.engine \"" + config_.io.engine +
               "\" the memory is in /dev/shm, which has no reserved huge pages: use \"auto\"",
           {"io.engine"});
  }

  void check_events() {
    const auto& x = config_.events;
    const auto check = [&](const std::string& endpoint, std::string_view path) {
      demand(endpoint.empty() || endpoint.starts_with("ipc://") || is_loopback(host_of_endpoint(endpoint)), path,
             "\"" + endpoint +
                 "\" can be reached by other machines, and events contain the tokens of prompts: use "
                 "\"tcp://127.0.0.1:…\" or \"ipc://…\", and an encrypted tunnel to other machines");
    };
    check(x.endpoint, "events.endpoint");
    check(x.replay_endpoint, "events.replay_endpoint");
    demand(x.replay_endpoint.empty() || x.publishes(), "events.replay_endpoint",
           "has no effect without events.endpoint: set both, or none", {"events.endpoint"});
    demand(x.endpoint.empty() || x.endpoint != x.replay_endpoint || x.endpoint.ends_with(":0"),
           "events.replay_endpoint", "is the same as events.endpoint: it needs a port or path of its own",
           {"events.endpoint"});
  }

  void check_server(const http_config& h, const std::string& at) {
    const auto path = [&](std::string_view key) { return at + "." + std::string(key); };
    const auto certificate = path("tls.certificate");
    const auto key = path("tls.key");
    const auto client_ca = path("tls.client_ca");
    const auto tokens_file = path("tokens_file");
    const auto insecure = path("insecure");
    const auto enabled = path("enabled");
    demand(h.tls.certificate.has_value() == h.tls.key.has_value(), h.tls.key ? certificate : key,
           "is missing: a certificate needs its key", {certificate, key});
    demand(!h.tls.client_ca || h.tls.certificate, client_ca,
           "clients present certificates only over TLS, which needs a certificate of the server: set " + certificate +
               " and " + key,
           {certificate});
    demand(!h.has_port() || h.insecure || h.tokens_file || h.tls.client_ca || is_loopback(h.host), path("host"),
           "\"" + h.host + "\" can be reached by other machines without authentication: use \"127.0.0.1\", " +
               "or set " + tokens_file + " or " + client_ca + ", or set " + insecure + " to true on a trusted network",
           {enabled, insecure, tokens_file, client_ca});
    demand(!h.enabled || h.has_port() || h.has_socket(), path("socket"),
           "is \"off\", and so is " + path("port") + ": clients could not connect; set one of them, or " + enabled +
               " to false",
           {enabled, path("port")});
  }

  void check_registry() {
    const auto& r = config_.registry;
    demand(r.max_batch_keys <= r.max_lease_keys, "registry.max_batch_keys",
           "must not be above registry.max_lease_keys, " + std::to_string(r.max_lease_keys) +
               ": one lease must hold all keys that one request finds",
           {"registry.max_lease_keys"});
    demand(r.max_leases_per_owner <= r.max_leases, "registry.max_leases_per_owner",
           "must not be above registry.max_leases, " + std::to_string(r.max_leases), {"registry.max_leases"});
    demand(r.max_reservations_per_owner <= r.max_reserved_pages, "registry.max_reservations_per_owner",
           "must not be above registry.max_reserved_pages, " + std::to_string(r.max_reserved_pages) +
               ": each reservation has at least one page",
           {"registry.max_reserved_pages"});
    // The namespace of vLLM's HF3FS protocol has a name in the config and takes a place from the first registration on.
    const auto named = config_.namespaces.size() + (config_.hf3fs.vllm ? 1 : 0);
    demand(named <= r.max_namespaces, "registry.max_namespaces",
           "must not be below " + std::to_string(named) + ", the number of those in the config",
           {"namespaces", "hf3fs.vllm"});
  }

  void check_hf3fs() {
    const auto& wires = config_.hf3fs;
    demand(config_.http.enabled || !(wires.vllm || wires.sglang), wires.vllm ? "hf3fs.vllm" : "hf3fs.sglang",
           "is served over HTTP: set http.enabled to true", {"http.enabled"});
    for (std::size_t i = 0; i < config_.namespaces.size(); ++i)
      demand(!wires.vllm || config_.namespaces[i].name != wires.ns, "hf3fs.namespace",
             "\"" + wires.ns + "\" is also the name of " + join("namespaces", i) + ", whose pages are the node's own",
             {join("namespaces", i) + ".name"});
  }

  void check_watermarks() {
    demand(config_.storage.low_watermark <= config_.storage.high_watermark, "storage.low_watermark",
           "must not be above storage.high_watermark", {"storage.high_watermark"});
  }

  void check_huge_pages() {
    const auto& m = config_.memory;
    demand(m.huge_pages != "1 GiB" || m.bytes % gibibyte == 0, "memory.bytes",
           format_size(m.bytes) + " is not a multiple of huge pages of 1 GiB: the rest could not be used",
           {"memory.huge_pages"});
  }

  void check_numa() {
    const auto& ranks = config_.storage.ranks;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      demand(!ranks[i].numa_node || config_.memory.numa != "off", join("storage.ranks", i) + ".numa_node",
             "has no effect without memory.numa \"spread\": set that, or leave this out", {"memory.numa"});
  }

  void check_cluster() {
    const auto& x = config_.cluster;
    const bool has_etcd = !x.etcd.endpoints.empty();
    demand(x.name.empty() == (x.seeds.empty() && !has_etcd), x.name.empty() ? "cluster.name" : "cluster.seeds",
           "a cluster needs both a name and seeds or cluster.etcd.endpoints, by which a node finds the others",
           {"cluster.name", "cluster.seeds", "cluster.etcd.endpoints"});
    demand(!config_.storage.shared || !x.name.empty() || what_for_ == purpose::client, "storage.shared",
           "is for nodes of a cluster, which read each other's slab files: set cluster.name", {"cluster.name"});
    if (has_etcd)
      check_etcd();
    if (x.name.empty() || what_for_ == purpose::client)
      return;
    demand(config_.actors.port != port_off, "actors.port", "must be a port, at which the other nodes connect",
           {"cluster.name"});
    demand(config_.remote.enabled, "remote.enabled", "must be true, since the other nodes fetch pages of this one",
           {"cluster.name"});
  }

  void check_etcd() {
    const auto& x = config_.cluster.etcd;
    const auto whole_seconds = x.lease == std::chrono::floor<std::chrono::seconds>(x.lease);
    demand(whole_seconds, "cluster.etcd.lease",
           format_time(x.lease) + " is not a whole number of seconds, which etcd needs");
    demand(x.prefix.empty() || x.prefix.ends_with('/'), "cluster.etcd.prefix",
           "must end with a slash, as the address of a node follows it");
    check_etcd_access();
    if (what_for_ == purpose::client)
      return;
    const auto& own = config_.cluster.advertise;
    const auto& host = config_.actors.host;
    demand(!own.host.empty() || (host != "0.0.0.0" && host != "::"), "cluster.advertise.host",
           host + " is a listening address that other nodes cannot connect to: name one", {"actors.host"});
    demand(own.port != 0 || config_.actors.port != 0, "cluster.advertise.port",
           "is needed if actors.port is any free port: others must know it", {"actors.port"});
  }

  void check_etcd_access() {
    const auto& x = config_.cluster.etcd;
    const std::string certificate = "cluster.etcd.tls.certificate";
    const std::string key = "cluster.etcd.tls.key";
    demand(x.tls.certificate.has_value() == x.tls.key.has_value(), x.tls.key ? certificate : key,
           "is missing: a certificate needs its key", {certificate, key});
    demand(x.tls.ca || !x.tls.certificate, "cluster.etcd.tls.ca",
           "is missing: certificates are presented only over TLS, which this enables", {certificate});
    demand(x.user.empty() != x.password_file.has_value(),
           x.user.empty() ? "cluster.etcd.user" : "cluster.etcd.password_file",
           "is missing: a user needs the file with the password, and the file a user",
           {"cluster.etcd.user", "cluster.etcd.password_file"});
    const auto other = std::ranges::find_if_not(x.endpoints, is_loopback, &etcd_endpoint::host);
    demand(x.user.empty() || x.tls.ca || x.insecure || other == x.endpoints.end(), "cluster.etcd.user",
           "the password would be sent to \"" + (other == x.endpoints.end() ? std::string{} : other->host) +
               "\" in clear text over the network: set cluster.etcd.tls.ca, or set cluster.etcd.insecure to true on a "
               "trusted network",
           {"cluster.etcd.tls", "cluster.etcd.insecure", "cluster.etcd.endpoints"});
  }

  void check_times() {
    const auto ordered = [this](duration low, duration high, std::string_view low_path, std::string_view high_path) {
      demand(low <= high, low_path,
             format_time(low) + " is more than " + std::string{high_path} + ", " + format_time(high), {high_path});
    };
    const auto& c = config_;
    ordered(c.registry.lease_default, c.registry.lease_max, "registry.lease_default", "registry.lease_max");
    ordered(c.attach.reconnect_backoff_min, c.attach.reconnect_backoff_max, "attach.reconnect_backoff_min",
            "attach.reconnect_backoff_max");
    demand(2 * c.caf.heartbeat_interval <= c.caf.connection_timeout, "caf.connection_timeout",
           format_time(c.caf.connection_timeout) +
               " is less than two heartbeats: one late heartbeat would close a connection",
           {"caf.heartbeat_interval"});
  }

  void check_namespace(std::size_t i) {
    const auto& ns = config_.namespaces[i];
    const auto path = join("namespaces", i);
    for (std::size_t k = 0; k < i; ++k) {
      const auto& other = config_.namespaces[k];
      const auto other_path = join("namespaces", k);
      demand(ns.name != other.name, path + ".name", "\"" + ns.name + "\" is also the name of " + other_path,
             {other_path + ".name"});
      demand(ns.name == other.name || ns.identity_text() != other.identity_text(), path,
             "has the identity of " + other_path + ": they differ only in the name", {path + ".", other_path});
    }
    const auto element_bytes = element_bytes_of(ns.dtype);
    demand(!element_bytes || ns.geometry.element_bytes == *element_bytes, path + ".kv_cache.element_bytes",
           "an element of " + ns.dtype + " has " + std::to_string(element_bytes.value_or(0)) + " bytes, got " +
               std::to_string(ns.geometry.element_bytes),
           {path + ".dtype"});
    // A dtype cannot describe an indexer's keys and their scales as well, so further layers need not agree with it.
    if (const auto broken = find_broken_bound(ns.geometry, geometry_extent::whole))
      demand(false, path + ".kv_cache." + broken->where, broken->what);
    const auto ranks = config_.storage.ranks.size();
    demand(what_for_ == purpose::client || ranks >= ns.world_size, path + ".world_size",
           "needs " + std::to_string(ns.world_size) + " ranks, storage.ranks has " + std::to_string(ranks),
           {"storage.ranks"});
    check_pages(ns, path);
  }

  bool in_memory_only(const rank_storage& x) const { return is_in_memory_only(config_, x); }

  /// The slots of slabs are known before anything is started.
  void check_memory() {
    const auto slots = slots_of_config(config_);
    const auto most = memory_budget::lasting_part(config_.registry.memory_bytes);
    demand(slots * memory_per_slot <= most, "registry.memory_bytes",
           format_size(config_.registry.memory_bytes) + " has " + format_size(most) +
               " for ranks and keys, and the slots of all slab files take " + format_size(slots * memory_per_slot),
           {"storage.ranks", "namespaces"});
  }

  void check_admission() {
    if (config_.memory.admission != "second_hit")
      return;
    demand(config_.registry.durability != "strict", "memory.admission",
           "\"second_hit\" keeps pages in memory only until they are requested again, but registry.durability "
           "\"strict\" guarantees that a saved page is on the disk: choose \"all\", or \"relaxed\" or \"none\" there",
           {"registry.durability"});
    demand(config_.memory.write_back != "never", "memory.admission",
           "\"second_hit\" selects the pages to write, but with memory.write_back \"never\" none is written: choose "
           "\"all\", or another memory.write_back",
           {"memory.write_back"});
  }

  void check_pages(const namespace_spec& ns, const std::string& path) {
    const auto page = possible_page_bytes(ns.geometry);
    if (!page)
      return;
    const auto geometry_path = path + ".kv_cache";
    demand(*page <= max_page_bytes, geometry_path,
           "a page would have " + format_size(*page) + "; 1 B to " + format_size(max_page_bytes) + " are possible");
    if (*page > max_page_bytes)
      return;
    const auto slot = io::slot_bytes(*page);
    const auto for_pages = " of \"" + ns.name + "\", " + format_size(slot) + " each";
    const auto ranks = std::min<std::size_t>(config_.storage.ranks.size(), ns.world_size);
    const bool kept =
        std::none_of(config_.storage.ranks.begin(), config_.storage.ranks.begin() + static_cast<std::ptrdiff_t>(ranks),
                     [this](const auto& x) { return in_memory_only(x); });
    demand(kept || config_.registry.durability != "strict", "registry.durability",
           "\"strict\" guarantees that a saved page is on the disk, but those of \"" + ns.name +
               "\" are in memory only: choose \"relaxed\" or \"none\", or give them slabs",
           {"storage.ranks", "memory.write_back"});
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto slots = slots_of_rank(config_, config_.storage.ranks[rank], *page);
      const auto slab_path = join("storage.ranks", rank) + ".slab_bytes";
      const bool memory_only = in_memory_only(config_.storage.ranks[rank]);
      demand(slots >= min_slots || memory_only, slab_path,
             "has room for " + std::to_string(slots) + " slots" + for_pages + "; at least " +
                 std::to_string(min_slots) + " are needed: " + format_size(min_slots * slot + io::slab_trailer_bytes),
             {geometry_path});
      demand(slots <= max_slots, slab_path,
             "has room for " + std::to_string(slots) + " slots" + for_pages + "; at most " + std::to_string(max_slots) +
                 " can be numbered: " + format_size(max_slots * slot + io::slab_trailer_bytes),
             {geometry_path});
    }
    const auto& memory = config_.memory;
    demand(io::extent_bytes_for(memory.bytes, slot).has_value(), "memory.bytes",
           format_size(memory.bytes) + " is less than two extents with room for a slot" + for_pages + "; at least " +
               format_size(2 * io::extent_bytes_least(slot)) + " are needed",
           {geometry_path});
    demand(memory.client_bytes >= slot, "memory.client_bytes",
           format_size(memory.client_bytes) + " has no room for one slot" + for_pages, {geometry_path});
    demand(config_.transfer.window_bytes / 2 >= slot, "transfer.window_bytes",
           format_size(config_.transfer.window_bytes) + " has no room for two slots" + for_pages, {geometry_path});
  }

  /// Reports an error unless `holds`, or unless a key of the rule has an error already.
  void demand(bool holds, std::string_view path, std::string text,
              std::initializer_list<std::string_view> others = {}) {
    const auto is_about = [&](const problem& p) {
      const auto below = [&](std::string_view x) { return p.path.starts_with(x) || x.starts_with(p.path); };
      return below(path) || std::ranges::any_of(others, below);
    };
    if (!holds && std::none_of(problems_.begin(), problems_.begin() + known_, is_about))
      problems_.push_back({std::string{path}, std::move(text), {}});
  }

  const node_config& config_;
  purpose what_for_ = purpose::server;
  std::vector<problem>& problems_;
  /// Problems found before the rules.
  std::ptrdiff_t known_;
};

} // namespace

std::filesystem::path shared_directory(const node_config& config) {
  if (config.storage.shared_directory)
    return *config.storage.shared_directory;
  std::error_code ignored;
  // A data directory may be a link.
  return std::filesystem::weakly_canonical(config.data_dir, ignored).parent_path();
}

std::uint64_t slab_slots(std::uint64_t slab_bytes, std::uint64_t page_bytes) noexcept {
  return slab_bytes < io::slab_trailer_bytes ? 0 : (slab_bytes - io::slab_trailer_bytes) / io::slot_bytes(page_bytes);
}

void check_rules(const node_config& config, purpose what_for, std::vector<problem>& problems) {
  checker{config, problems}.check(what_for);
}

std::optional<problem> notice_of_experimental(const node_config& config) {
  if (config.remote.transport != "ucx")
    return std::nullopt;
  return problem{
      "remote.transport",
      "UCX is experimental: it has not been run on an RDMA fabric; remote.transport \"tcp\" moves pages without "
      "it",
      {}};
}

} // namespace troupe::config
