#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/namespace_spec.hpp"
#include "connector/block_keys.hpp"
#include "connector/groups/page_group.hpp"
#include "connector/pages/page_pool.hpp"
#include "connector/parallel.hpp"
#include "connector/scheduler_half.hpp"
#include "connector/worker_half.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {
struct kv_cache_view;
}

namespace troupe::connector {

/// The node's address, and the resources of this process for it.
struct runtime_options {
  /// Its `data_dir`, the path of its socket, or HOST:PORT.
  std::string node{};
  /// Certificate, key and authorities, as PEM files, for a node that requires TLS over TCP: all or none.
  std::filesystem::path certificate{};
  std::filesystem::path key{};
  std::filesystem::path authorities{};
  /// Empty: the node's first namespace.
  std::string namespace_name{};
  /// The whole namespace, instead of its name: the node makes it where it has none like it, with memory and, depending
  /// on its config, disk space. A namespace with another identity under that name is refused.
  std::optional<namespace_spec> ns{};
  /// The name of this process in the node's log.
  std::string client_name = "engine";
  /// Threads for actors; 0: one per core, at least four.
  std::uint32_t threads = 0;
  /// The most bytes of the node's memory that may be pinned at once, per rank; half for loads, half for saves.
  std::uint64_t window_bytes = std::uint64_t{512} << 20U;
  /// Pages that move together through registry, copy and disk.
  std::uint32_t batch_pages = 128;
  /// How long to wait for the node at the start.
  duration attach_limit = std::chrono::seconds(30);
  /// Whether an unreachable node is no error after `attach_limit`. The halves then find, load and save nothing until
  /// they have attached by themselves; `attached` of either half returns the state. A node that does not fit is an
  /// error as soon as that is known.
  bool node_may_be_absent = false;
  duration request_timeout = std::chrono::seconds(10);
  /// As `transfer.encoding` of a config.
  std::string encoding = "auto";
};

/// Options in which both halves of one engine must agree.
struct engine_options {
  parallel_layout parallel;
  /// Tokens of a block in one worker's tensors. A page of the namespace is one or more whole blocks, which together
  /// have one key.
  std::uint32_t block_tokens = 16;
  key_source keys = key_source::rolling_chunk_hash;
  /// Whether generated tokens are saved, and not only those of prompts.
  bool save_generated = true;
  /// How long the pages found by a lookup stay leased.
  duration lease = std::chrono::seconds(30);
  /// The time after which a lookup counts as a miss.
  duration lookup_patience = std::chrono::seconds(5);
  /// The time limit of a load or save.
  duration task_deadline = std::chrono::seconds(30);
  /// Whether loads run at the beginning of the step that needs them, and the step waits for them. Then a request runs
  /// in the step of its hit, but the other requests of the step wait too. Not for engines that schedule a step before
  /// they have the output of the step before: they could not undo what they computed from a failed load.
  bool synchronous_loads = false;
  /// The time limit of a synchronous load; blocks not filled by then are computed.
  duration synchronous_load_limit = std::chrono::seconds(5);
  /// Hits of fewer tokens are computed and not loaded, because loading them would take longer.
  std::uint32_t min_load_tokens = 0;
  /// What happens to pages that are only on disk. If a hit is cut, the pages before the cut are loaded.
  disk_hits disk = disk_hits::always;
  /// The events that are kept for the engine.
  event_detail events = event_detail::changes;
};

/// The groups of layers of a model that has several: see `page_group`.
struct grouped_layout {
  std::vector<page_group> groups;
  /// Tokens of a page, the same in all groups.
  std::uint32_t page_tokens = 0;
  /// The namespace of each group. Its geometry counts blocks as tokens: `block_tokens` is the number of blocks of a
  /// page (`blocks_per_page`), so that one token's bytes are a whole block of one layer.
  std::vector<namespace_spec> namespaces;
};

/// Options of a page pool.
struct pool_options {
  /// The rank of the pages: 0 … world size - 1.
  rank_number rank = 0;
  /// Pages that move together; 0: the runtime's number.
  std::uint32_t batch_pages = 0;
  /// How long found pages stay leased.
  duration lease = std::chrono::seconds(30);
  /// Threads that copy pages, for each direction; 0: half of the cores, at least 2 and at most 8.
  std::uint32_t copy_threads = 0;
  /// Whether a block whose page cannot be read keeps its content: pages are verified before they are copied, which
  /// takes longer.
  bool keeps_unread_blocks = false;
  /// The GPU whose memory the pool is in; empty: host memory.
  std::optional<int> gpu{};
};

/// The threads and connections of connector halves. One per process is enough for any number of halves; it must outlive
/// them. Thread-safe.
class runtime {
public:
  /// Errors: invalid_argument; io_error where no more threads can be created or files opened.
  static result<std::unique_ptr<runtime>> create(const runtime_options& options);
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;
  ~runtime();

  /// Attaches to the node and makes the half for an engine's scheduler. After a loss of the node, lookups find nothing
  /// until it is back.
  ///
  /// Errors: unreachable within `attach_limit`; unknown_namespace; identity_mismatch where the namespace and the engine
  /// have different world sizes, naming both; invalid_argument where pages are not whole numbers of blocks.
  ///
  /// `ns`: replaces the namespace of the options, for callers that use several.
  result<std::unique_ptr<scheduler_half>> make_scheduler_half(const engine_options& engine,
                                                              const std::optional<namespace_spec>& ns = {});

  /// The half for worker `worker` of the engine (see `parallel_layout` for the order), with its KV cache on GPU `gpu`,
  /// or in host memory. Connects in `register_kv_caches`.
  result<std::unique_ptr<worker_half>> make_worker_half(const engine_options& engine, std::uint32_t worker,
                                                        std::optional<int> gpu = {},
                                                        const std::optional<namespace_spec>& ns = {});

  /// The halves of a model with several groups of layers, which are attached to the node once for each group. Errors
  /// also: invalid_argument where the groups are not consistent, or loads are to be synchronous.
  result<std::unique_ptr<scheduler_half>> make_grouped_scheduler_half(const engine_options& engine,
                                                                      grouped_layout layout);
  result<std::unique_ptr<worker_half>> make_grouped_worker_half(const engine_options& engine,
                                                                const grouped_layout& layout, std::uint32_t worker,
                                                                std::optional<int> gpu = {});

  /// Pages of a pool by key; `cache` is the pool, whose pages are blocks. The memory stays the caller's, and must
  /// outlive the object. Errors: as of the halves.
  result<std::unique_ptr<page_pool>> make_page_pool(const pool_options& options, const kv_cache_view& cache,
                                                    const std::optional<namespace_spec>& ns = {});

private:
  class parts;
  explicit runtime(std::unique_ptr<parts> made);
  std::unique_ptr<parts> parts_;
};

} // namespace troupe::connector
