/** \file
 * Troupe for inference engines that are not written in C++: both halves of an engine's connector, pages of host memory
 * by key, and statistics. All functions are C functions of libtroupe.so; docs/c-interface.md is a complete example.
 *
 * Common rules:
 *
 * - **Loading the library starts nothing.** Threads and sockets belong to a connection and begin with
 *   `troupe_connect`. The library may be loaded before or after `fork`, but connect after: handles of the parent
 *   return TROUPE_UNSUPPORTED in a child, and `*_destroy` does nothing there.
 * - **Structs** that the caller fills begin with `size`, which is `sizeof` of the struct in the caller's build. A
 *   shorter one (an older caller) is extended with zeroes; a longer one (a newer caller) is accepted where the members
 *   that the library does not know are zero, and is TROUPE_UNSUPPORTED otherwise. Zero is the default of every member,
 *   so that `troupe_engine e = {0}; e.size = sizeof e;` is a valid start. Structs without `size` never change.
 *   For structs that the library fills, at most `size` bytes are written.
 * - **Errors**: functions that can fail return a `troupe_code`, 0 for success, and fill the caller's `troupe_error`
 *   (which may be NULL) with the code and a sentence. It is not changed after success. Outputs are not changed after an
 *   error. The library throws no exceptions, raises no signals and makes no callbacks.
 * - **Memory** that is passed in is read during the call and not kept, except a registered KV cache or pool. Outputs
 *   (`troupe_bytes`, `troupe_ids`, arrays) belong to the handle and are valid until the same function is called again
 *   with that handle, or the handle is destroyed. NULL is allowed for arrays of length 0.
 * - **Threads**: a connection may be used by any threads at once, and so may `troupe_pages`. A scheduler half and a
 *   worker half are used by one thread at a time each; different handles at the same time. No hook of the scheduler
 *   half blocks; the other functions say where they wait.
 * - **Text** is UTF-8, ends with NUL, and has at most 4096 bytes; NULL is the empty text.
 */
#ifndef TROUPE_CAPI_TROUPE_H
#define TROUPE_CAPI_TROUPE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TROUPE_API __attribute__((visibility("default")))
#else
#define TROUPE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Raised with each new function or member. While the library's soname, libtroupe.so.1, is the same, nothing in this
 * file is removed or changes its meaning. */
#define TROUPE_INTERFACE_VERSION 8

/** The interface version of the loaded library. May be called at any time. */
TROUPE_API uint32_t troupe_interface_version(void);

/** The version of the build, as "0.9.0"; static. */
TROUPE_API const char* troupe_library_version(void);

/* ---------------------------------------------------------------------------------------------------------- errors */

/** Numbers are those of Troupe's messages, and never change. Unknown numbers may come later: treat them as failures. */
typedef enum troupe_code {
  TROUPE_OK = 0,
  TROUPE_NOT_FOUND = 1,
  TROUPE_EXISTS = 2,
  TROUPE_BUSY = 3,
  TROUPE_FULL = 4,
  TROUPE_EXPIRED = 5,
  TROUPE_NOT_OWNER = 6,
  TROUPE_STALE = 7,
  TROUPE_OUT_OF_RANGE = 8,
  TROUPE_INVALID_ARGUMENT = 9,
  TROUPE_UNKNOWN_NAMESPACE = 10,
  TROUPE_IDENTITY_MISMATCH = 11,
  TROUPE_CORRUPT = 12,
  TROUPE_IO_ERROR = 13,
  TROUPE_NO_SPACE = 14,
  TROUPE_TIMEOUT = 15,
  TROUPE_CANCELLED = 16,
  TROUPE_UNREACHABLE = 17,
  TROUPE_SHUTTING_DOWN = 18,
  TROUPE_LIMIT_EXCEEDED = 19,
  TROUPE_UNSUPPORTED = 20,
  TROUPE_SLAB_DAMAGED = 21,
  TROUPE_INTERNAL = 22,
  TROUPE_DEVICE_ERROR = 23,
  TROUPE_NO_MEMORY = 24
} troupe_code;

/** A failure: its code, and a sentence that says what to do where that is known. `text` ends with NUL, and is cut after
 * a whole character where it would be longer. */
typedef struct troupe_error {
  uint32_t size;
  int32_t code;
  char text[1016];
} troupe_error;

/** "not_found", …; "unknown" for other numbers. Static. */
TROUPE_API const char* troupe_code_name(int32_t code);

/* ------------------------------------------------------------------------------------------------------------ data */

/** Bytes that the library owns. `data` is NULL where `length` is 0. */
typedef struct troupe_bytes {
  const uint8_t* data;
  size_t length;
} troupe_bytes;

/** Ids of requests: `count` texts, each ending with NUL, one after the other, `length` bytes with all NULs. Used in
 * both directions. An id is not empty, has no NUL inside, and has at most 4096 bytes. */
typedef struct troupe_ids {
  const char* data;
  size_t length;
  size_t count;
} troupe_ids;

/** A missing block, such as one that a sliding window has dropped: in lists of a request's blocks. */
#define TROUPE_NULL_BLOCK UINT32_MAX

/** Blocks, in the numbers of the engine. */
typedef struct troupe_blocks {
  const uint32_t* data;
  size_t count;
} troupe_blocks;

/* ------------------------------------------------------------------------------------------------------ connection */

/** Threads and sockets with which this process reaches one node. One is enough for any number of halves and pools. */
typedef struct troupe_connection troupe_connection;

