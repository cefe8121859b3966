#pragma once

#include "base/error.hpp"
#include "connector/stats.hpp"
#include "connector/types.hpp"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {
struct kv_cache_view;
}

namespace troupe::connector {

/// The connector inside one worker of an engine: carries out the decisions of the scheduler half, and reports results.
///
/// Order of calls in a step: `handle_preemptions`, `bind_connector_metadata`, the forward pass with
/// `wait_for_layer_load` and `save_kv_layer`, `start_load_kv`, `wait_for_save`, `get_finished`,
/// `get_block_ids_with_load_errors`, `get_kv_connector_stats`, `build_connector_worker_meta`,
/// `clear_connector_metadata`. In a step with synchronous loads, `start_load_kv` comes before the forward pass. A step
/// without a forward pass has all the other calls. With a draft model `wait_for_save` is the last call before
/// `clear_connector_metadata`. Called by one thread at a time.
class worker_half {
public:
  worker_half() = default;
  worker_half(const worker_half&) = delete;
  worker_half& operator=(const worker_half&) = delete;
  virtual ~worker_half() = default;

  /// Registers the worker's KV cache, before the first step. The memory stays the engine's, and must outlive this
  /// object or stay until `unregister_kv_caches`. Errors: identity_mismatch where its pages are not those of the
  /// namespace; unreachable, timeout. Where the node may be absent, only errors that can be detected without it are
  /// returned; see `attached`.
  virtual result<void> register_kv_caches(const kv_cache_view& cache) = 0;

  /// The same for a model with several groups of layers: one KV cache for each, in the order of the groups.
  virtual result<void> register_groups(const std::vector<kv_cache_view>& caches) = 0;

  /// Releases the memory, as before the engine sleeps: waiting transfers are cancelled, those in progress end within
  /// their deadline. Loads fail and nothing is saved from then on, until `register_kv_caches` is called again. Errors:
  /// timeout where memory is still in use; the engine must not unmap it then.
  virtual result<void> unregister_kv_caches() = 0;

  /// As `scheduler_half::attached`; unreachable also while no KV cache is registered.
  virtual result<void> attached() const = 0;

  virtual void bind_connector_metadata(connector_metadata metadata) = 0;
  virtual void clear_connector_metadata() = 0;

  /// Returns when blocks of requests that are preempted in this step may be overwritten. Saves that had not been copied
  /// out of them completely are cancelled, and never published, even where a copy is still reading. Waits for no copy
  /// and no disk. `metadata` is the step's, which need not be bound yet; nothing of it is kept.
  virtual void handle_preemptions(const connector_metadata& metadata) = 0;

  /// Begins the loads of the bound metadata. Waits only for the synchronous ones among them, until their blocks are
  /// filled or `engine_options::synchronous_load_limit` has passed.
  ///
  /// `ready`, where the KV cache is on a GPU: an event (`cudaEvent_t`) recorded after all work that may still access
  /// blocks which are allocated now, such as a step in progress; no block is written before it has happened. Null: that
  /// work has been completed. The event may be recorded again for later work of the same stream, which is then waited
  /// for too, and must exist until `shutdown`.
  virtual void start_load_kv(void* ready = nullptr) = 0;

  /// Does nothing, since loads end between steps, before their requests are scheduled.
  virtual void wait_for_layer_load(std::string_view layer) = 0;

  /// Does nothing, since blocks are saved after the step.
  virtual void save_kv_layer(std::string_view layer) = 0;

  /// Begins the saves of the bound metadata; may come after `get_finished`. `ready` is an event as for `start_load_kv`,
  /// recorded after the step's work that writes these blocks; null where that has been completed. Does not wait: full
  /// blocks are not written again while their request keeps them, a request that finishes keeps them until it is named
  /// as sent, and `handle_preemptions` waits for the rest.
  virtual void wait_for_save(void* ready = nullptr) = 0;

  /// Requests whose loads have ended or, once finished, whose saves have. `finished` are the engine's ids of requests
  /// that finished before this step was scheduled; the bound metadata says which of them are waited for.
  virtual finished_requests get_finished(std::span<const std::string_view> finished) = 0;

  /// Blocks that loads of the requests just named as received, or synchronous loads, did not fill. Each is returned
  /// once.
  virtual std::vector<block_id> get_block_ids_with_load_errors() = 0;

  /// The results of stores since the last call, for the scheduler half.
  virtual std::vector<store_outcome> build_connector_worker_meta() = 0;

  /// The statistics since the last call.
  virtual connector_stats get_kv_connector_stats() = 0;

  /// Accepts no more work, waits for transfers in progress for a bounded time, then releases the cache's memory.
  /// Transfers that have not ended are abandoned and counted. Later calls of any hook do nothing.
  virtual void shutdown() = 0;
};

} // namespace troupe::connector
