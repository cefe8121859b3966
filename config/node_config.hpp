#pragma once

#include "base/clock.hpp"
#include "base/namespace_spec.hpp"

#include <tl/expected.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The config of a node: one JSON file, comments allowed. What each key means, its bounds and its place in the file
/// are in config/schema.hpp and, for readers, in docs/configuration.md. The values below are the defaults.

namespace troupe::config {

inline constexpr std::uint64_t kibibyte = 1024;
inline constexpr std::uint64_t mebibyte = 1024 * kibibyte;
inline constexpr std::uint64_t gibibyte = 1024 * mebibyte;
inline constexpr std::uint64_t tebibyte = 1024 * gibibyte;

/// The value of a port that is off.
inline constexpr std::int32_t port_off = -1;

/// TLS of the actors' port: client and node both present a certificate of `ca`.
struct actors_tls_config {
  std::optional<std::filesystem::path> certificate;
  std::optional<std::filesystem::path> key;
  std::optional<std::filesystem::path> ca;

  friend bool operator==(const actors_tls_config&, const actors_tls_config&) = default;
};

/// Listeners for clients.
struct actors_config {
  /// Below `data_dir`; "off" or empty: none.
  std::string socket = "troupe.sock";
  std::string host = "127.0.0.1";
  /// `port_off`: none. 0: any free port.
  std::int32_t port = port_off;
  /// Without TLS, the port has no authentication, which must be confirmed explicitly.
  bool insecure = false;
  actors_tls_config tls;
  std::uint32_t max_connections = 256;
  duration handshake_time = std::chrono::seconds{5};
  std::uint32_t max_message_bytes = 16 * mebibyte;
  std::uint32_t max_requests = 65536;
  /// A client may attach to a namespace that does not exist: it is created.
  bool make_namespaces = true;

  /// Whether clients that create namespaces need a listener.
  bool serves_makers() const { return make_namespaces && (has_socket() || port != port_off); }

  bool has_socket() const { return !socket.empty() && socket != "off"; }

  friend bool operator==(const actors_config&, const actors_config&) = default;
};

/// TLS of the HTTP server: enabled by a certificate.
struct http_tls_config {
  /// PEM files. The certificate's file has the chain behind it.
  std::optional<std::filesystem::path> certificate;
  std::optional<std::filesystem::path> key;
  /// The authorities of client certificates; not set: none are needed.
  std::optional<std::filesystem::path> client_ca;

  friend bool operator==(const http_tls_config&, const http_tls_config&) = default;
};

/// Limits of the HTTP server, for one client or for all together.
struct http_limits {
  std::uint64_t header_bytes = 16 * kibibyte;
  std::uint64_t body_bytes = 16 * mebibyte;
  /// For all connections together, beyond the few KiB that each has.
  std::uint64_t bodies_bytes = 256 * mebibyte;
  std::uint32_t connections = 1024;
  std::uint32_t connections_per_address = 512;
  std::uint32_t keys = 65536;
  /// For one caller; 0: no limit.
  std::uint32_t requests_per_second = 0;
  /// The limits of leases: the number and the share of a namespace's keys for one caller; the share for all callers of
  /// role `read` together, and their longest duration.
  std::uint32_t leases = 1024;
  double leased_share = 0.5;
  double readers_share = 0.5;
  duration readers_lease = std::chrono::minutes{1};
  duration idle_time = std::chrono::minutes{5};
  duration receive_time = std::chrono::seconds{30};
  duration answer_time = std::chrono::seconds{30};
  duration write_time = std::chrono::seconds{30};

  friend bool operator==(const http_limits&, const http_limits&) = default;
};

/// The address of an HTTP server, and its access rules.
struct http_listener_config {
  bool enabled = false;
  std::string host = "127.0.0.1";
  /// 0: any free port. `port_off`: none, if there is another listener.
  std::int32_t port = 18000;
  /// 0: one for every two cores, from one to four.
  std::uint32_t threads = 0;
  /// Other hosts can reach the port, and there are neither tokens nor client certificates: must be confirmed.
  bool insecure = false;
  /// Further names for the Host header of requests, besides `host` and the names of the loopback interface, if there
  /// are neither tokens nor client certificates; separated by commas.
  std::string hosts;
  std::optional<std::filesystem::path> tokens_file;
  http_tls_config tls;