typedef struct troupe_connect_options {
  uint32_t size;
  /** Threads for actors, which do not copy data; 0: four. */
  uint32_t threads;
  /** HOST:PORT, the path of the node's socket, or its `data_dir`. Required. */
  const char* address;
  /** PEM files, for a node that wants TLS: all or none. */
  const char* certificate;
  const char* key;
  const char* authorities;
  /** The name of this process in the node's log; "engine" if empty. */
  const char* client_name;
  /** The most bytes of the node's memory that may be pinned at once, per rank; half for loads, half for saves. 0: 512
   * MiB. */
  uint64_t window_bytes;
  /** How long creating a half, or registering memory, waits for a node that cannot be reached. 0: 5 seconds; negative:
   * no wait. After that the half works without a node (no hits, nothing saved, loads fail), and attaches in the
   * background, as after the loss of a node. It is an error only if the node is reachable and does not fit. */
  double wait_for_node_seconds;
  /** The timeout of a request to the node. 0: 10 seconds. */
  double request_timeout_seconds;
  /** How pages are stored: "auto" (also if empty) encodes those of GPUs, losslessly, where their bytes are BF16 and get
   * shorter; "bf16" also those in host memory; "raw" none. Loads read both. Since version 5. */
  const char* encoding;
} troupe_connect_options;

/** Starts the threads. It sends no request yet, so an unreachable node is no error. Errors: invalid_argument for an
 * invalid address or an incomplete set of TLS files; io_error where the process cannot create more threads or open more
 * files: then none are left. */
TROUPE_API int32_t troupe_connect(const troupe_connect_options* options, troupe_connection** out, troupe_error* error);

/** NULL does nothing. Halves and pools of the connection continue to work: the threads end with the last of them. */
TROUPE_API void troupe_connection_destroy(troupe_connection* connection);

/** The lowest level of log lines that this process writes to standard error: "trace", "debug", "info", "warn", "error"
 * or "off". The default is "warn", or the environment's TROUPE_LOG. */
TROUPE_API int32_t troupe_set_log_level(const char* level, troupe_error* error);

/* ------------------------------------------------------------------------------------------------------- namespace */

/** Shape of one rank's share of one page: of all layers, for `page_tokens` tokens. Bytes of a page: layers × parts ×
 * heads × head_size × element_bytes × page_tokens.
 *
 * Where K and V of a token are contiguous (logical [blocks, heads, tokens, 2 × head size], as vLLM registers), use
 * `parts` 1 and twice the head size: that is one piece of memory. MLA: parts 1, heads 1.
 *
 * Opaque blocks have a content that only the engine knows (as vLLM's CPU backend, which packs K by instruction set):
 * set `opaque_block_bytes`, the bytes of one block of one layer, and leave parts, heads, head_size and element_bytes 0.
 * The bytes must be a multiple of the engine's `block_tokens`. */
typedef struct troupe_geometry {
  uint32_t size;
  uint32_t layers;
  uint32_t parts;
  uint32_t heads;
  uint32_t head_size;
  uint32_t element_bytes;
  /** Tokens of a page, a multiple of the engine's block; exactly one block where these are opaque and have more than
   * one token. 0: one block. */
  uint32_t page_tokens;
  uint32_t reserved;
  uint64_t opaque_block_bytes;
} troupe_geometry;

/** Everything that must be equal for two engines to share pages. The node makes the namespace when the first half or
 * pool with it attaches. A namespace with another identity under the same name is refused. */
typedef struct troupe_namespace {
  uint32_t size;
  /** The number of different pages of each key. 0: from `troupe_engine`; for pools 1. */
  uint32_t world_size;
  /** The name for display and logs. Empty: "engine-" and 16 digits of the identity, so that engines that fit share a
   * namespace, and others cannot collide. */
  const char* name;
  const char* model;
  const char* revision;
  const char* dtype;
  /** The order of bytes inside a block, where the other members do not imply it: "LBHNC", "cpu-avx512", … With context
   * parallelism it has to include, here or in `hash_algorithm`, among how many workers tokens alternate and how many
   * tokens at a time, because no other member does. */
  const char* layout;
  /** The algorithm of the engine's block hashes: "sha256_cbor", … */
  const char* hash_algorithm;
  const char* salt;
  /** Required. */
  const troupe_geometry* geometry;
} troupe_namespace;

/* -------------------------------------------------------------------------------------------------- engine options */

enum {
  /** Keys are made from the engine's own block hashes. */
  TROUPE_KEYS_ENGINE_HASHES = 0,
  /** As in vLLM's HF3FS connector: MD5 chained over texts of tokens. */
  TROUPE_KEYS_MD5_CHAIN = 1,
  /** SHA-256 chained over the tokens of pages. */
  TROUPE_KEYS_ROLLING = 2
};

/** What happens to the part of a hit that is only on the node's disk. A hit is cut there: the part before is loaded. */
enum {
  TROUPE_DISK_HITS_ALWAYS = 0,
  /** Loaded if that is expected to take no longer than computing it, by measurements. */
  TROUPE_DISK_HITS_WHEN_FASTER = 1,
  /** Computed. */
  TROUPE_DISK_HITS_NEVER = 2
};

/** The events that `troupe_scheduler_take_events` returns. */
enum {
  /** TROUPE_EVENT_STORED for pages that this engine has saved, TROUPE_EVENT_REMOVED for those that it could not load,
   * TROUPE_EVENT_ALL_CLEARED. With several groups, those of one group. */
  TROUPE_EVENTS_CHANGES = 0,
  TROUPE_EVENTS_NONE = 1,
  /** All TROUPE_EVENT_…, of all groups: also what lookups have found and missed, and saves that begin. */
  TROUPE_EVENTS_ALL = 2
};

