#pragma once

#include "base/geometry_bounds.hpp"
#include "base/layouts.hpp"
#include "config/kinds.hpp"
#include "config/node_config.hpp"

#include <array>
#include <limits>
#include <string_view>

/// The single description of the config: the keys, where they are, their kind and bounds, and what they mean. Reading,
/// writing, overrides and the tables of docs/configuration.md all follow from it, each as a visitor with these members:
///
///     void field(key, value, kind, meaning)       a value that has a default
///     void required(key, value, kind, meaning)    a value that must be there
///     void group(key, config, meaning)            an object; describes `config` in turn
///     void list(key, items, limit, meaning)       a list of objects, `limit` at most
///
/// A new key is a member in node_config.hpp, a line here and a row in the documentation; a rule that relates it to
/// other keys goes to rules.cpp.

namespace troupe::config {

inline constexpr std::array<std::string_view, 6> log_levels{"trace", "debug", "info", "warn", "error", "off"};
inline constexpr std::array<std::string_view, 2> log_formats{"text", "json"};
inline constexpr std::array<std::string_view, 5> engines{"auto", "io_uring", "threads", "usrbio", "usrbio_or_uring"};
inline constexpr std::array<std::string_view, 4> huge_page_choices{"auto", "2 MiB", "1 GiB", "off"};
inline constexpr std::array<std::string_view, 2> event_encodings{"map", "array"};
inline constexpr std::array<std::string_view, 2> numa_choices{"off", "spread"};
inline constexpr std::array<std::string_view, 3> write_backs{"eager", "on_eviction", "never"};
inline constexpr std::array<std::string_view, 2> admissions{"all", "second_hit"};
inline constexpr std::array<std::string_view, 3> evictions{"lru", "s3-fifo", "reuse"};
inline constexpr std::array<std::string_view, 3> durabilities{"none", "relaxed", "strict"};
inline constexpr std::array<std::string_view, 2> remote_transports{"tcp", "ucx"};
inline constexpr std::array<std::string_view, 3> page_encodings{"auto", "raw", "bf16"};
inline constexpr std::array<std::string_view, 2> scheduler_policies{"stealing", "sharing"};
inline constexpr std::array<std::string_view, 6> dtypes{"bfloat16", "float16",  "float32",
                                                        "fp8_e4m3", "fp8_e5m2", "int8"};
inline constexpr std::array<std::string_view, 2> layouts{layout_of_elements, layout_of_whole_blocks};

inline constexpr std::size_t max_namespaces = 64;
inline constexpr std::size_t max_ranks = 64;
inline constexpr std::size_t max_seeds = 64;
inline constexpr std::size_t max_etcd_endpoints = 16;

constexpr whole whole_within(const shape_bound& x) {
  return {x.least, x.most};
}

inline constexpr duration millisecond{1'000'000};
inline constexpr duration second = 1000 * millisecond;
inline constexpr duration minute = 60 * second;
inline constexpr duration hour = 60 * minute;

/// Bounds for timeouts of one request: long enough for a slow disk, short enough to be noticed.
inline constexpr time_span request_time{1 * millisecond, 10 * minute};

/// Bounds for timeouts of a client: from what tests need to a day.
inline constexpr time_span http_time{1 * millisecond, 24 * hour};

template <class Visitor>
void describe(Visitor& v, actors_tls_config& c) {
  v.field("certificate", c.certificate, any_path, "PEM file with this process's certificate and the chain behind it.");
  v.field("key", c.key, any_path, "PEM file with the key of the certificate.");
  v.field("ca", c.ca, any_path,
          "PEM file with the authorities of both sides. Use private ones: host names are not checked.");
}

template <class Visitor>
void describe(Visitor& v, actors_config& c) {
  v.field("socket", c.socket, free_text,
          "Unix socket by which clients of this host attach, for this user and root; below `data_dir` unless absolute. "
          "\"off\": none. None is opened if there are neither `namespaces` nor `make_namespaces`.");
  v.field("host", c.host, host_name, "Address that `port` listens on.");
  v.field("port", c.port, port_or_off{},
          "TCP port for clients; 0 takes a free one, which the `ready` line shows. Needs `tls` or `insecure`.");
  v.field(
      "insecure", c.insecure, flag{},
      "Confirms that, without `tls`, every process that reaches the port may attach and read, write and evict pages.");
  v.group("tls", c.tls, "Certificates of both sides of a TCP connection; for clients too.");
  v.field("max_connections", c.max_connections, whole{1, 65536}, "Connections open at once; more are refused.");
  v.field("handshake_time", c.handshake_time, request_time, "Timeout of the handshake; the connection is then closed.");
  v.field("max_message_bytes", c.max_message_bytes, size{64 * kibibyte, 1 * gibibyte},
          "Largest message on a connection; a longer one closes it before memory is allocated for it.");
  v.field("max_requests", c.max_requests, whole{16, 1048576},
          "Requests of one attached client in progress at once; more are refused.");
  v.field("make_namespaces", c.make_namespaces, flag{},
          "Whether a client may attach to a namespace that does not exist, and create it.");
}

template <class Visitor>
void describe(Visitor& v, http_tls_config& c) {
  v.field("certificate", c.certificate, any_path,
          "PEM file with the certificate and the chain behind it; with it, the port speaks TLS 1.2 or newer only.");
  v.field("key", c.key, any_path, "PEM file with the key of the certificate.");
  v.field("client_ca", c.client_ca, any_path,
          "PEM file with authorities: every client must present a certificate of one of them.");
}

template <class Visitor>
void describe(Visitor& v, http_limits& c) {
  v.field("header_bytes", c.header_bytes, size{1 * kibibyte, 1 * mebibyte},
          "Request line and headers of one request; more is refused.");
  v.field("body_bytes", c.body_bytes, size{1 * kibibyte, 1 * gibibyte}, "Body of one request; more is refused.");
  v.field("bodies_bytes", c.bodies_bytes, size{1 * kibibyte, 1 * tebibyte},
          "Memory for all requests that are being received, beyond 8 KiB for each connection, and the same again for "
          "parsing large ones; more get 503.");
  v.field("connections", c.connections, whole{1, 65536},
          "Connections open at once; more can only request `/health`, `/ready`, `/version` and `/metrics`.");
  v.field("connections_per_address", c.connections_per_address, whole{1, 65536},
          "The same for connections from one address, or from one /64 of IPv6.");
  v.field("keys", c.keys, whole{1, 1048576}, "Keys in one request; more is refused.");
  v.field("requests_per_second", c.requests_per_second, whole{0, 1000000},
          "Rate limit of one caller, for requests that need a role; more get 429. 0: no limit.");
  v.field("leases", c.leases, whole{1, 16384},
          "Leases that one caller may hold, in each registry shard; more get 429.");
  v.field("leased_share", c.leased_share, fraction{0, 1},
          "Share of a namespace's keys that the leases of one caller may hold; more get 429.");
  v.field("readers_share", c.readers_share, fraction{0, 1},
          "The same for all callers of role `read` together, including the locations that slot clients of that role "
          "received.");
  v.field("readers_lease", c.readers_lease, http_time, "The longest lease of a caller of role `read`.");
  v.field("idle_time", c.idle_time, http_time, "Timeout of a connection without a request; it is then closed.");
  v.field("receive_time", c.receive_time, http_time,
          "Timeout for receiving a request, from its first byte to its last; also for a TLS handshake.");
  v.field("answer_time", c.answer_time, http_time, "Timeout for answering a request; the client then gets 504.");
  v.field("write_time", c.write_time, http_time,
          "Timeout for a client to receive an answer; its connection is then closed.");
}

/// Describes where an HTTP server listens and which clients it admits; `insecure` says what that key confirms.
template <class Visitor, class Listener, class Port>
void describe_listener(Visitor& v, Listener& c, const Port& port, std::string_view about_port,
                       std::string_view insecure) {
  v.field("host", c.host, host_name,
          "Address to listen on. One that other machines can reach needs `tokens_file` or `tls.client_ca`.");
  v.field("port", c.port, port, about_port);
  v.field("threads", c.threads, whole{0, 64},
          "Threads that serve connections; 0: one for every two processors that the node may use, from one to four.");
  v.field("insecure", c.insecure, flag{}, insecure);
  v.field("hosts", c.hosts, host_names,
          "Further host names that requests may use for the server, where there are neither tokens nor client "
          "certificates: separated by commas.");
  v.field(
      "tokens_file", c.tokens_file, any_path,
      "File with the bearer tokens that clients must send, a role and a token per line; not set: no token is needed.");
  v.group("tls", c.tls, "Encryption, and certificates of clients.");
}

template <class Visitor>
void describe(Visitor& v, http_config& c) {
  v.field("enabled", c.enabled, flag{}, "Whether the node serves HTTP.");
  v.field("socket", c.socket, free_text,
          "Unix socket by which this user and root reach the HTTP API, with all rights and without a token; below "
          "`data_dir` unless absolute. \"off\": none.");
  describe_listener(
      v, c, port_or_off{}, "Port to listen on; 0 takes a free one. \"off\": none, and HTTP is served by `socket` only.",
      "Confirms that, without tokens and client certificates, every process that reaches the port has all rights.");
  v.group("limits", c.limits, "Limits for one client or for all together.");
}

template <class Visitor>
void describe(Visitor& v, hf3fs_config& c) {
  v.field("vllm", c.vllm, flag{}, "Whether to serve vLLM's HF3FS connector, under `/rank`, `/keys` and `/clear`.");
  v.field("sglang", c.sglang, flag{}, "Whether to serve SGLang's HF3FS backend, under `/{rank}`.");
  v.field("namespace", c.ns, plain_name, "The namespace of all keys that come over vLLM's HF3FS protocol.");
  v.field("world_size", c.world_size, whole_or_auto{max_ranks},
          "Ranks that make a key of vLLM complete; \"auto\": all that are registered.");
  v.field("protect_locations", c.protect_locations, time_span{1 * millisecond, 1 * hour},
          "How long a page is kept after a client has received its location, and how long a slot whose writer may be "
          "late is not reused.");
  v.field("reservation_deadline", c.reservation_deadline, time_span{1 * millisecond, 1 * hour},
          "How long a client has to write a page that it reserved; the slot is then given to others.");
  v.field("max_namespaces", c.max_namespaces, whole{1, max_namespaces},
          "Namespaces that clients of each protocol may create, within `registry.max_namespaces`; more are refused. An "
          "SGLang engine has up to 23, one for each pool.");
  v.field("max_pages_per_rank", c.max_pages_per_rank, whole{1, 1U << 30U},
          "Pages that a rank may register, if `registry.memory_bytes` has room for them.");
}

template <class Visitor>
void describe(Visitor& v, lmcache_config& c) {
  v.field("enabled", c.enabled, flag{}, "Whether to serve clients of LMCache's multi-process mode, over ZeroMQ.");
  v.field("host", c.host, host_name,
          "Address to listen on: one of the loopback interface, since this protocol has no authentication.");
  v.field("port", c.port, whole{0, 65535}, "Port to listen on; 0 takes a free one.");
  v.field("chunk_tokens", c.chunk_tokens, whole{1, 4096},
          "Tokens of a page: a multiple of the block size of all engines. Pages of another size are not found.");
}

template <class Visitor>
void describe(Visitor& v, events_config& c) {
  v.field("endpoint", c.endpoint, zmq_endpoint,
          "Where events are published: `tcp://127.0.0.1:5557` or `ipc:///run/troupe/events`. Empty: nowhere.");
  v.field("replay_endpoint", c.replay_endpoint, zmq_endpoint,
          "Where subscribers request events that they missed, and snapshots. Empty: nowhere.");
  v.field("topic", c.topic, free_text, "The topic of events, may be empty; `{node}` and `{model}` are replaced.");
  v.field(
      "encoding", c.encoding, choice{event_encodings},
      "How an event is encoded: \"map\" as vLLM does, \"array\" as vLLM before 0.24 and SGLang do, for routers that "
      "take nothing else.");
  v.field("memory_bytes", c.memory_bytes, size{0, tebibyte},
          "Limit of the tokens that are kept for snapshots; pages beyond it are left out of these.");
  v.field("buffer_batches", c.buffer_batches, whole{1, 1U << 20U},
          "Batches that are kept for subscribers that missed them; who misses more gets a snapshot.");
  v.field("buffer_bytes", c.buffer_bytes, size{mebibyte, tebibyte}, "Limit of these batches.");
  v.field("queue_batches", c.queue_batches, whole{1, 1U << 20U},
          "Batches that may wait for one subscriber; a slower one loses batches.");
  v.field("heartbeat", c.heartbeat, time_span{10 * millisecond, 1 * hour},
          "The time without events after which an empty batch is published, so that a lost one is noticed.");
}

template <class Visitor>
void describe(Visitor& v, handshake_http_config& c) {
  v.field("enabled", c.enabled, flag{},
          "Whether handshakes are served on a port of their own, and on no other, so that they share none with a "
          "public service.");
  describe_listener(v, c, whole{0, 65535}, "Port to listen on; 0 takes a free one.",
                    "Confirms that, without tokens and client certificates, every process that reaches the port may "
                    "publish and fetch.");
}

template <class Visitor>
void describe(Visitor& v, handshake_config& c) {
  v.field("enabled", c.enabled, flag{},
          "Whether the directory is served: under `/v1/handshake` where HTTP is served, and to clients of the actors.");
  v.field("vllm_draft", c.vllm_draft, flag{},
          "Whether to serve the paths of vLLM's draft as well, under `/get_kv_connector_metadata`.");
  v.field("max_payload_bytes", c.max_payload_bytes, size{1 * kibibyte, 64 * mebibyte},
          "Payload of one rank; more is refused.");
  v.field("memory_bytes", c.memory_bytes, size{1 * mebibyte, 64 * gibibyte},
          "Payloads of all ranks together; more is refused.");
  v.field("max_engines", c.max_engines, whole{1, 1048576}, "Engines at one time; more are refused.");
  v.field("max_ranks", c.max_ranks, whole{1, 65536}, "Ranks of one engine; more are refused.");
  v.field("max_waiting", c.max_waiting, whole{1, 1048576},
          "Fetches that wait at one time; more are refused. Each takes a connection or a request, but no thread.");
  v.field("max_watches", c.max_watches, whole{1, 65536}, "Watches at one time; more are refused.");
  v.field("max_wait", c.max_wait, time_span{1 * millisecond, 1 * hour},
          "The longest wait of a fetch; a longer one is cut to it.");
  v.field("ttl_default", c.ttl_default, time_span{1 * millisecond, 24 * hour},
          "How long an engine without a heartbeat stays published, if it does not set a time.");
  v.field("ttl_max", c.ttl_max, time_span{1 * millisecond, 24 * hour},
          "The longest such time; a longer one is cut to it.");
  v.field(
      "remember", c.remember, time_span{1 * millisecond, 24 * hour},
      "How long the incarnation of a removed engine is remembered, so that its late requests do not publish it again.");
  v.field("watch_patience", c.watch_patience, time_span{1 * millisecond, 1 * hour},
          "How long a watcher may take to receive an update; a slower one gets no further updates.");
  v.field("update_bytes", c.update_bytes, size{1 * kibibyte, 64 * mebibyte},
          "Payloads in one update for a watcher, not counting the last engine's; the rest follows in the next update.");
  v.group("http", c.http, "A port for handshakes only. Its limits are those of `http.limits`.");
}

template <class Visitor>
void describe(Visitor& v, rank_storage& c) {
  v.required("slab_bytes", c.slab_bytes, size{0, 64 * tebibyte},
             "Size of the slab file of each namespace on this rank, allocated at the first start; 0: none, pages are "
             "in memory only.");
  v.field("directory", c.directory, path_below,
          "Directory of this rank's slab files, below `data_dir`: a mount point of the disk meant for them.");
  v.field(
      "numa_node", c.numa_node, whole{0, 1023},
      "NUMA node whose memory this rank gets first, with `memory.numa` \"spread\": the one that its GPU is near to.");
}

template <class Visitor>
void describe(Visitor& v, storage_config& c) {
  v.list("ranks", c.ranks, max_ranks, "One entry per rank, rank 0 first.");
  v.field("disk_bytes", c.disk_bytes, size{0, 1024 * tebibyte},
          "Disk space for the slab files of all namespaces that clients create, which grow on demand; 0: none, their "
          "pages are in memory only.");
  v.field("spare_bytes", c.spare_bytes, size{0, 1024 * tebibyte},
          "Disk space that the slab files of these namespaces leave free when they grow: for the index, which cannot "
          "be written on a full disk, and for other programs.");
  v.field("low_watermark", c.low_watermark, fraction{0, 0.5},
          "Eviction starts when less than this fraction of a rank's slots is free.");
  v.field("high_watermark", c.high_watermark, fraction{0, 0.5},
          "Eviction continues until this fraction of a rank's slots is free.");
  v.field("direct", c.direct, flag{},
          "Whether slab files bypass the page cache (O_DIRECT) where the file system supports it.");
  v.field("scrub_bytes_per_second", c.scrub_bytes_per_second, size{0, 64 * gibibyte},
          "Bytes per second that are read of all slab files together, to find corrupt pages before they are requested; "
          "0: none.");
  v.field("claim_lease", c.claim_lease, time_span{100 * millisecond, 1 * minute},
          "With `shared`, and a `data_dir` that lies in the shared directory: how long this node may write to its data "
          "directory after it has renewed its claim there, which it does four times as often; another node waits three "
          "times as long before it takes the directory over.");
  v.field("mount_point", c.mount_point, any_path,
          "With the engine \"usrbio\": mount point of 3FS; not set: the mount on which the slab files lie.");
  v.field("usrbio_library", c.usrbio_library, some_text,
          "With the engine \"usrbio\": 3FS's client library, a path or a name that the loader finds.");
  v.field(
      "usrbio_quarantine", c.usrbio_quarantine, time_span{1 * millisecond, 1 * hour},
      "With the engine \"usrbio\": how long memory of pending transfers is not reused after 3FS's daemon has died.");
  v.field("shared", c.shared, flag{},
          "The slab files of all nodes of the cluster lie on one file system, and nodes read each other's pages there "
          "instead of sending them; each writes only its own.");
  v.field("shared_directory", c.shared_directory, any_path,
          "With `shared`: the directory with the slab files of all nodes, each in a subdirectory of its own, as this "
          "host sees it; not set: the directory above `data_dir`.");
}

template <class Visitor>
void describe(Visitor& v, memory_config& c) {
  v.field("bytes", c.bytes, size{4 * mebibyte, 64 * tebibyte},
          "Shared memory for the pages of all ranks. The host allocates it piece by piece, on first use.");
  v.field("huge_pages", c.huge_pages, choice{huge_page_choices},
          "\"auto\" takes huge pages of 2 MiB where the host has enough free ones and this process may use them, else "
          "ordinary ones; a size takes such pages or fails.");
  v.field("numa", c.numa, choice{numa_choices},
          "\"spread\" distributes the arena over all NUMA nodes, so that ranks can have memory of their own node; "
          "\"off\" leaves it to the kernel.");
  v.field("client_bytes", c.client_bytes, size{64 * kibibyte, tebibyte},
          "Share of it that one client may use at once, per rank.");
  v.field("write_back", c.write_back, choice{write_backs},
          "When pages are written to their slab: at once, after the save; when their memory is needed; never.");
  v.field("beyond_disk", c.beyond_disk, flag{},
          "Whether pages that find no slot in the slab files stay in memory only, until they are evicted; otherwise a "
          "node holds no more pages than its slab files.");
  v.field("admission", c.admission, choice{admissions},
          "Which pages are written to their slab: all that are saved; those that are requested a second time.");
  v.field("eviction", c.eviction, choice{evictions},
          "Which pages that are in their slab leave memory first: those used least recently; those used only once; "
          "those least likely to be used soon, as learned from the traffic.");
  v.field("prefetch_bytes", c.prefetch_bytes, size{0, tebibyte},
          "Pages of a rank that a lookup may prefetch from its slab before they are loaded; 0: none.");
}

template <class Visitor>
void describe(Visitor& v, kv_layer_group& c) {
  v.required("layers", c.layers, whole_within(geometry_bounds::layers), "Layers of this shape on one rank.");
  v.field("parts", c.shape.parts, whole_within(geometry_bounds::parts), "2 where K and V are separate, 1 for MLA.");
  v.required("heads", c.shape.heads, whole_within(geometry_bounds::heads), "KV heads on one rank.");
  v.required("head_size", c.shape.head_size, whole_within(geometry_bounds::head_size), "Elements of one head.");
  v.field("element_bytes", c.shape.element_bytes, whole_within(geometry_bounds::element_bytes),
          "1, 2 or 4, independent of `dtype`, which is the type of the first layers.");
}

template <class Visitor>
void describe(Visitor& v, kv_geometry& c) {
  v.required("layers", c.layers, whole_within(geometry_bounds::layers),
             "Layers of the model on one rank; where shapes differ, the first ones.");
  v.field("parts", c.parts, whole_within(geometry_bounds::parts), "2 where K and V are separate, 1 for MLA.");
  v.required("heads", c.heads, whole_within(geometry_bounds::heads), "KV heads on one rank.");
  v.required("head_size", c.head_size, whole_within(geometry_bounds::head_size), "Elements of one head.");
  v.field("element_bytes", c.element_bytes, whole_within(geometry_bounds::element_bytes),
          "Bytes of one element, as `dtype` implies.");
  v.required("block_tokens", c.block_tokens, whole_within(geometry_bounds::block_tokens),
             "Tokens of one block, in all layers.");
  v.list("further_layers", c.further, geometry_bounds::further_layers,
         "Layers of other shapes that follow the first ones.");
}

template <class Visitor>
void describe(Visitor& v, namespace_spec& c) {
  v.required("name", c.name, plain_name, "Name for clients, logs and files; unique in this node.");
  v.required("model", c.model, some_text, "Name of the model. Part of the identity, as is everything below.");
  v.field("revision", c.revision, free_text, "The revision of the model's weights.");
  v.required("dtype", c.dtype, choice{dtypes}, "The type of the elements of the KV cache.");
  v.field("layout", c.layout, choice{layouts}, "The order of bytes inside a page.");
  v.field("salt", c.salt, free_text, "Separates pages that would be equal otherwise, such as those of two tenants.");
  v.field("group_of", c.group_of, free_text,
          "Equal in the namespaces of a model's groups of layers, as engines name it; empty with one group.");
  v.field("world_size", c.world_size, whole{1, max_ranks},
          "Ranks that must hold a block before it is complete; needs as many `storage.ranks`.");
  v.group("kv_cache", c.geometry, "The shape of one rank's share of a block, which is a page.");
}

template <class Visitor>
void describe(Visitor& v, registry_config& c) {
  v.field("shards", c.shards, whole{1, 256},
          "Actors that share the key index; one handles tens of millions of keys a second.");
  v.field("max_namespaces", c.max_namespaces, whole{1, 4096},
          "Namespaces of the config and those that clients create, together; more are refused.");
  v.field("lease_default", c.lease_default, time_span{1 * millisecond, 24 * hour},
          "Duration of a lease, if the request does not set one.");
  v.field("lease_max", c.lease_max, time_span{1 * millisecond, 24 * hour},
          "The longest lease; a longer one is cut to it.");
  v.field("reservation_deadline", c.reservation_deadline, time_span{1 * millisecond, 1 * hour},
          "The longest time between the reservation of a slot and its commit.");
  v.field("max_batch_keys", c.max_batch_keys, whole{1, 65536}, "Keys in one request; more is refused.");
  v.field("max_leases", c.max_leases, whole{1, 16777216}, "Leases at one time, in each shard; more are refused.");
  v.field("max_leases_per_owner", c.max_leases_per_owner, whole{1, 16777216},
          "Leases of one client at one time, in each shard; those of HTTP callers are limited by `http.limits.leases` "
          "as well.");
  v.field("record_keys", c.record_keys, whole{0, 1073741824},
          "Keys of the last lookups that are recorded as a trace, requests.jsonl in data_dir. It contains no keys, "
          "only which of them are equal; 0: none.");
  v.field("explain_lookups", c.explain_lookups, whole{0, 65536},
          "The last lookups that `troupe explain` explains, with the last 64 times as many removed keys; about 1.3 kB "
          "of memory each. 0: none.");
  v.field("max_lease_keys", c.max_lease_keys, whole{1, 1048576}, "Keys of one lease, in each shard; more are refused.");
  v.field("max_reserved_pages", c.max_reserved_pages, whole{1, 16777216},
          "Pages reserved at one time, in each shard; more are refused.");
  v.field("max_reservations_per_owner", c.max_reservations_per_owner, whole{1, 16777216},
          "Reservations of one client at one time, in each shard; more are refused.");
  v.field("children_hold", c.children_hold, time_span{1 * millisecond, 24 * hour},
          "How long keys that name a key as parent protect it from eviction; after that it is evicted before them.");
  v.field("eviction", c.eviction, choice{evictions},
          "Which keys are evicted first: those used least recently; those used only once; those least likely to be "
          "used soon, as learned from the traffic.");
  v.field("memory_bytes", c.memory_bytes, size{mebibyte, 64 * tebibyte},
          "Memory for the slots of all ranks, for keys, leases and reservations; requests that need more are refused.");
  v.field("durability", c.durability, choice{durabilities},
          "What of the index survives a crash: nothing; all but the last moments before a power failure; everything "
          "that was confirmed.");
  v.field("sync_interval", c.sync_interval, time_span{1 * millisecond, 1 * minute},
          "With durability \"relaxed\": how long a confirmed change may stay unsynced.");
  v.field("forget_absent", c.forget_absent, flag{},
          "Whether a start erases the index entries of namespaces that this node does not serve.");
}

template <class Visitor>
void describe(Visitor& v, io_config& c) {
  v.field("engine", c.engine, choice{engines},
          "\"auto\" takes io_uring where the kernel supports it, else threads; \"usrbio_or_uring\" takes 3FS's rings "
          "where slab files lie on 3FS, else as \"auto\"; the others take what they name or fail.");
  v.field("queue_depth", c.queue_depth, whole{1, 4096}, "Transfers in progress at once per slab file.");
  v.field("threads", c.threads, whole{1, 256}, "Threads per slab file of the engine \"threads\".");
  v.field("deadline", c.deadline, request_time, "Timeout of a transfer; it is then cancelled.");
  v.field("max_batch_pages", c.max_batch_pages, whole{1, 4096}, "Pages in one request to a slab; more is refused.");
  v.field("max_pages_in_flight", c.max_pages_in_flight, whole{1, 65536},
          "Pages in progress or waiting at once per slab file; more is refused.");
  v.field("max_clients", c.max_clients, whole{1, 4096},
          "Clients attached at once, including disconnected ones that may still use memory; more are refused.");
}

template <class Visitor>
void describe(Visitor& v, transfer_config& c) {
  v.field("window_bytes", c.window_bytes, size{64 * kibibyte, tebibyte},
          "Bytes that the coordinators of a rank may have pinned at once.");
  v.field("batch_pages", c.batch_pages, whole{1, 4096}, "Pages that move together through registry, copy and disk.");
  v.field("max_tasks", c.max_tasks, whole{1, 65536},
          "Tasks that wait or run at once per coordinator; more is refused.");
  v.field("task_deadline", c.task_deadline, request_time, "Timeout of a task that does not set one.");
  v.field("remote_bytes", c.remote_bytes, size{64 * kibibyte, tebibyte},
          "Staging buffer of a client for pages of a node on another host, per rank.");
  v.field("encoding", c.encoding, choice{page_encodings},
          "How a client stores pages: \"auto\" encodes those of GPUs, losslessly, where their bytes are BF16 and get "
          "shorter; \"bf16\" also those in host memory; \"raw\" none. Every client reads both.");
}

template <class Visitor>
void describe(Visitor& v, attach_config& c) {
  v.field("reconnect_backoff_min", c.reconnect_backoff_min, request_time,
          "Pause before the first attempt to reconnect; it doubles with each attempt.");
  v.field("reconnect_backoff_max", c.reconnect_backoff_max, request_time, "The longest pause between attempts.");
  v.field("request_timeout", c.request_timeout, request_time, "Timeout of a request; without an answer it has failed.");
  v.field("always_remote", c.always_remote, flag{},
          "Treats the node as one on another host, even if its memory could be mapped.");
}

template <class Visitor>
void describe(Visitor& v, remote_config& c) {
  v.field("enabled", c.enabled, flag{},
          "For a node: whether clients that cannot map its memory, as on other hosts, exchange pages with it.");
  v.field("transport", c.transport, choice{remote_transports},
          "Transport of pages: TCP sockets of this program, or UCX, for RDMA, which is experimental. The same at both "
          "ends.");
  v.field("encrypt", c.encrypt, flag{},
          "For \"tcp\": pages are encrypted in transit, with a key of each attachment. A node with this setting "
          "refuses clients without it.");
  v.field(
      "streams", c.streams, whole{0, 64},
      "For \"tcp\": connections over which the pages of one rank are spread, as many as both ends allow; 0: one for "
      "every two processors, from one to eight, and at least one for each address.");
  v.field("addresses", c.addresses, ip_addresses,
          "For \"tcp\", on a host with several network interfaces: an address of each one over which pages move, at "
          "both ends. Connections take turns. Empty: pages move between the addresses that messages use.");
  v.field(
      "threads", c.threads, whole{0, 64},
      "For a node, with \"tcp\": threads that transfer pages of all clients; 0: as many as `streams`, two at least.");
  v.field("ucx_transports", c.ucx_transports, free_text, "For \"ucx\", as UCX_TLS: \"rc,tcp,self\" for RDMA.");
  v.field("ucx_interfaces", c.ucx_interfaces, free_text,
          "For \"ucx\", as UCX_NET_DEVICES. Empty: a node takes what UCX chooses; a client takes the one by which it "
          "reaches the node.");
  v.field("window_bytes", c.window_bytes, size{64 * kibibyte, tebibyte},
          "For a node: bytes in transfer at once between it and one client, per rank.");
  v.field("stall_time", c.stall_time, request_time,
          "For a node: how long transfers of a client may make no progress before it counts as lost.");
}

template <class Visitor>
void describe(Visitor& v, cluster_seed& c) {
  v.required("host", c.host, host_name, "Host of a node; may be this one.");
  v.required("port", c.port, whole{1, 65535}, "Its `actors.port`.");
}

template <class Visitor>
void describe(Visitor& v, etcd_endpoint& c) {
  v.required("host", c.host, host_name, "Host of an etcd member.");
  v.required("port", c.port, whole{1, 65535}, "Its port for clients.");
}

template <class Visitor>
void describe(Visitor& v, etcd_tls_config& c) {
  v.field("ca", c.ca, any_path,
          "PEM file with the authorities of etcd; with it, etcd is reached over TLS 1.2 or newer only.");
  v.field("certificate", c.certificate, any_path,
          "PEM file with the certificate that this node presents to etcd, and the chain behind it; not set: none.");
  v.field("key", c.key, any_path, "PEM file with the key of the certificate; other users must have no access.");
}

template <class Visitor>
void describe(Visitor& v, etcd_config& c) {
  v.list("endpoints", c.endpoints, max_etcd_endpoints, "Members of an etcd cluster that holds the list of nodes.");
  v.field("lease", c.lease, time_span{2 * second, 10 * minute},
          "How long a dead node stays in the list; in whole seconds.");
  v.field("prefix", c.prefix, free_text, "Prefix of the keys of nodes; empty: `/troupe/NAME/nodes/`.");
  v.group("tls", c.tls, "Encryption and authentication of the connection to etcd.");
  v.field("user", c.user, free_text, "User of etcd to log in as; empty: no login.");
  v.field("password_file", c.password_file, any_path,
          "File with that user's password on one line; other users must have no access. Read at each login.");
  v.field("insecure", c.insecure, flag{},
          "Confirms that, without `tls`, the password is sent over the network in clear text.");
}

template <class Visitor>
void describe(Visitor& v, advertise_config& c) {
  v.field("host", c.host, host_name_or_none, "Host under which other nodes reach this one; empty: `actors.host`.");
  v.field("port", c.port, whole{0, 65535}, "Port under which they do; 0: `actors.port`.");
}

template <class Visitor>
void describe(Visitor& v, cluster_config& c) {
  v.field("name", c.name, free_text, "Nodes of one name share their pages; empty: this node shares with no other.");
  v.list("seeds", c.seeds, max_seeds, "Permanent nodes of the cluster; this one may be among them.");
  v.group("etcd", c.etcd, "An etcd cluster that holds the list of nodes; `seeds` are added to it.");
  v.group("advertise", c.advertise, "Address of this node in that list.");
  v.field("ask_time", c.ask_time, request_time,
          "How long a lookup waits for other nodes to answer which pages they have.");
  v.field("fetch_time", c.fetch_time, request_time,
          "How long a lookup waits for their pages; those that arrive later are found by the next lookup.");
  v.field("hello_interval", c.hello_interval, time_span{10 * millisecond, 1 * minute},
          "Interval of heartbeats to another node; one that has not answered after twice as long is unreachable.");
  v.field("keep_copies", c.keep_copies, flag{},
          "Whether fetched pages are kept here and evicted first at the node that they came from; `false`: they are "
          "evicted first here.");
  v.field("memory_bytes", c.memory_bytes, size{64 * kibibyte, tebibyte},
          "Staging buffer for pages of other nodes, per rank of a namespace, and the same again for each other node.");
}

template <class Visitor>
void describe(Visitor& v, caf_config& c) {
  v.field("scheduler_threads", c.scheduler_threads, whole{0, 1024},
          "Worker threads; 0: one for each processor that the process may use, at least four.");
  v.field("scheduler_policy", c.scheduler_policy, choice{scheduler_policies},
          "How worker threads share runnable actors.");
  v.field("aggressive_poll_attempts", c.aggressive_poll_attempts, whole{0, 1000000},
          "How often an idle worker polls for work without a pause; 0: 8000 with eight processors or more, else 100.");
  v.field("moderate_poll_attempts", c.moderate_poll_attempts, whole{0, 1000000},
          "How often an idle worker polls for work with short sleeps, before it blocks.");
  v.field("max_throughput", c.max_throughput, whole{1, 1000000},
          "Messages that an actor handles before others are scheduled.");
  v.field("heartbeat_interval", c.heartbeat_interval, time_span{10 * millisecond, 1 * minute},
          "Interval of heartbeats between connected nodes.");
  v.field("connection_timeout", c.connection_timeout, time_span{50 * millisecond, 10 * minute},
          "How long a connected node may be silent before it counts as dead.");
}

template <class Visitor>
void describe(Visitor& v, log_config& c) {
  v.field("format", c.format, choice{log_formats},
          "Format of the log: text, or one JSON object a line with `time`, `level`, `component` and `text`.");
}

template <class Visitor>
void describe(Visitor& v, node_config& c) {
  v.field("node_name", c.node_name, plain_name, "Name of this node in logs, metrics and for clients.");
  v.field("data_dir", c.data_dir, any_path,
          "Directory of everything the node writes. Relative: to the working directory of the process.");
  v.field("log_level", c.log_level, choice{log_levels}, "The lowest level that is logged.");
  v.group("log", c.log, "Format of the log.");
  v.field("drain_timeout", c.drain_timeout, time_span{0 * millisecond, 1 * hour},
          "How long a node that stops waits for operations in progress before it aborts them.");
  v.field("statistics_interval", c.statistics_interval, time_span{0 * second, 24 * hour},
          "Interval of a log line with statistics; 0 s: never.");
  v.group("actors", c.actors, "Listeners for clients.");
  v.group("http", c.http, "The HTTP server, for authorized clients on any host.");
  v.group("hf3fs", c.hf3fs, "Metadata service for engines that keep slab files of their own, over HTTP.");
  v.group("lmcache", c.lmcache, "A replacement of LMCache's server, for LMCache's own clients.");
  v.group("events", c.events, "What the node publishes about its pages over ZeroMQ, for routers.");
  v.group("handshake", c.handshake,
          "The directory in which engines publish the metadata that their peers need to connect.");
  v.group("storage", c.storage, "The slab files that hold the pages.");
  v.group("memory", c.memory, "The memory that holds pages, in front of the slab files.");
  v.list("namespaces", c.namespaces, max_namespaces,
         "What the node stores. Pages of two namespaces never mix: each has an identity and slab files of its own.");
  v.group("registry", c.registry, "The index of keys: leases, reservations, eviction.");
  v.group("io", c.io, "Reads and writes of slab files.");
  v.group("transfer", c.transfer, "Save and load tasks of a client.");
  v.group("attach", c.attach, "How a client reconnects to its node.");
  v.group("remote", c.remote, "How pages are transferred between a node and clients on other hosts.");
  v.group("cluster", c.cluster, "Other nodes, whose pages are found and fetched.");
  v.group("caf", c.caf, "Settings of the underlying actor system.");
}

} // namespace troupe::config