  friend bool operator==(const http_listener_config&, const http_listener_config&) = default;
};

/// The HTTP server.
struct http_config : http_listener_config {
  /// The Unix socket for this user and root, below `data_dir` unless absolute; "off": none.
  std::string socket = "http.sock";
  http_limits limits;

  bool has_socket() const { return enabled && !socket.empty() && socket != "off"; }
  bool has_port() const { return enabled && port != port_off; }

  friend bool operator==(const http_config&, const http_config&) = default;
};

struct registry_config {
  std::uint32_t shards = 1;
  /// Those of the config and those that clients create, together.
  std::uint32_t max_namespaces = 256;
  duration lease_default = std::chrono::seconds{30};
  duration lease_max = std::chrono::minutes{10};
  duration reservation_deadline = std::chrono::seconds{60};
  std::uint32_t max_batch_keys = 4096;
  /// Limits of each shard: leases, leases of one client, and keys of one lease.
  std::uint32_t max_leases = 65536;
  std::uint32_t max_leases_per_owner = 16384;
  std::uint32_t max_lease_keys = 65536;
  /// Keys of the last lookups that are recorded in `data_dir`, for `troupe whatif`; 0: none.
  std::uint64_t record_keys = 0;
  /// Lookups that `troupe explain` can explain; 0: none.
  std::uint32_t explain_lookups = 1024;
  /// Limits of each shard: reserved pages, and reservations of one client.
  std::uint32_t max_reserved_pages = 1048576;
  std::uint32_t max_reservations_per_owner = 4096;
  /// How long a key's children protect it from eviction.
  duration children_hold = std::chrono::minutes{10};
  /// "lru", "s3-fifo" or "reuse".
  std::string eviction = "reuse";
  /// For ranks, keys, leases and reservations together.
  std::uint64_t memory_bytes = 4 * gibibyte;
  /// "none", "relaxed" or "strict".
  std::string durability = "none";
  /// With "relaxed": how much of the newest changes a power failure may lose.
  duration sync_interval = std::chrono::seconds{1};
  /// Erases namespaces from the index at the start that this node does not serve.
  bool forget_absent = false;

  friend bool operator==(const registry_config&, const registry_config&) = default;
};

/// Services for engines with slab files of their own: the metadata services of vLLM's HF3FS connector and of SGLang.
struct hf3fs_config {
  bool vllm = false;
  bool sglang = false;
  /// vLLM's HF3FS protocol has no namespaces: all its keys are in this one.
  std::string ns = "hf3fs";
  /// Ranks of vLLM's namespace; 0: the registered ones.
  std::uint32_t world_size = 0;
  duration protect_locations = std::chrono::seconds{10};
  duration reservation_deadline = std::chrono::seconds{60};
  /// Namespaces that clients may create. An SGLang engine has one for each pool.
  std::uint32_t max_namespaces = 64;
  std::uint32_t max_pages_per_rank = 1U << 26;

  friend bool operator==(const hf3fs_config&, const hf3fs_config&) = default;
};

/// The replacement of LMCache's server for clients of its multi-process mode.
struct lmcache_config {
  bool enabled = false;
  std::string host = "127.0.0.1";
  /// 0: any free port.
  std::uint16_t port = 5555;
  /// Tokens of one page.
  std::uint32_t chunk_tokens = 256;

  friend bool operator==(const lmcache_config&, const lmcache_config&) = default;
};

/// What the node publishes about its pages, for routers.
struct events_config {
  /// ZeroMQ endpoints; empty: nothing is published, and missed batches cannot be requested.
  std::string endpoint;
  std::string replay_endpoint;
  std::string topic = "kv@{node}@{model}";
  /// "map" or "array".
  std::string encoding = "map";
  /// For tokens and extra keys, which a snapshot needs.
  std::uint64_t memory_bytes = 256 * mebibyte;
  std::uint32_t buffer_batches = 10000;
  std::uint64_t buffer_bytes = 64 * mebibyte;
  /// Batches that wait for one subscriber.
  std::uint32_t queue_batches = 1000;
  duration heartbeat = std::chrono::seconds{10};

  bool publishes() const noexcept { return !endpoint.empty(); }
  friend bool operator==(const events_config&, const events_config&) = default;
};

/// A listener for handshakes only. Limits are those of `http`.
struct handshake_http_config : http_listener_config {
  handshake_http_config() { port = 18010; }