/** Options in which both halves of one engine must agree. */
typedef struct troupe_engine {
  uint32_t size;
  /** 0 means 1 in these three. Workers are numbered stage by stage, inside a stage by tensor-parallel rank. */
  uint32_t tensor_parallel;
  uint32_t pipeline_parallel;
  uint32_t context_parallel;
  /** 1: all tensor-parallel workers of a stage hold the same KV (MLA); one saves, all load. */
  uint32_t kv_replicated;
  /** Tokens of a block in one worker's tensors. 0: 16. */
  uint32_t block_tokens;
  /** TROUPE_KEYS_… */
  uint32_t keys;
  /** Bytes of one of the engine's hashes, 8 to 32. 0: 32. */
  uint32_t hash_bytes;
  /** 1: only prompts are saved, and not generated tokens. */
  uint32_t prompts_only;
  /** 1: loads end inside the step that begins them: `troupe_matched.asynchronous` is 0, loaded requests are not named
   * as received, and `troupe_worker_start_load` comes before the forward pass and waits. Not for engines that schedule
   * a step before they have the output of the step before. */
  uint32_t synchronous_loads;
  /** Hits of fewer tokens count as none, because computing them is faster. */
  uint32_t min_load_tokens;
  /** TROUPE_DISK_HITS_… */
  uint32_t disk_hits;
  /** The time limit of a synchronous load; blocks not filled by then are load errors. 0: 5. */
  double synchronous_load_seconds;
  /** How long the pages found by a lookup stay leased. 0: 30. */
  double lease_seconds;
  /** The time after which a lookup counts as a miss. 0: 5. */
  double lookup_patience_seconds;
  /** The time limit of a load or save. 0: 30. */
  double task_deadline_seconds;
  /** TROUPE_EVENTS_… */
  uint32_t events;
  uint32_t reserved;
} troupe_engine;

/** The identity of a namespace as 32 hexadecimal digits and a NUL, and the name that it will have. Any two processes of
 * an engine must get the same. Sends no request. `engine` may be NULL for pools. `name` is static for the thread, until
 * its next call. For one of several groups: `troupe_group_identity`. */
TROUPE_API int32_t troupe_namespace_identity(const troupe_namespace* ns, const troupe_engine* engine, char identity[33],
                                             const char** name, troupe_error* error);

/* ---------------------------------------------------------------------------------------------- groups of layers */

/** Models whose layers need different parts of a prefix (windows, states) have a group for each kind. All groups have
 * pages of the same tokens, under the same keys, in a namespace of their own. A hit is the longest prefix for which
 * every group has what it needs. */

enum {
  /** All tokens. */
  TROUPE_GROUP_FULL = 0,
  /** The last `tokens` - 1 tokens, and `extra_tokens` before them. */
  TROUPE_GROUP_WINDOW = 1,
  /** The tokens of the chunk of `tokens` tokens that has begun. */
  TROUPE_GROUP_CHUNK = 2,
  /** The state after the last token. */
  TROUPE_GROUP_STATE = 3
};

typedef struct troupe_group {
  uint32_t size;
  /** TROUPE_GROUP_… */
  uint32_t kind;
  uint32_t tokens;
  uint32_t extra_tokens;
  /** Tokens of a block in the engine's tables of this group. States: those of a page. */
  uint32_t block_tokens;
  /** The engine's block tables whose layers are in this group, by number. A page has the blocks of the first one, then
   * those of the second one, … */
  uint32_t table_count;
  const uint32_t* tables;
  /** The group's namespace. All groups of the engine become a part of its identity; which layers are in which group
   * does not, unless `layout` says so. Two groups with the same identity are invalid_argument. Its geometry counts
   * blocks as tokens: `page_tokens` is the number of blocks of a page. Required. */
  const troupe_namespace* ns;
  /** The pipeline stage that has these layers, from 1 on; it is a part of the group's identity. What each stage has of
   * such layers is a group of its own, whose tables other stages name as well: stages may have different numbers of
   * layers, and only the workers of the stage have its pages. 0: all stages have as many of these layers, and all
   * workers of the engine have pages of the group. Either all groups of an engine are of stages, or none is. Since
   * version 6. */
  uint32_t stage;
  uint32_t reserved;
} troupe_group;

/** All groups of an engine. */
typedef struct troupe_groups {
  uint32_t size;
  /** Tokens of a page, a multiple of the block tokens of each group. */
  uint32_t page_tokens;
  const troupe_group* groups;
  size_t count;
} troupe_groups;

/** As `troupe_namespace_identity`, for the namespace of one of the groups, by its position. `engine` is required. */
TROUPE_API int32_t troupe_group_identity(const troupe_groups* groups, const troupe_engine* engine, size_t group,
                                         char identity[33], const char** name, troupe_error* error);

/* ---------------------------------------------------------------------------------------------------------- events */

/** One of the engine's KV cache groups, in the words of its own events. Since version 7. */
typedef struct troupe_described_group {
  /** `group_idx` of the events. */
  uint32_t index;
  /** Tokens of a sliding window (`kv_cache_spec_sliding_window`); 0: the events name none. */
  uint32_t window;
  /** `kv_cache_spec_kind` of the events, at most 32 small letters, digits and "_"; NULL or empty: they have none. */
  const char* kind;
} troupe_described_group;

