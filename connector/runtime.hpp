#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/namespace_spec.hpp"
#include "connector/block_keys.hpp"
#include "connector/pages/page_pool.hpp"
#include "connector/parallel.hpp"
#include "connector/scheduler_half.hpp"
#include "connector/worker_half.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace troupe {
struct kv_cache_view;
}

namespace troupe::connector {

/// Where the node is, and what this process gives it.
struct runtime_options {
  /// Its `data_dir`, the path of its socket, or HOST:PORT.
  std::string node{};
  /// Certificate, key and authorities, as PEM files, for a node that wants them over TCP: all or none.
  std::filesystem::path certificate{};
  std::filesystem::path key{};
  std::filesystem::path authorities{};
  /// The node's first, if empty.
  std::string space_name{};
  /// The namespace as a whole, in the place of its name: the node makes it where it has none like it, with memory and,
  /// as far as its config says, disk space. One of another identity under that name is refused.
  std::optional<namespace_spec> space{};
  /// How the node's log calls this process.
  std::string client_name = "engine";
  /// Of actors; 0: one per core, at least four.
  std::uint32_t threads = 0;
  /// What may be pinned of the node's memory at once, per rank; half for loads, half for saves.
  std::uint64_t window_bytes = std::uint64_t{512} << 20U;
  /// Pages that move together through registry, copy and disk.
  std::uint32_t batch_pages = 128;
  /// How long to wait for the node at the start.
  duration attach_limit = std::chrono::seconds(30);
  /// A node that is not there within `attach_limit` is no error: halves find nothing, load nothing and save nothing
  /// until it is there, and attach by themselves then; `attached` of either half says how it stands. What does not fit
  /// is an error as soon as it can be known.
  bool node_may_be_absent = false;
  duration request_timeout = std::chrono::seconds(10);
};

/// What both halves of one engine must agree on.
struct engine_options {
  parallel_layout parallel;
  /// Tokens of a block, as one worker's tensors hold them. A page of the namespace is a whole number of blocks,
  /// which together have one key.
  std::uint32_t block_tokens = 16;
  key_source keys = key_source::rolling_chunk_hash;
  /// Whether tokens that the model has generated are saved, and not only those of prompts.
  bool save_generated = true;
  /// How long what a lookup has found must stay there.
  duration lease = std::chrono::seconds(30);
  /// A lookup that takes longer counts as a miss.
  duration lookup_patience = std::chrono::seconds(5);
  /// When a load or save must have ended.
  duration task_deadline = std::chrono::seconds(30);
  /// Loads are done at the beginning of the step that needs them, and the step waits: no step is lost between hit and
  /// run, but the others of the step wait too. Not for engines that schedule a step before the output of the one before
  /// is there: they could not take back what they computed of a load that failed.
  bool synchronous_loads = false;
  /// When a synchronous load must have ended; what it has not filled then is computed.
  duration synchronous_load_limit = std::chrono::seconds(5);
  /// Fewer tokens are computed and not loaded, because loading them would take longer.
  std::uint32_t min_load_tokens = 0;
  /// What is found on disk only. Of a hit that is cut, the pages up to the cut are loaded.
  disk_hits disk = disk_hits::always;
};

/// What a pool of pages is to its node.
struct pool_options {
  /// Whose pages these are: 0 … world size - 1.
  rank_number rank = 0;
  /// Pages that move together; 0: as the runtime's.
  std::uint32_t batch_pages = 0;
  /// How long what was found must stay there.
  duration lease = std::chrono::seconds(30);
};

/// Threads and connections behind connector halves. One per process is enough for any number of halves; it must outlive
/// them. Thread-safe.
class runtime {
public:
  /// Errors: invalid_argument; io_error where no more threads may be made or files opened.
  static result<std::unique_ptr<runtime>> create(const runtime_options& options);
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;
  ~runtime();

  /// Attaches to the node and makes the half for an engine's scheduler. When the node is lost later, lookups find
  /// nothing until it is back.
  ///
  /// Errors: unreachable within `attach_limit`; unknown_namespace; identity_mismatch where the namespace has another
  /// world size than the engine, naming both; invalid_argument where pages are no whole number of blocks.
  ///
  /// `space`: in the place of the namespace of the options, as there, for who works with several.
  result<std::unique_ptr<scheduler_half>> make_scheduler_half(const engine_options& engine,
                                                              const std::optional<namespace_spec>& space = {});

  /// The half for worker `worker` of the engine (see `parallel_layout` for the order), with its KV cache on GPU `gpu`,
  /// or in host memory. Connects in `register_kv_caches`.
  result<std::unique_ptr<worker_half>> make_worker_half(const engine_options& engine, std::uint32_t worker,
                                                        std::optional<int> gpu = {},
                                                        const std::optional<namespace_spec>& space = {});

  /// Pages of host memory by key; `cache` is the pool, whose pages are blocks. Memory stays the caller's, and must
  /// outlive the object. Errors: as of the halves.
  result<std::unique_ptr<page_pool>> make_page_pool(const pool_options& options, const kv_cache_view& cache,
                                                    const std::optional<namespace_spec>& space = {});

private:
  class parts;
  explicit runtime(std::unique_ptr<parts> made);
  std::unique_ptr<parts> parts_;
};

} // namespace troupe::connector