  friend bool operator==(const handshake_http_config&, const handshake_http_config&) = default;
};

/// The directory in which engines publish the metadata that their peers need to connect.
struct handshake_config {
  bool enabled = true;
  /// Also serve the paths of vLLM's last draft.
  bool vllm_draft = false;
  std::uint64_t max_payload_bytes = mebibyte;
  /// For all payloads together.
  std::uint64_t memory_bytes = 256 * mebibyte;
  std::uint32_t max_engines = 4096;
  std::uint32_t max_ranks = 1024;
  std::uint32_t max_waiting = 16384;
  std::uint32_t max_watches = 1024;
  duration max_wait = std::chrono::minutes{1};
  duration ttl_default = std::chrono::seconds{30};
  duration ttl_max = std::chrono::hours{1};
  duration remember = std::chrono::hours{1};
  duration watch_patience = std::chrono::minutes{1};
  std::uint64_t update_bytes = mebibyte;
  handshake_http_config http;

  friend bool operator==(const handshake_config&, const handshake_config&) = default;
};

/// The config of that listener's server.
http_config server_of(const http_listener_config& own, const http_limits& limits);

/// The storage of one rank. Each namespace has its own slab file on it.
struct rank_storage {
  std::uint64_t slab_bytes = 0;
  /// Below the node's `data_dir`; not set: in `data_dir` itself.
  std::optional<std::filesystem::path> directory;
  /// The NUMA node that its pages prefer.
  std::optional<std::uint32_t> numa_node{};

  friend bool operator==(const rank_storage&, const rank_storage&) = default;
};

struct storage_config {
  std::vector<rank_storage> ranks;
  /// For all slab files of namespaces that clients create; 0: their pages are in memory only.
  std::uint64_t disk_bytes = 0;
  /// Disk space that these leave free, for the index and for other programs.
  std::uint64_t spare_bytes = 256 * mebibyte;
  /// Fractions of a rank's slots: eviction starts when fewer than `low_watermark` are free and continues until
  /// `high_watermark` are. With many slots, smaller fractions are used: `options_for_slots`.
  double low_watermark = 0.01;
  double high_watermark = 0.02;
  bool direct = true;
  /// For all slab files together, read by the scrub; 0: none.
  std::uint64_t scrub_bytes_per_second = 0;
  /// For a data directory that other hosts can reach: how long this node may write there after its claim was renewed.
  duration claim_lease = std::chrono::seconds{10};
  /// The mount point of 3FS; not set: derived from the path of the slab files.
  std::optional<std::filesystem::path> mount_point{};
  std::string usrbio_library = "libhf3fs_api_shared.so";
  duration usrbio_quarantine = std::chrono::seconds{90};
  /// The nodes of the cluster read each other's slab files.
  bool shared = false;
  /// Contains the directories of all nodes, as this host sees it; not set: the one above `data_dir`.
  std::optional<std::filesystem::path> shared_directory{};

  friend bool operator==(const storage_config&, const storage_config&) = default;
};

/// The memory for pages: one arena for all ranks of all namespaces, shared with the clients.
struct memory_config {
  std::uint64_t bytes = 256 * mebibyte;
  /// "auto", "2 MiB", "1 GiB" or "off".
  std::string huge_pages = "auto";
  /// "off" or "spread".
  std::string numa = "off";
  std::uint64_t client_bytes = gibibyte;
  /// "eager", "on_eviction" or "never".
  std::string write_back = "eager";
  /// Not with durability "strict".
  bool beyond_disk = true;
  /// "all" or "second_hit".
  std::string admission = "all";
  /// "lru", "s3-fifo" or "reuse".
  std::string eviction = "reuse";
  /// For each rank; at most a quarter of `bytes`, whatever this says. 0: no prefetching.
  std::uint64_t prefetch_bytes = gibibyte;

  friend bool operator==(const memory_config&, const memory_config&) = default;
};

struct io_config {
  /// "auto", "io_uring", "threads", "usrbio" or "usrbio_or_uring".
  std::string engine = "auto";
  std::uint32_t queue_depth = 64;
  std::uint32_t threads = 16;
  duration deadline = std::chrono::seconds{10};
  std::uint32_t max_batch_pages = 256;
  std::uint32_t max_pages_in_flight = 4096;
  std::uint32_t max_clients = 64;

  friend bool operator==(const io_config&, const io_config&) = default;
};

struct transfer_config {
  std::uint64_t window_bytes = 512 * mebibyte;
  std::uint32_t batch_pages = 128;
  std::uint32_t max_tasks = 256;
  duration task_deadline = std::chrono::seconds{30};
  /// Staging buffer for pages of a node on another host.
  std::uint64_t remote_bytes = 256 * mebibyte;
  /// "auto", "raw" or "bf16".
  std::string encoding = "auto";