/** What the events of the node say about pages, in the words of the engine's own events: see docs/events.md. All pages
 * of a call have the same shape. Since version 5. */
typedef struct troupe_descriptions {
  uint32_t size;
  /** Tokens of one block of the engine's events. */
  uint32_t block_tokens;
  /** Blocks of the engine's events in one page, at most 64. 0: 1. */
  uint32_t blocks_per_page;
  /** `group_idx` of the events; negative: none. Ignored where `groups` is set. */
  int32_t group_idx;
  /** Pages, at most 4096. */
  size_t count;
  /** Keys of the pages: 16 bytes each for schedulers, as in `troupe_events`; for pools as for their other calls. */
  const uint8_t* keys;
  /** The engine's hashes of the blocks, in 64 bits: `blocks_per_page` for each page. */
  const uint64_t* hashes;
  /** For each page the engine's hash of the block before its first one, and whether there is such a block. */
  const uint64_t* parents;
  const uint8_t* has_parent;
  /** `blocks_per_page` times `block_tokens` for each page. */
  const uint32_t* tokens;
  /** Name of the adapter; NULL or empty: the base model. */
  const char* lora;
  /** For each page the MessagePack of an array of `blocks_per_page` elements, in its shortest form: the extra keys of
   * each block. Those of page i end at extra_ends[i], and have at most 4096 bytes; an empty piece: the page has none.
   * `extra_ends` NULL: no page has any. */
  const uint8_t* extra;
  const uint32_t* extra_ends;
  /** The engine's groups whose blocks lie in these pages, at most 64: there is an event for each of them. NULL: there is
   * one event, with `group_idx`. Since version 7. */
  const troupe_described_group* groups;
  size_t group_count;
  /** For schedulers with several groups: the one whose pages these are, by its position in `troupe_groups`. Else 0.
   * Since version 7. */
  uint32_t scheduler_group;
  uint32_t reserved;
} troupe_descriptions;

/* -------------------------------------------------------------------------------------------------- scheduler half */

/** The connector inside the engine's scheduler: decides what to load and what to save. No hook waits. */
typedef struct troupe_scheduler troupe_scheduler;

/** Tokens that stand for an image or other input. */
typedef struct troupe_multimodal {
  uint32_t first_token;
  uint32_t tokens;
  /** Identifies the input: equal hashes mean equal KV. Not NUL-terminated. */
  const char* hash;
  size_t hash_length;
} troupe_multimodal;

/** A request as the engine's scheduler knows it. Tokens and hashes are those from `first_token` and `first_hash` on:
 * all of them each time, or only those that are new since the last call. They must be final: no drafts. With
 * TROUPE_KEYS_ENGINE_HASHES `tokens` may be NULL in spite of its count: then tokens are only counted. */
typedef struct troupe_request {
  uint32_t size;
  /** 1: tokens do not determine the KV (as with prompts given as embeddings): nothing is loaded or saved. */
  uint32_t uncacheable;
  const char* id;
  const uint32_t* tokens;
  uint32_t token_count;
  uint32_t first_token;
  /** `hash_count` times `troupe_engine.hash_bytes`; of full blocks. */
  const uint8_t* hashes;
  uint32_t hash_count;
  uint32_t first_hash;
  /** Name of the adapter; empty for the base model. */
  const char* lora;
  /** Requests with different salts share nothing. */
  const char* cache_salt;
  const troupe_multimodal* multimodal;
  size_t multimodal_count;
} troupe_request;

/** How much of a request is in the cache. */
typedef struct troupe_matched {
  uint32_t size;
  /** 0: not known yet, call again in a later step. */
  uint32_t known;
  /** Tokens beyond those that the engine has computed. */
  uint32_t tokens;
  /** 1: they are loaded between steps, and the request waits until all workers have named it as received. */
  uint32_t asynchronous;
} troupe_matched;

/** The tiers of tokens that are loaded, as far as the lookup knew. */
typedef struct troupe_hit_sources {
  uint32_t size;
  /** Memory of the node. */
  uint32_t memory;
  uint32_t disk;
  /** The tier is not known. */
  uint32_t unknown;
} troupe_hit_sources;

/** What the last lookup of a request had from other nodes of the cluster. With several groups of layers, pages of all
 * groups count, and times of groups that were waited for at once add up. */
typedef struct troupe_fetched_pages {
  uint32_t size;
  /** How often other nodes were asked. */
  uint32_t requests;
  /** The pages that were fetched, to this node's memory. */
  uint32_t pages;
  uint32_t reserved;
  /** How long that took together. */
  double seconds;
} troupe_fetched_pages;

/** A block with the state of the layers of a table after `tokens` tokens, which the step writes. Its bytes stay until
 * the block is given out again. */
typedef struct troupe_state {
  uint32_t table;
  uint32_t block;
  uint32_t tokens;
} troupe_state;

/** The engine's scheduling of a step. Of `requests.count` requests, the first `new_requests` are new, the others ran
 * before. Element i of an array belongs to request i. */
