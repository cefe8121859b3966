#pragma once

#include "base/geometry_bounds.hpp"
#include "base/layouts.hpp"
#include "config/kinds.hpp"
#include "config/node_config.hpp"

#include <array>
#include <limits>
#include <string_view>

/// The one description of the config: which keys there are, where they stand, of which kind and within which bounds
/// they are, and what they mean. Reading, writing, overrides and the tables of docs/configuration.md all follow from
/// it, each as a visitor with these members:
///
///     void field(key, value, kind, meaning)       a value that has a default
///     void required(key, value, kind, meaning)    a value that must be there
///     void group(key, config, meaning)            an object; describes `config` in turn
///     void list(key, items, limit, meaning)       a list of objects, `limit` at most
///
/// A new key is a member in node_config.hpp, a line here and a row in the documentation; a rule that ties it to other
/// keys goes to rules.cpp.

namespace troupe::config {

inline constexpr std::array<std::string_view, 6> log_levels{"trace", "debug", "info", "warn", "error", "off"};
inline constexpr std::array<std::string_view, 2> log_formats{"text", "json"};
inline constexpr std::array<std::string_view, 5> engines{"auto", "io_uring", "threads", "usrbio", "usrbio_or_uring"};
inline constexpr std::array<std::string_view, 4> huge_page_choices{"auto", "2 MiB", "1 GiB", "off"};
inline constexpr std::array<std::string_view, 2> numa_choices{"off", "spread"};
inline constexpr std::array<std::string_view, 3> write_backs{"eager", "on_eviction", "never"};
inline constexpr std::array<std::string_view, 2> admissions{"all", "second_hit"};
inline constexpr std::array<std::string_view, 3> evictions{"lru", "s3-fifo", "reuse"};
inline constexpr std::array<std::string_view, 3> durabilities{"none", "relaxed", "strict"};
inline constexpr std::array<std::string_view, 2> remote_transports{"tcp", "ucx"};
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

/// Times that bound one request: long enough for a slow disk, short enough to be noticed.
inline constexpr time_span request_time{1 * millisecond, 10 * minute};

/// Times that bound what a client may take: from what tests need to a day.
inline constexpr time_span http_time{1 * millisecond, 24 * hour};

template <class Visitor>
void describe(Visitor& v, actors_tls_config& c) {
  v.field("certificate", c.certificate, any_path, "PEM file with this process's certificate and the chain behind it.");
  v.field("key", c.key, any_path, "PEM file with the key of the certificate.");
  v.field("ca", c.ca, any_path,
          "PEM file with the authorities of both sides: use private ones, names are not looked at.");
}

template <class Visitor>
void describe(Visitor& v, actors_config& c) {
  v.field("socket", c.socket, free_text,
          "Unix socket by which clients of this host attach, for this user and root; below `data_dir` unless absolute. "
          "\"off\": none. Where there are neither `namespaces` nor `make_namespaces`, none is opened.");
  v.field("host", c.host, host_name, "Address that `port` listens on.");
  v.field("port", c.port, port_or_off{},
          "TCP port for clients; 0 takes a free one, see the `ready` line for which. Needs `tls` or `insecure`.");
  v.field(
      "insecure", c.insecure, flag{},
      "Confirms that whoever reaches the port may attach and read, write and evict pages, where there is no `tls`.");
  v.group("tls", c.tls, "Certificates of both sides of a TCP connection; for clients too.");
  v.field("max_connections", c.max_connections, whole{1, 65536}, "Connections open at once; more are refused.");
  v.field("handshake_time", c.handshake_time, request_time, "When a connection must have greeted; else it is closed.");
  v.field("max_message_bytes", c.max_message_bytes, size{64 * kibibyte, 1 * gibibyte},
          "One message on a connection; a longer one ends it before memory is taken for it.");
  v.field("max_requests", c.max_requests, whole{16, 1048576},
          "Requests of one attached client under way at once; more are refused.");
  v.field("make_namespaces", c.make_namespaces, flag{},
          "Whether a client may attach to a namespace that is not there, and bring it into being.");
}

template <class Visitor>
void describe(Visitor& v, http_tls_config& c) {
  v.field("certificate", c.certificate, any_path,
          "PEM file with the certificate and the chain behind it; with it, the port speaks TLS 1.2 or newer only.");
  v.field("key", c.key, any_path, "PEM file with the key of the certificate.");
  v.field("client_ca", c.client_ca, any_path,
          "PEM file with authorities: every client must show a certificate of one of them.");
}

template <class Visitor>
void describe(Visitor& v, http_limits& c) {
  v.field("header_bytes", c.header_bytes, size{1 * kibibyte, 1 * mebibyte},
          "Request line and headers of one request; more is refused.");
  v.field("body_bytes", c.body_bytes, size{1 * kibibyte, 1 * gibibyte}, "Body of one request; more is refused.");
  v.field(
      "bodies_bytes", c.bodies_bytes, size{1 * kibibyte, 1 * tebibyte},
      "Memory for all requests that are being received, beyond 8 KiB for each connection, and once more for reading "
      "large ones; more get 503.");
  v.field("connections", c.connections, whole{1, 65536},
          "Connections open at once; more can only ask for `/health`, `/ready`, `/version` and `/metrics`.");
  v.field("connections_per_address", c.connections_per_address, whole{1, 65536},
          "The same for connections from one address, or from one /64 of IPv6.");
  v.field("keys", c.keys, whole{1, 1048576}, "Keys in one request; more is refused.");
  v.field("requests_per_second", c.requests_per_second, whole{0, 1000000},
          "Requests of one caller, besides those that need no role; more get 429. 0: as many as it likes.");
  v.field("leases", c.leases, whole{1, 16384},
          "Leases that one caller may hold, in each registry shard; more get 429.");
  v.field("leased_share", c.leased_share, fraction{0, 1},
          "How much of a namespace's keys the leases of one caller may hold; more get 429.");
  v.field("readers_share", c.readers_share, fraction{0, 1},
          "The same for all callers of role `read` together; with what slot clients of that role were told.");
  v.field("readers_lease", c.readers_lease, http_time, "The longest lease of a caller of role `read`.");
  v.field("idle_time", c.idle_time, http_time, "When a connection without a request is closed.");
  v.field("receive_time", c.receive_time, http_time,
          "When a request must have arrived, from its first byte to its last; also a TLS handshake.");
  v.field("answer_time", c.answer_time, http_time, "When a request must have been answered; else the client gets 504.");
  v.field("write_time", c.write_time, http_time,
          "When a client must have taken an answer; else its connection is closed.");
}

/// Where an HTTP server listens and whom it lets in; `insecure` says what it confirms.
template <class Visitor, class Listener, class Port>
void describe_listener(Visitor& v, Listener& c, const Port& port, std::string_view about_port,
                       std::string_view insecure) {
  v.field("host", c.host, host_name,
          "Address to listen on. One that other machines can reach needs `tokens_file` or `tls.client_ca`.");
  v.field("port", c.port, port, about_port);
  v.field("threads", c.threads, whole{0, 64},
          "Threads that serve connections; 0: one for every two cores, from one to four.");
  v.field("insecure", c.insecure, flag{}, insecure);
  v.field("hosts", c.hosts, host_names,
          "Further names by which requests may call the server, where there are neither tokens nor client "
          "certificates: separated by commas.");
  v.field("tokens_file", c.tokens_file, any_path,
          "File with the bearer tokens that clients must send, a role and a token per line; not set: none are needed.");
  v.group("tls", c.tls, "Encryption, and certificates of clients.");
}

template <class Visitor>
void describe(Visitor& v, http_config& c) {
  v.field("enabled", c.enabled, flag{}, "Whether the node serves HTTP.");
  v.field("socket", c.socket, free_text,
          "Unix socket by which this user and root ask the node, and may do everything without a token; below "
          "`data_dir` unless absolute. \"off\": none.");
  describe_listener(v, c, port_or_off{},
                    "Port to listen on; 0 takes a free one. \"off\": none, and HTTP is served by `socket` alone.",
                    "Confirms that whoever reaches the port may do everything, where there are neither tokens nor "
                    "client certificates.");
  v.group("limits", c.limits, "What one client, or all of them, can ask of the server.");
}

template <class Visitor>
void describe(Visitor& v, hf3fs_config& c) {
  v.field("vllm", c.vllm, flag{}, "Whether to serve vLLM's HF3FS connector, under `/rank`, `/keys` and `/clear`.");
  v.field("sglang", c.sglang, flag{}, "Whether to serve SGLang's HF3FS backend, under `/{rank}`.");
  v.field("namespace", c.space, plain_name, "The namespace of all keys that come over vLLM's wire.");
  v.field("world_size", c.world_size, whole_or_auto{max_ranks},
          "Ranks that make a key of vLLM's complete; \"auto\": all that are registered.");
  v.field("protect_locations", c.protect_locations, time_span{1 * millisecond, 1 * hour},
          "How long a page is kept whose location a client was told, and how long a slot rests whose writer may be "
          "late.");
  v.field("reservation_deadline", c.reservation_deadline, time_span{1 * millisecond, 1 * hour},
          "How long a client has to write a page that it was given; then the page is given to others.");
  v.field(
      "max_namespaces", c.max_namespaces, whole{1, max_namespaces},
      "Namespaces that clients of each wire may bring into being, within `registry.max_namespaces`; more are refused. "
      "An engine of SGLang has up to 23, one for each pool.");
  v.field("max_pages_per_rank", c.max_pages_per_rank, whole{1, 1U << 30U},
          "Pages that a rank may register with, if `registry.memory_bytes` has room for them.");
}

template <class Visitor>
void describe(Visitor& v, lmcache_config& c) {
  v.field("enabled", c.enabled, flag{}, "Whether to serve clients of LMCache's multi-process mode, over ZeroMQ.");
  v.field("host", c.host, host_name,
          "Address to listen on: one of the loopback interface, since this wire has no authentication.");
  v.field("port", c.port, whole{0, 65535}, "Port to listen on; 0 takes a free one.");
  v.field("chunk_tokens", c.chunk_tokens, whole{1, 4096},
          "Tokens of a page: a multiple of the block size of all engines. Pages of another number are not found.");
}

template <class Visitor>
void describe(Visitor& v, handshake_http_config& c) {
  v.field("enabled", c.enabled, flag{},
          "Whether handshakes are served on a port of their own, and on no other: so they need not share one with "
          "anything public.");
  describe_listener(v, c, whole{0, 65535}, "Port to listen on; 0 takes a free one.",
                    "Confirms that whoever reaches the port may publish and fetch, where there are neither tokens nor "
                    "client certificates.");
}

template <class Visitor>
void describe(Visitor& v, handshake_config& c) {
  v.field("enabled", c.enabled, flag{},
          "Whether there is a directory: under `/v1/handshake` where HTTP is served, and for clients of the actors.");
  v.field("vllm_draft", c.vllm_draft, flag{},
          "Whether to serve the paths of vLLM's draft as well, under `/get_kv_connector_metadata`.");
  v.field("max_payload_bytes", c.max_payload_bytes, size{1 * kibibyte, 64 * mebibyte},
          "What one rank may publish; more is refused.");
  v.field("memory_bytes", c.memory_bytes, size{1 * mebibyte, 64 * gibibyte},
          "What all ranks together may publish; more is refused.");
  v.field("max_engines", c.max_engines, whole{1, 1048576}, "Engines at one time; more are refused.");
  v.field("max_ranks", c.max_ranks, whole{1, 65536}, "Ranks of one engine; more are refused.");
  v.field("max_waiting", c.max_waiting, whole{1, 1048576},
          "Fetches that wait at one time; more are refused. Each takes a connection or a request, and no thread.");
  v.field("max_watches", c.max_watches, whole{1, 65536}, "Watches at one time; more are refused.");
  v.field("max_wait", c.max_wait, time_span{1 * millisecond, 1 * hour},
          "How long a fetch may wait; more is cut to it.");
  v.field("ttl_default", c.ttl_default, time_span{1 * millisecond, 24 * hour},
          "How long an engine lives without a sign of it that does not say.");
  v.field("ttl_max", c.ttl_max, time_span{1 * millisecond, 24 * hour}, "The longest such time; more is cut to it.");
  v.field(
      "remember", c.remember, time_span{1 * millisecond, 24 * hour},
      "How long it is known which incarnation an engine had that is gone, so that what it sent before does not bring "
      "it back.");
  v.field("watch_patience", c.watch_patience, time_span{1 * millisecond, 1 * hour},
          "How long a watcher may take to see an update; one that takes longer is told nothing any more.");
  v.field("update_bytes", c.update_bytes, size{1 * kibibyte, 64 * mebibyte},
          "Payloads of one update for a watcher, all but the last engine's; the rest follows in the next one.");
  v.group("http", c.http, "A port for handshakes alone. Its limits are those of `http.limits`.");
}

template <class Visitor>
void describe(Visitor& v, rank_storage& c) {
  v.required(
      "slab_bytes", c.slab_bytes, size{0, 64 * tebibyte},
      "Size of the slab file of each namespace on this rank, allocated at the first start; 0: none, pages are in "
      "memory only.");
  v.field("directory", c.directory, path_below,
          "Where the slab files of this rank lie, below `data_dir`: a mount point of the disk meant for them.");
  v.field("numa_node", c.numa_node, whole{0, 1023},
          "Whose memory this rank gets first, with `memory.numa` \"spread\": the NUMA node that its GPU is near to.");
}

template <class Visitor>
void describe(Visitor& v, storage_config& c) {
  v.list("ranks", c.ranks, max_ranks, "One entry per rank, rank 0 first.");
  v.field(
      "disk_bytes", c.disk_bytes, size{0, 1024 * tebibyte},
      "Disk space for the slab files of all namespaces that clients make, which grow as they need it; 0: none, their "
      "pages are in memory only.");
  v.field("spare_bytes", c.spare_bytes, size{0, 1024 * tebibyte},
          "What the slab files of these namespaces leave of their disk when they grow: for the index, which cannot be "
          "written on a full disk, and for others.");
  v.field("low_watermark", c.low_watermark, fraction{0, 0.5},
          "Eviction starts when less than this fraction of a rank's slots is free.");
  v.field("high_watermark", c.high_watermark, fraction{0, 0.5},
          "Eviction goes on until this fraction of a rank's slots is free.");
  v.field("direct", c.direct, flag{},
          "Whether slab files bypass the page cache (O_DIRECT) where the file system can do that.");
  v.field("scrub_bytes_per_second", c.scrub_bytes_per_second, size{0, 64 * gibibyte},
          "How much is read a second of all slab files together, which share it, to find pages that the disk has "
          "damaged before somebody asks for them; 0: none.");
  v.field("claim_lease", c.claim_lease, time_span{100 * millisecond, 1 * minute},
          "With `shared`, and a `data_dir` that lies in the shared directory: how long this node may write to its data "
          "directory after it has renewed its claim there, which it does four times as often; another one waits three "
          "times "
          "as long before it takes that over.");
  v.field("mount_point", c.mount_point, any_path,
          "With the engine \"usrbio\": where 3FS is mounted; not set: the mount on which the slab files lie.");
  v.field("usrbio_library", c.usrbio_library, some_text,
          "With the engine \"usrbio\": 3FS's client library, a path or a name that the loader finds.");
  v.field("usrbio_quarantine", c.usrbio_quarantine, time_span{1 * millisecond, 1 * hour},
          "With the engine \"usrbio\": how long memory of what was under way is left alone after 3FS's daemon has "
          "died.");
  v.field("shared", c.shared, flag{},
          "The slab files of all nodes of the cluster lie on one file system, and nodes read each other's pages there "
          "instead of sending them; each writes only its own.");
  v.field("shared_directory", c.shared_directory, any_path,
          "With `shared`: the directory in which the slab files of all nodes lie, each node's in one of its own, as "
          "this host sees it; not set: the directory above `data_dir`.");
}

template <class Visitor>
void describe(Visitor& v, memory_config& c) {
  v.field("bytes", c.bytes, size{4 * mebibyte, 64 * tebibyte},
          "Shared memory for the pages of all ranks. The host gives it piece by piece, as it is used.");
  v.field("huge_pages", c.huge_pages, choice{huge_page_choices},
          "\"auto\" takes huge pages of 2 MiB where the host has enough to spare and gives them to this process, else "
          "ordinary ones; a size takes such pages or fails.");
  v.field(
      "numa", c.numa, choice{numa_choices},
      "\"spread\" lays the arena on all NUMA nodes in turn, so that ranks can have memory of their own one; \"off\" "
      "leaves it to the kernel.");
  v.field("client_bytes", c.client_bytes, size{64 * kibibyte, tebibyte},
          "Of that, what one client may use at once, per rank.");
  v.field("write_back", c.write_back, choice{write_backs},
          "When pages are written to their slab: at once, behind the save; when their memory is needed; not at all.");
  v.field("admission", c.admission, choice{admissions},
          "Which pages are written to their slab: all that are saved; those that somebody asks for again.");
  v.field("eviction", c.eviction, choice{evictions},
          "Which pages leave memory first that are in their slab: those used least recently; those that only passed "
          "through; those least likely to be used soon, as learned from the traffic.");
  v.field("prefetch_bytes", c.prefetch_bytes, size{0, tebibyte},
          "Pages of a rank that may be read from its slab because a lookup has found them, before anybody loads them; "
          "0: none are.");
}

template <class Visitor>
void describe(Visitor& v, kv_layer_group& c) {
  v.required("layers", c.layers, whole_within(geometry_bounds::layers), "Layers of this shape on one rank.");
  v.field("parts", c.shape.parts, whole_within(geometry_bounds::parts), "2 where K and V are separate, 1 for MLA.");
  v.required("heads", c.shape.heads, whole_within(geometry_bounds::heads), "KV heads on one rank.");
  v.required("head_size", c.shape.head_size, whole_within(geometry_bounds::head_size), "Elements of one head.");
  v.field("element_bytes", c.shape.element_bytes, whole_within(geometry_bounds::element_bytes),
          "1, 2 or 4, whatever `dtype` says: that is the type of the first layers.");
}

template <class Visitor>
void describe(Visitor& v, kv_geometry& c) {
  v.required("layers", c.layers, whole_within(geometry_bounds::layers),
             "Layers of the model on one rank; where shapes differ, the first ones.");
  v.field("parts", c.parts, whole_within(geometry_bounds::parts), "2 where K and V are separate, 1 for MLA.");
  v.required("heads", c.heads, whole_within(geometry_bounds::heads), "KV heads on one rank.");
  v.required("head_size", c.head_size, whole_within(geometry_bounds::head_size), "Elements of one head.");
  v.field("element_bytes", c.element_bytes, whole_within(geometry_bounds::element_bytes),
          "Bytes of one element, as `dtype` has it.");
  v.required("block_tokens", c.block_tokens, whole_within(geometry_bounds::block_tokens),
             "Tokens of one block, in all layers.");
  v.list("further_layers", c.further, geometry_bounds::further_layers,
         "Layers of other shapes that follow the first ones.");
}

template <class Visitor>
void describe(Visitor& v, namespace_spec& c) {
  v.required("name", c.name, plain_name, "How clients, logs and file names call it; unique in this node.");
  v.required("model", c.model, some_text, "The model. Part of the identity, as is everything below.");
  v.field("revision", c.revision, free_text, "The revision of the model's weights.");
  v.required("dtype", c.dtype, choice{dtypes}, "The type of the elements of the KV cache.");
  v.field("layout", c.layout, choice{layouts}, "The order of bytes inside a page.");
  v.field("salt", c.salt, free_text, "Sets pages apart that would be equal otherwise, such as those of two tenants.");
  v.field("world_size", c.world_size, whole{1, max_ranks},
          "Ranks that must hold a block before it counts as complete; needs as many `storage.ranks`.");
  v.group("kv_cache", c.geometry, "The shape of one rank's share of a block, which is a page.");
}

template <class Visitor>
void describe(Visitor& v, registry_config& c) {
  v.field("shards", c.shards, whole{1, 256},
          "Actors that share the key index; one answers tens of millions of keys a second.");
  v.field("max_namespaces", c.max_namespaces, whole{1, 4096},
          "Namespaces of the config and those that clients bring into being together; more are refused.");
  v.field("lease_default", c.lease_default, time_span{1 * millisecond, 24 * hour},
          "How long a lease lasts that does not say.");
  v.field("lease_max", c.lease_max, time_span{1 * millisecond, 24 * hour},
          "The longest lease that is given; more is cut to it.");
  v.field("reservation_deadline", c.reservation_deadline, time_span{1 * millisecond, 1 * hour},
          "The longest time between the reservation of a slot and its commit.");
  v.field("max_batch_keys", c.max_batch_keys, whole{1, 65536}, "Keys in one request; more is refused.");
  v.field("max_leases", c.max_leases, whole{1, 16777216}, "Leases at one time, in each shard; more are refused.");
  v.field("max_leases_per_owner", c.max_leases_per_owner, whole{1, 16777216},
          "The same for those of one client; those of HTTP callers are bounded by `http.limits.leases` as well.");
  v.field(
      "record_keys", c.record_keys, whole{0, 1073741824},
      "Keys of the last lookups that are recorded as a trace, requests.jsonl in data_dir, which has no key in it but "
      "only which are the same; 0: none.");
  v.field("max_lease_keys", c.max_lease_keys, whole{1, 1048576}, "Keys of one lease, in each shard; more are refused.");
  v.field("max_reserved_pages", c.max_reserved_pages, whole{1, 16777216},
          "Pages that are reserved at one time, in each shard; requests for more are refused.");
  v.field("max_reservations_per_owner", c.max_reservations_per_owner, whole{1, 16777216},
          "Reservations of one client at one time, in each shard; more are refused.");
  v.field("children_hold", c.children_hold, time_span{1 * millisecond, 24 * hour},
          "How long keys that name it as parent keep a key from being evicted; then it goes before them.");
  v.field("eviction", c.eviction, choice{evictions},
          "Which keys go when room is needed: those used least recently; those that only passed through; those least "
          "likely to be used soon, as learned from the traffic.");
  v.field("memory_bytes", c.memory_bytes, size{mebibyte, 64 * tebibyte},
          "Memory for the slots of all ranks, for keys, leases and reservations; what would go beyond it is refused.");
  v.field(
      "durability", c.durability, choice{durabilities},
      "What of the index survives: nothing; all but the last moments before a loss of power; all that was answered.");
  v.field("sync_interval", c.sync_interval, time_span{1 * millisecond, 1 * minute},
          "With durability \"relaxed\": how long what was answered may stay unsynced.");
  v.field("forget_absent", c.forget_absent, flag{},
          "Whether a start erases from the index what it has of namespaces that this node does not serve.");
}

template <class Visitor>
void describe(Visitor& v, io_config& c) {
  v.field("engine", c.engine, choice{engines},
          "\"auto\" takes io_uring where the kernel offers it, else threads; \"usrbio_or_uring\" takes 3FS's rings "
          "where slab files lie on 3FS, else as \"auto\"; the others take what they say or fail.");
  v.field("queue_depth", c.queue_depth, whole{1, 4096}, "Transfers under way at once per slab file.");
  v.field("threads", c.threads, whole{1, 256}, "Threads per slab file of the engine \"threads\".");
  v.field("deadline", c.deadline, request_time, "When a transfer that has not ended is cancelled.");
  v.field("max_batch_pages", c.max_batch_pages, whole{1, 4096}, "Pages in one request to a slab; more is refused.");
  v.field("max_pages_in_flight", c.max_pages_in_flight, whole{1, 65536},
          "Pages under way or waiting at once per slab file; more is refused.");
  v.field("max_clients", c.max_clients, whole{1, 4096},
          "Clients attached at once, and those that have gone and may still use memory; more are refused.");
}

template <class Visitor>
void describe(Visitor& v, transfer_config& c) {
  v.field("window_bytes", c.window_bytes, size{64 * kibibyte, tebibyte},
          "What the coordinators of a rank may have pinned at once.");
  v.field("batch_pages", c.batch_pages, whole{1, 4096}, "Pages that move together through registry, copy and disk.");
  v.field("max_tasks", c.max_tasks, whole{1, 65536},
          "Tasks that wait or run at once per coordinator; more is refused.");
  v.field("task_deadline", c.task_deadline, request_time, "When a task that does not say must have been answered.");
  v.field("remote_bytes", c.remote_bytes, size{64 * kibibyte, tebibyte},
          "Memory of a client for pages on their way, per rank, where the node is on another host.");
}

template <class Visitor>
void describe(Visitor& v, attach_config& c) {
  v.field("reconnect_backoff_min", c.reconnect_backoff_min, request_time,
          "Pause before the first attempt to reconnect; doubles with each.");
  v.field("reconnect_backoff_max", c.reconnect_backoff_max, request_time, "The longest pause between attempts.");
  v.field("request_timeout", c.request_timeout, request_time, "When a request without an answer counts as failed.");
  v.field("always_remote", c.always_remote, flag{},
          "Treats the node as one on another host, also where its memory could be mapped.");
}

template <class Visitor>
void describe(Visitor& v, remote_config& c) {
  v.field("enabled", c.enabled, flag{},
          "Of a node: whether clients that cannot map its memory, as on other hosts, exchange pages with it.");
  v.field("transport", c.transport, choice{remote_transports},
          "What carries pages: sockets of this program, or UCX, for RDMA. The same at both ends.");
  v.field("encrypt", c.encrypt, flag{},
          "For \"tcp\": pages are encrypted on their way, with a key of each attachment. A node that says so refuses "
          "clients that do not.");
  v.field("threads", c.threads, whole{1, 64}, "Of a node, for \"tcp\": threads that move pages of all clients.");
  v.field("ucx_transports", c.ucx_transports, free_text, "For \"ucx\", as UCX_TLS: \"rc,tcp,self\" for RDMA.");
  v.field("ucx_interfaces", c.ucx_interfaces, free_text,
          "For \"ucx\", as UCX_NET_DEVICES. Empty: a node takes what UCX chooses; a client takes the one by which it "
          "reaches the node.");
  v.field("window_bytes", c.window_bytes, size{64 * kibibyte, tebibyte},
          "Of a node: pages that move at once between it and one client, per rank.");
  v.field("stall_time", c.stall_time, request_time,
          "Of a node: when a client whose memory takes and gives nothing counts as lost.");
}

template <class Visitor>
void describe(Visitor& v, cluster_seed& c) {
  v.required("host", c.host, host_name, "Host of a node, of this one too.");
  v.required("port", c.port, whole{1, 65535}, "Its `actors.port`.");
}

template <class Visitor>
void describe(Visitor& v, etcd_endpoint& c) {
  v.required("host", c.host, host_name, "Host of a member of etcd.");
  v.required("port", c.port, whole{1, 65535}, "Its port for clients.");
}

template <class Visitor>
void describe(Visitor& v, etcd_tls_config& c) {
  v.field("ca", c.ca, any_path,
          "PEM file with the authorities of etcd; with it, etcd is asked over TLS 1.2 or newer only.");
  v.field("certificate", c.certificate, any_path,
          "PEM file with the certificate that this node shows to etcd, and the chain behind it; not set: none.");
  v.field("key", c.key, any_path, "PEM file with the key of the certificate, closed to other users.");
}

template <class Visitor>
void describe(Visitor& v, etcd_config& c) {
  v.list("endpoints", c.endpoints, max_etcd_endpoints, "Members of an etcd that knows which nodes there are.");
  v.field("lease", c.lease, time_span{2 * second, 10 * minute},
          "How long a node that has died stays in the list; in whole seconds.");
  v.field("prefix", c.prefix, free_text, "Of the keys of nodes; empty: `/troupe/NAME/nodes/`.");
  v.group("tls", c.tls, "Encryption, whom to believe that it is etcd, and what to show to it.");
  v.field("user", c.user, free_text, "User of etcd to log in as; empty: no login.");
  v.field("password_file", c.password_file, any_path,
          "File with that user's password on one line, closed to other users; read at each login.");
  v.field("insecure", c.insecure, flag{},
          "Confirms that the password goes over the network in the clear, where there is no `tls`.");
}

template <class Visitor>
void describe(Visitor& v, advertise_config& c) {
  v.field("host", c.host, host_name_or_none, "Host under which other nodes reach this one; empty: `actors.host`.");
  v.field("port", c.port, whole{0, 65535}, "Port under which they do; 0: `actors.port`.");
}

template <class Visitor>
void describe(Visitor& v, cluster_config& c) {
  v.field("name", c.name, free_text, "Nodes of one name share their pages; empty: this one shares with nobody.");
  v.list("seeds", c.seeds, max_seeds, "Nodes of the cluster that are there for good; this one may be among them.");
  v.group("etcd", c.etcd, "An etcd that has the list of nodes; `seeds` are added to it.");
  v.group("advertise", c.advertise, "What this node writes into that list.");
  v.field("ask_time", c.ask_time, request_time, "How long a lookup waits for other nodes to say what they have.");
  v.field("fetch_time", c.fetch_time, request_time,
          "How long a lookup waits for their pages; what comes later is found by the next one.");
  v.field("hello_interval", c.hello_interval, time_span{10 * millisecond, 1 * minute},
          "How often another node is asked how it is; one that has not answered after twice as long is away.");
  v.field("keep_copies", c.keep_copies, flag{},
          "Pages that were fetched stay, and go first at the node that they came from; `false`: they go first here.");
  v.field("memory_bytes", c.memory_bytes, size{64 * kibibyte, tebibyte},
          "Memory for pages on their way, per rank of a namespace, and once more for each other node.");
}

template <class Visitor>
void describe(Visitor& v, caf_config& c) {
  v.field("scheduler_threads", c.scheduler_threads, whole{0, 1024}, "Worker threads; 0: one per core, at least four.");
  v.field("scheduler_policy", c.scheduler_policy, choice{scheduler_policies}, "How workers find actors to run.");
  v.field("aggressive_poll_attempts", c.aggressive_poll_attempts, whole{0, 1000000},
          "How often an idle worker looks for work without a pause; 0: 8000 with eight cores or more, else 100.");
  v.field("moderate_poll_attempts", c.moderate_poll_attempts, whole{0, 1000000},
          "How often an idle worker looks for work, with short sleeps, before it waits to be woken.");
  v.field("max_throughput", c.max_throughput, whole{1, 1000000}, "Messages an actor handles before others get a turn.");
  v.field("heartbeat_interval", c.heartbeat_interval, time_span{10 * millisecond, 1 * minute},
          "How often connected nodes say something.");
  v.field("connection_timeout", c.connection_timeout, time_span{50 * millisecond, 10 * minute},
          "When a connected node that says nothing counts as dead.");
}

template <class Visitor>
void describe(Visitor& v, log_config& c) {
  v.field("format", c.format, choice{log_formats},
          "How lines of the log are written: as text, or each as a JSON object with `time`, `level`, `component` and "
          "`text`.");
}

template <class Visitor>
void describe(Visitor& v, node_config& c) {
  v.field("node_name", c.node_name, plain_name, "How logs, metrics and clients call this node.");
  v.field("data_dir", c.data_dir, any_path,
          "Everything the node writes lies under it. Relative: to the working directory of the process.");
  v.field("log_level", c.log_level, choice{log_levels}, "The least important messages that are logged.");
  v.group("log", c.log, "How the log is written.");
  v.field("drain_timeout", c.drain_timeout, time_span{0 * millisecond, 1 * hour},
          "How long a node that stops waits for what is under way before it aborts it.");
  v.field("statistics_interval", c.statistics_interval, time_span{0 * second, 24 * hour},
          "How often the node logs a line of statistics; 0 s: never.");
  v.group("actors", c.actors, "Where clients attach.");
  v.group("http", c.http, "The HTTP server, which clients on any host can reach if they are let in.");
  v.group("hf3fs", c.hf3fs, "Metadata service for engines that keep slab files of their own, over HTTP.");
  v.group("lmcache", c.lmcache, "The place of LMCache's server, for its own clients.");
  v.group("handshake", c.handshake,
          "The directory in which engines publish what their peers need in order to talk to them.");
  v.group("storage", c.storage, "The slab files that hold the pages.");
  v.group("memory", c.memory, "The memory that pages live in, in front of the slab files.");
  v.list("namespaces", c.namespaces, max_namespaces,
         "What the node stores. Pages of two namespaces never mix: each has an identity and its own slab files.");
  v.group("registry", c.registry, "The index of keys: leases, reservations, eviction.");
  v.group("io", c.io, "Reads and writes of slab files.");
  v.group("transfer", c.transfer, "Save and load tasks of a client.");
  v.group("attach", c.attach, "How a client keeps in touch with the node it attached to.");
  v.group("remote", c.remote, "How pages move between a node and clients on other hosts.");
  v.group("cluster", c.cluster, "Other nodes, whose pages are found and fetched.");
  v.group("caf", c.caf, "The actor system underneath.");
}

} // namespace troupe::config