  friend bool operator==(const transfer_config&, const transfer_config&) = default;
};

/// How a client reconnects to its node.
struct attach_config {
  duration reconnect_backoff_min = std::chrono::milliseconds{100};
  duration reconnect_backoff_max = std::chrono::seconds{5};
  duration request_timeout = std::chrono::seconds{10};
  /// Treat the node as one on another host, even if it is on this one.
  bool always_remote = false;

  friend bool operator==(const attach_config&, const attach_config&) = default;
};

/// The transfer of pages between hosts.
struct remote_config {
  /// For a node: serve clients that cannot map its memory.
  bool enabled = false;
  std::string transport = "tcp";
  /// For "tcp".
  bool encrypt = true;
  /// For "tcp": the most connections for the pages of one rank of a client; 0: by the number of processors.
  unsigned streams = 0;
  /// For "tcp": addresses of this host, one of each interface that pages use; empty: the one by which the other end is
  /// reached.
  std::string addresses;
  /// For a node, with "tcp": threads that transfer pages of all clients; 0: by `streams`.
  unsigned threads = 0;
  /// For "ucx", as UCX_TLS and UCX_NET_DEVICES.
  std::string ucx_transports = "tcp,self";
  std::string ucx_interfaces;
  /// For a node: bytes in transfer at once, per client and rank.
  std::uint64_t window_bytes = 256 * mebibyte;
  /// For a node: how long transfers of a client may make no progress before it counts as lost.
  duration stall_time = std::chrono::seconds{10};

  friend bool operator==(const remote_config&, const remote_config&) = default;
};

/// The address of another node.
struct cluster_seed {
  std::string host;
  std::uint16_t port = 0;

  friend bool operator==(const cluster_seed&, const cluster_seed&) = default;
};

/// A member of an etcd cluster.
struct etcd_endpoint {
  std::string host;
  std::uint16_t port = 0;

  friend bool operator==(const etcd_endpoint&, const etcd_endpoint&) = default;
};

/// TLS of connections to etcd: enabled by authorities.
struct etcd_tls_config {
  /// PEM files. The authorities of etcd's certificate.
  std::optional<std::filesystem::path> ca;
  /// The certificate that this node presents, with the chain behind it; not set: none.
  std::optional<std::filesystem::path> certificate;
  std::optional<std::filesystem::path> key;

  friend bool operator==(const etcd_tls_config&, const etcd_tls_config&) = default;
};

/// An etcd cluster that holds the list of nodes.
struct etcd_config {
  /// Its members, or some of them: one that answers is enough. Empty: nodes are found by seeds only.
  std::vector<etcd_endpoint> endpoints;
  /// How long the entry of a dead node stays.
  duration lease = std::chrono::seconds{10};
  /// Prefix of the keys of nodes. Empty: "/troupe/NAME/nodes/".
  std::string prefix;
  etcd_tls_config tls;
  /// The user for the login; empty: no login. The password is in a file only.
  std::string user;
  std::optional<std::filesystem::path> password_file;
  /// The password is sent over a network in clear text, which must be confirmed explicitly.
  bool insecure = false;

  friend bool operator==(const etcd_config&, const etcd_config&) = default;
};

/// The address at which other nodes reach this one.
struct advertise_config {
  /// Empty: `actors.host`.
  std::string host;
  /// 0: `actors.port`.
  std::uint16_t port = 0;

  friend bool operator==(const advertise_config&, const advertise_config&) = default;
};

/// Nodes that share their pages.
struct cluster_config {
  /// Empty: the node is not part of a cluster.
  std::string name;
  /// Permanent nodes of the cluster; this one may be among them.
  std::vector<cluster_seed> seeds;
  /// The list of nodes that join and leave.
  etcd_config etcd;
  advertise_config advertise;
  /// How long a lookup waits until others answer which pages they have.
  duration ask_time = std::chrono::milliseconds{50};
  /// How long it waits until these pages have arrived.
  duration fetch_time = std::chrono::seconds{2};
  /// Interval of heartbeats; a node that has not answered after twice as long is unreachable.
  duration hello_interval = std::chrono::seconds{1};
  /// Fetched pages are kept, and evicted first at the node that they came from. Otherwise they are evicted first here.
  bool keep_copies = true;
  /// Staging buffer: per rank of a namespace, and the same again for each other node.
  std::uint64_t memory_bytes = 64 * mebibyte;