typedef struct troupe_step {
  uint32_t size;
  uint32_t new_requests;
  troupe_ids requests;
  /** Tokens whose KV exists before the step, from any source. */
  const uint32_t* computed_tokens;
  /** Tokens that the step computes. */
  const uint32_t* scheduled_tokens;
  /** 1: resumed after a preemption: its blocks replace the earlier ones. NULL: none is. */
  const uint8_t* resumed;
  /** Request i has blocks[block_ends[i - 1]] up to before blocks[block_ends[i]], with block_ends[-1] = 0. New and
   * resumed requests: all blocks. Others: those that were added in this step. `block_ends` NULL: no request has any. */
  const uint32_t* block_ends;
  troupe_blocks blocks;
  /** Tokens of request i from position token_firsts[i] on, in the same form. `token_ends` NULL: none is new. `tokens`
   * NULL as in `troupe_request`. */
  const uint32_t* token_firsts;
  const uint32_t* token_ends;
  const uint32_t* tokens;
  size_t token_count;
  /** Hashes of request i from block hash_firsts[i] on, in the same form. */
  const uint32_t* hash_firsts;
  const uint32_t* hash_ends;
  const uint8_t* hashes;
  size_t hash_count;
  /** Requests that were preempted while this step was scheduled: their blocks may belong to others already. */
  troupe_ids preempted;
  /** With groups: the number of the engine's block tables, T. Table t of request i then ends at
   * block_ends[i × T + t]. 0: one table. */
  uint32_t tables;
  uint32_t reserved;
  /** With groups: states that the step writes, in the order of the requests. Request i has those up to before
   * state_ends[i], in the same form as blocks. `state_ends` NULL: there are none. */
  const uint32_t* state_ends;
  const troupe_state* states;
  size_t state_count;
} troupe_step;

/** The reports of all workers after a step: each worker's lists, joined by the engine. */
typedef struct troupe_worker_output {
  uint32_t size;
  uint32_t reserved;
  troupe_ids sent;
  troupe_ids received;
  /** Those in `received` that at least one worker named as failed. */
  troupe_ids failed;
  /** Of all workers. */
  troupe_blocks load_errors;
  /** The results of `troupe_worker_meta`, of each worker with one: `worker_meta_count` pieces. */
  const troupe_bytes* worker_meta;
  size_t worker_meta_count;
} troupe_worker_output;

/** Pages that were added to the cache or removed; there may be thousands. After TROUPE_EVENT_ALL_CLEARED all count as
 * absent until an event says otherwise: the cache was reset, the node was lost, or more events came than are kept. */
enum {
  TROUPE_EVENT_STORED = 0,
  TROUPE_EVENT_REMOVED = 1,
  TROUPE_EVENT_ALL_CLEARED = 2,
  /** They are in the cache, on disk only. */
  TROUPE_EVENT_ON_DISK = 3,
  /** They are being saved, and are not in the cache yet. Each of them is stored or not saved later, by an event with
   * the same number in `saves`, maybe after its request has ended; or neither, after TROUPE_EVENT_ALL_CLEARED. */
  TROUPE_EVENT_SAVING = 4,
  /** They were not saved. */
  TROUPE_EVENT_NOT_SAVED = 5
};

typedef struct troupe_events {
  uint32_t size;
  /** Tokens of one key. */
  uint32_t page_tokens;
  size_t count;
  /** TROUPE_EVENT_… */
  const uint8_t* kinds;
  troupe_ids requests;
  /** 16 bytes each: the key before the first of the event's; zeroes: none. */
  const uint8_t* parents;
  /** Keys of event i: from key_ends[i - 1] up to before key_ends[i], 16 bytes each. */
  const uint32_t* key_ends;
  const uint8_t* keys;
  size_t key_count;
  /** The first page of each event, by its position in the request, and the number of pages: as many as keys, but an
   * event of a request that has ended may have none. */
  const uint32_t* first_pages;
  const uint32_t* page_counts;
  /** With several groups: which one. */
  const uint32_t* groups;
  /** Which save, unique for this scheduler; 0: none. */
  const uint64_t* saves;
} troupe_events;

/** Waits for the node for `wait_for_node_seconds`. Errors: identity_mismatch and others where the node is reachable and
 * something does not fit; io_error where the process cannot create more threads. */
TROUPE_API int32_t troupe_scheduler_create(troupe_connection* connection, const troupe_namespace* ns,
                                           const troupe_engine* engine, troupe_scheduler** out, troupe_error* error);

/** The same for a model with several groups. Differences to one group: `troupe_scheduler_allocated_tables` in place of
 * `troupe_scheduler_allocated`; `troupe_scheduler_take_holds`; blocks of a finished request are kept for a load only;
 * failed loads are named in `troupe_finished.failed`, never block by block; the engine looks such a request up again,
 * from its start. `engine->block_tokens` is not used, and synchronous loads are invalid_argument. With
 * TROUPE_KEYS_ENGINE_HASHES there is one hash for each page: that of its last block. */
TROUPE_API int32_t troupe_scheduler_create_groups(troupe_connection* connection, const troupe_groups* groups,
                                                  const troupe_engine* engine, troupe_scheduler** out,
                                                  troupe_error* error);

/** Releases everything. NULL does nothing. */
TROUPE_API void troupe_scheduler_destroy(troupe_scheduler* scheduler);

/** The same, but the handle stays valid: every later call is TROUPE_SHUTTING_DOWN. */
TROUPE_API int32_t troupe_scheduler_shutdown(troupe_scheduler* scheduler, troupe_error* error);

/** 0 once a fitting node has been found; otherwise the reason: unreachable, timeout or shutting_down while the node is
 * looked for, or has no room for one more client; another code for a permanent failure. A node that was attached once
 * counts as found. Until then the library keeps no state of requests. */
TROUPE_API int32_t troupe_scheduler_attached(troupe_scheduler* scheduler, troupe_error* error);

/** Announces a request, so that its lookup begins. Optional. */
TROUPE_API int32_t troupe_scheduler_on_new_request(troupe_scheduler* scheduler, const troupe_request* request,
                                                   troupe_error* error);

/** How many tokens beyond `computed_tokens` (in the engine's own prefix cache) can be loaded. May be called any number
 * of times. */
TROUPE_API int32_t troupe_scheduler_matched(troupe_scheduler* scheduler, const troupe_request* request,
                                            uint32_t computed_tokens, troupe_matched* out, troupe_error* error);

/** The engine has allocated blocks: `blocks` are all of the request's, `external_tokens` is the number of tokens to be
 * loaded: the result of `troupe_scheduler_matched`, or 0. May be called again with 0 when a load has ended. */
TROUPE_API int32_t troupe_scheduler_allocated(troupe_scheduler* scheduler, const char* request, const uint32_t* blocks,
                                              size_t block_count, uint32_t external_tokens, troupe_error* error);

/** The same with several block tables: table t ends at block_ends[t]. TROUPE_NULL_BLOCK stands for tokens that a table
 * does not keep, and for blocks that are complete already. */
TROUPE_API int32_t troupe_scheduler_allocated_tables(troupe_scheduler* scheduler, const char* request,
                                                     const uint32_t* blocks, size_t block_count,
                                                     const uint32_t* block_ends, size_t table_count,
                                                     uint32_t external_tokens, troupe_error* error);

/** Blocks that the engine has to keep although requests let go of them, because they are being copied, and those that
 * it need not keep any more: each once for each copy. Call it after `troupe_scheduler_build_meta`, before the engine
 * schedules anything, and after `troupe_scheduler_worker_output`. Empty with one group. */
TROUPE_API int32_t troupe_scheduler_take_holds(troupe_scheduler* scheduler, troupe_blocks* hold, troupe_blocks* release,
                                               troupe_error* error);

/** The work of the workers in this step: bytes for `troupe_worker_bind` of every worker. Once per step. */
TROUPE_API int32_t troupe_scheduler_build_meta(troupe_scheduler* scheduler, const troupe_step* step, troupe_bytes* out,
                                               troupe_error* error);

/** The request is done or aborted. `*keep_blocks` 1: the engine keeps its blocks until all workers have named it. */
TROUPE_API int32_t troupe_scheduler_finished(troupe_scheduler* scheduler, const char* request, int32_t* keep_blocks,
                                             troupe_error* error);

/** The reports of the workers, before the engine acts on them. */
TROUPE_API int32_t troupe_scheduler_worker_output(troupe_scheduler* scheduler, const troupe_worker_output* output,
                                                  troupe_error* error);

/** Events since the last call. */
TROUPE_API int32_t troupe_scheduler_take_events(troupe_scheduler* scheduler, troupe_events* out, troupe_error* error);

/** *wanted: 1 where the attached node publishes events, so that descriptions are useful. With several
 * groups since version 7. Since version 5. */
TROUPE_API int32_t troupe_scheduler_wants_descriptions(troupe_scheduler* scheduler, uint32_t* wanted,
                                                       troupe_error* error);

/** Describes pages that were stored or found. Never waits; a hint: ignored where it is not wanted, for pages that are
 * not in the cache, and if too many are in progress. May be repeated. Since version 5. */
TROUPE_API int32_t troupe_scheduler_describe(troupe_scheduler* scheduler, const troupe_descriptions* pages,
                                             troupe_error* error);

/** Everything saved so far becomes invisible to this engine. */
TROUPE_API int32_t troupe_scheduler_reset_cache(troupe_scheduler* scheduler, troupe_error* error);

/** The number of workers that must name a request before it counts as sent or received. */
TROUPE_API int32_t troupe_scheduler_finished_count(troupe_scheduler* scheduler, uint32_t* out, troupe_error* error);

/** The number of requests with state in the connector; 0 when the engine has none. */
TROUPE_API int32_t troupe_scheduler_tracked_requests(troupe_scheduler* scheduler, size_t* out, troupe_error* error);

/** The tiers of `tokens` tokens of the last result for this request; after `troupe_scheduler_allocated`, before the
 * request has ended. Zeroes for an unknown request. */
TROUPE_API int32_t troupe_scheduler_hit_sources(troupe_scheduler* scheduler, const char* request, uint32_t tokens,
                                                troupe_hit_sources* out, troupe_error* error);

/** What the last lookup of this request had from other nodes; once `troupe_scheduler_matched` has had its answer, before
 * the request has ended. Zeroes for an unknown request. Since version 8. */
TROUPE_API int32_t troupe_scheduler_fetched_pages(troupe_scheduler* scheduler, const char* request,
                                                  troupe_fetched_pages* out, troupe_error* error);

/** JSON object of numbers: "attached" (0 or 1), "tracked_requests", and, counted since creation, "hit_requests" and
 * "hit_tokens" (found by lookups and used by the engine) and "passed_over_tokens" (found, but computed because of
 * `troupe_engine.disk_hits`). */
TROUPE_API int32_t troupe_scheduler_stats(troupe_scheduler* scheduler, troupe_bytes* out, troupe_error* error);

/* ----------------------------------------------------------------------------------------------------- worker half */

/** The connector inside one worker of the engine: carries out the decisions of the scheduler half. */
typedef struct troupe_worker troupe_worker;

/** One layer's KV cache: the content (head_size × element_bytes) of block b, part p, token t and head h is at base + b
 * × block_stride + p × part_stride + t × token_stride + h × head_stride. Strides are bytes. Opaque blocks: only
 * `block_stride` is used, and each block is contiguous. The library accesses at most `bytes` bytes from `base` on. */