  friend bool operator==(const cluster_config&, const cluster_config&) = default;
};

/// Options of the actor system.
struct caf_config {
  /// 0: one per core, at least four.
  std::uint32_t scheduler_threads = 0;
  /// "stealing" or "sharing".
  std::string scheduler_policy = "stealing";
  /// 0: about 200 µs of polling on a machine with at least eight cores, else 100 attempts.
  std::uint32_t aggressive_poll_attempts = 0;
  std::uint32_t moderate_poll_attempts = 0;
  std::uint32_t max_throughput = 300;
  duration heartbeat_interval = std::chrono::seconds{1};
  duration connection_timeout = std::chrono::seconds{5};

  friend bool operator==(const caf_config&, const caf_config&) = default;
};

/// Format of the log.
struct log_config {
  /// "text" or "json".
  std::string format = "text";

  friend bool operator==(const log_config&, const log_config&) = default;
};

struct node_config {
  std::string node_name = "troupe";
  /// Directory of everything the node writes. Relative: to the working directory of the process.
  std::filesystem::path data_dir = "data";
  std::string log_level = "info";
  log_config log;
  duration drain_timeout = std::chrono::seconds{30};
  /// 0: never.
  duration statistics_interval = std::chrono::seconds{60};
  actors_config actors;
  http_config http;
  hf3fs_config hf3fs;
  lmcache_config lmcache;
  events_config events;
  handshake_config handshake;
  storage_config storage;
  memory_config memory;
  std::vector<namespace_spec> namespaces;
  registry_config registry;
  io_config io;
  transfer_config transfer;
  attach_config attach;
  remote_config remote;
  cluster_config cluster;
  caf_config caf;

  friend bool operator==(const node_config&, const node_config&) = default;
};

/// One error in a config.
struct problem {
  /// The place in the file, as in `storage.ranks[1].slab_bytes`; the name of the file for an error without a place.
  std::string path;
  /// A sentence: what was expected, what was found, the way out.
  std::string text;
  /// "line 12", "--set", or empty for a missing value.
  std::string where;

  friend bool operator==(const problem&, const problem&) = default;
};

/// "path: text (where)"
std::string to_string(const problem& p);

/// The purpose of the config. A client that attaches to a node needs neither storage nor namespaces.
enum class purpose { server, client };

/// The config, or all errors.
using load_result = tl::expected<node_config, std::vector<problem>>;

/// Reads a config from JSON text of at most 1 MiB. `origin` is the name of the text in problems. `overrides` are
/// "PATH=VALUE", as in `http.port=0`, `storage.ranks[0].slab_bytes=1 GiB` or `namespaces[0].name=chat`: VALUE is parsed
/// as JSON if it is valid JSON, else taken as text; an index one past the end of a list appends. The later of two wins.
/// Throws only std::bad_alloc.
load_result parse(std::string_view text, std::string_view origin, std::span<const std::string> overrides = {},
                  purpose what_for = purpose::server);

/// The same, from a file.
load_result load(const std::filesystem::path& file, std::span<const std::string> overrides = {},
                 purpose what_for = purpose::server);

/// The effective config as a JSON file that `parse` reads back to an equal one. Sizes and times have units. Optional
/// keys that are not set are omitted.
std::string to_json(const node_config& config);

/// The same with comments: the meaning of each key, its type and its default. `keys` selects some, as in "http.port" or
/// "namespaces"; the name of an object selects all its keys. Empty: all of them.
std::string to_commented_json(const node_config& config, std::span<const std::string> keys = {});

/// The effective config without secrets, which are the salts of namespaces; to be shown to administrators.
node_config without_secrets(const node_config& config);

/// The errors of a config that was created by a program: the same bounds and rules as for a file.
std::vector<problem> validate(const node_config& config, purpose what_for = purpose::server);

/// Memory of a node for one slot of a slab file: 9 bytes in its allocator, 6 in its io worker.
inline constexpr std::uint64_t memory_per_slot = 15;

/// The directory with the slab files of all nodes of the cluster, if the storage is shared.
std::filesystem::path shared_directory(const node_config& config);

/// Slots of a slab file of at most `slab_bytes`, for pages of `page_bytes`.
std::uint64_t slab_slots(std::uint64_t slab_bytes, std::uint64_t page_bytes) noexcept;

} // namespace troupe::config