typedef struct troupe_layer {
  void* base;
  uint64_t bytes;
  uint64_t block_stride;
  uint64_t part_stride;
  uint64_t token_stride;
  uint64_t head_stride;
} troupe_layer;

/** The result of `troupe_worker_get_finished`. */
typedef struct troupe_finished {
  uint32_t size;
  uint32_t reserved;
  /** Finished requests whose blocks may be freed. */
  troupe_ids sent;
  /** Requests whose load has ended, successfully or not. */
  troupe_ids received;
  /** Those of `received` of which at least one block could not be loaded. */
  troupe_ids failed;
} troupe_finished;

/** Worker `worker` of the engine, with its KV cache on GPU `gpu` (CUDA's number in this process), or in host memory if
 * negative. Sends no request yet. */
TROUPE_API int32_t troupe_worker_create(troupe_connection* connection, const troupe_namespace* ns,
                                        const troupe_engine* engine, uint32_t worker, int32_t gpu, troupe_worker** out,
                                        troupe_error* error);

/** The same for a model with several groups. `troupe_worker_register` then takes the layers of all groups, one group
 * after the other, and `troupe_worker_load_errors` is always empty. Groups of pipeline stages: those of the worker's
 * stage alone. */
TROUPE_API int32_t troupe_worker_create_groups(troupe_connection* connection, const troupe_groups* groups,
                                               const troupe_engine* engine, uint32_t worker, int32_t gpu,
                                               troupe_worker** out, troupe_error* error);

/** Calls `troupe_worker_shutdown`, and frees the handle. NULL does nothing. */
TROUPE_API void troupe_worker_destroy(troupe_worker* worker);

/** Registers the worker's KV cache: one element per layer, in the order of the model's layers; blocks are numbered from
 * 0. The memory stays the engine's and must outlive its registration. Waits for the node for `wait_for_node_seconds`.
 * Errors: identity_mismatch and invalid_argument where something does not fit; device_error where the GPU cannot be
 * used; exists where there is a registration; io_error where the process cannot create more threads. */
TROUPE_API int32_t troupe_worker_register(troupe_worker* worker, const troupe_layer* layers, size_t layer_count,
                                          uint32_t blocks, troupe_error* error);

/** As `troupe_worker_shutdown`, but the worker may register again: for engines that sleep. Loads in progress count as
 * failed. */
TROUPE_API int32_t troupe_worker_unregister(troupe_worker* worker, troupe_error* error);

/** As `troupe_scheduler_attached`. */
TROUPE_API int32_t troupe_worker_attached(troupe_worker* worker, troupe_error* error);

/** Returns when blocks of preempted requests may be overwritten. Once per step before blocks are written, before or
 * after `troupe_worker_bind` with the same bytes. Waits for no copy and no disk. */
TROUPE_API int32_t troupe_worker_handle_preemptions(troupe_worker* worker, const uint8_t* meta, size_t length,
                                                    troupe_error* error);

/** The bytes of `troupe_scheduler_build_meta` for this step. corrupt where they are not valid; nothing is bound then.
 * */
TROUPE_API int32_t troupe_worker_bind(troupe_worker* worker, const uint8_t* meta, size_t length, troupe_error* error);

/** Call this at the end of the step. */
TROUPE_API int32_t troupe_worker_clear(troupe_worker* worker, troupe_error* error);

/** Begins the loads of the bound metadata. Waits only for synchronous ones: until their blocks are filled or
 * `synchronous_load_seconds` have passed. `event`: a cudaEvent_t recorded after all work that may still access blocks
 * which are allocated now; NULL where that work has been completed. It must exist until shutdown. */
TROUPE_API int32_t troupe_worker_start_load(troupe_worker* worker, void* event, troupe_error* error);

/** Begins the saves of the bound metadata, and does not wait. `event`: recorded after the step's work that writes these
 * blocks; NULL where it has been completed. Call it in every step, before or after the reports below. */
TROUPE_API int32_t troupe_worker_save(troupe_worker* worker, void* event, troupe_error* error);

/** Requests whose loads have ended or, once finished, whose saves have. `finished` (may be NULL) are the ids of
 * requests that have finished. */
TROUPE_API int32_t troupe_worker_get_finished(troupe_worker* worker, const troupe_ids* finished, troupe_finished* out,
                                              troupe_error* error);

/** Blocks that loads of the requests named so far did not fill. Each is returned once. */
TROUPE_API int32_t troupe_worker_load_errors(troupe_worker* worker, troupe_blocks* out, troupe_error* error);

/** For `troupe_worker_output.worker_meta`; length 0 where there is nothing to report. */
TROUPE_API int32_t troupe_worker_meta(troupe_worker* worker, troupe_bytes* out, troupe_error* error);

/** The worker's statistics since the last call, as a JSON object with the members of `troupe_metric_descriptions`;
 * length 0 where no transfer has ended. */
TROUPE_API int32_t troupe_worker_stats(troupe_worker* worker, troupe_bytes* out, troupe_error* error);

/** Accepts no more work, waits for transfers in progress for a bounded time, and releases the cache's memory. Every
 * later call except destroying is TROUPE_SHUTTING_DOWN. */
TROUPE_API int32_t troupe_worker_shutdown(troupe_worker* worker, troupe_error* error);

/* -------------------------------------------------------------------------------------------------- pages of a pool */

/** Pages by key, for an engine that has a pool of them and requests pages itself. Any number of threads at once. */
typedef struct troupe_pages troupe_pages;

typedef struct troupe_pages_options {
  uint32_t size;
  /** The rank of the pages: 0 … world_size - 1. */
  uint32_t rank;
  /** Bytes of each key, 8 to 64. Keys of 16 bytes are used unchanged, and must not be all zeroes; others are hashed
   * together with the namespace's identity. 0: 16. */
  uint32_t key_bytes;
  /** Pages per request to the node; 0: 128. */
  uint32_t batch_pages;
  /** How long found pages stay leased, and the time limit of a transfer. 0: 30. */
  double lease_seconds;
  /** Threads that copy pages, for gets and again for puts, of each pool. 0: half of the cores, at least 2 and at
   * most 8. For callers built before version 4, whose struct ends here: one, and blocks that are not read keep their
   * content. */
  uint32_t copy_threads;
  /** Where the pool is: 0 in host memory; n in the memory of NVIDIA GPU n - 1, whose pages then move as those of a
   * worker do. Their copies wait for no stream: call when what writes or reads the blocks has ended. Since version 8.
   */
  uint32_t device;
} troupe_pages_options;

/** The pool that pages are read from and written to. `layers` as for a worker: a page is one block of it, and
 * `page_tokens` of the geometry (0: 1) are its tokens. A pool in which each page is contiguous is one opaque layer,
 * with the bytes of a page as `opaque_block_bytes`. Errors as of `troupe_worker_register`. Waits for the node for
 * `wait_for_node_seconds`; without a node, nothing is found or saved until it is reachable. */
TROUPE_API int32_t troupe_pages_create(troupe_connection* connection, const troupe_namespace* ns,
                                       const troupe_pages_options* options, const troupe_layer* layers,
                                       size_t layer_count, uint32_t blocks, troupe_pages** out, troupe_error* error);

/** Waits until the pool's memory is not accessed any more. NULL does nothing. No other thread may be inside a call. */
TROUPE_API void troupe_pages_destroy(troupe_pages* pages);

/** As `troupe_scheduler_attached`. */
TROUPE_API int32_t troupe_pages_attached(troupe_pages* pages, troupe_error* error);

/** The number of leading keys that are complete, with the pages of all ranks. Waits for at most `limit_seconds`. An
 * unreachable node means 0 keys and is no error. */
TROUPE_API int32_t troupe_pages_exist(troupe_pages* pages, const uint8_t* keys, size_t count, double limit_seconds,
                                      size_t* found, troupe_error* error);

/** For each key whether it is complete, also behind missing ones: found[i] is 1 or 0. Waits and leases as
 * `troupe_pages_exist`, but looks at this node only, and does not count as a use of what it finds. Since version 8. */
TROUPE_API int32_t troupe_pages_exist_each(troupe_pages* pages, const uint8_t* keys, size_t count, double limit_seconds,
                                           uint8_t* found, troupe_error* error);

/** Reads the page of key i into block blocks[i] of the pool. `results[i]` (count elements, or NULL) is a troupe_code;
 * *done is the number of pages that were read. A block whose result is not TROUPE_OK may have any content. Reads that
 * have not ended at the limit are cancelled: their result is timeout, and their blocks are not written after the
 * return. The call itself fails only for invalid arguments, which a block that is named twice is too. */
TROUPE_API int32_t troupe_pages_get(troupe_pages* pages, const uint8_t* keys, const uint32_t* blocks, size_t count,
                                    double limit_seconds, int32_t* results, size_t* done, troupe_error* error);

/** Saves block blocks[i] of the pool as the page of key i, in the same way. A page that existed already counts as done,
 * and its result is TROUPE_OK. */
TROUPE_API int32_t troupe_pages_put(troupe_pages* pages, const uint8_t* keys, const uint32_t* blocks, size_t count,
                                    double limit_seconds, int32_t* results, size_t* done, troupe_error* error);

/** As `troupe_scheduler_wants_descriptions` and `troupe_scheduler_describe`. Since version 5. */
TROUPE_API int32_t troupe_pages_wants_descriptions(troupe_pages* pages, uint32_t* wanted, troupe_error* error);
TROUPE_API int32_t troupe_pages_describe(troupe_pages* pages, const troupe_descriptions* descriptions,
                                         troupe_error* error);

/** As `troupe_worker_stats`. */
TROUPE_API int32_t troupe_pages_stats(troupe_pages* pages, troupe_bytes* out, troupe_error* error);

/** As `troupe_scheduler_shutdown`. */
TROUPE_API int32_t troupe_pages_shutdown(troupe_pages* pages, troupe_error* error);

/* ------------------------------------------------------------------------------------------------------ statistics */

/* These need no handle. Their outputs are static for the thread, until it calls the same function again. */

/** JSON array of objects: "name" of the Prometheus metric, "kind" ("histogram", "counter", "gauge"), "help", "buckets"
 * (of histograms), "member" of the statistics. */
TROUPE_API int32_t troupe_metric_descriptions(troupe_bytes* out, troupe_error* error);

/** Joins statistics of several workers, or of several steps: JSON texts of `troupe_worker_stats`. */
TROUPE_API int32_t troupe_stats_aggregate(const troupe_bytes* stats, size_t count, troupe_bytes* out,
                                          troupe_error* error);

/** Statistics for the log of an engine: a JSON object of numbers under display names, always the same in the same
 * order. */
TROUPE_API int32_t troupe_stats_reduce(const uint8_t* stats, size_t length, troupe_bytes* out, troupe_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
