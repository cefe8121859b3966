#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "store/handshake_records.hpp"
#include "store/records.hpp"
#include "store/write_batch.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace troupe::store {

/// When a batch is answered, which decides what a crash can lose.
enum class durability : std::uint8_t {
  /// Once it is in the log file, which survives the end of the process. The log is synced once per `sync_interval`: a
  /// power loss loses at most that much, and always the newest. Batches that require a sync, as all do that erase
  /// pages, are answered as with `strict`.
  relaxed,
  /// Once it is on the medium.
  strict,
};

/// Called exactly once per accepted batch, in the order of submission, from the store's thread (or from within
/// `commit`, where nothing has to be waited for). Must be quick and must not throw; may call only `commit` and `stats`
/// of the store.
///
/// Late where the disk is full: when there is room again, see `store_stats::no_room`. An error means that the batch may
/// not be durable: after a restart it exists entirely or not at all.
using commit_callback = std::function<void(result<void>)>;

/// Receives the records that `load` reads. An error that it returns ends the load and is the load's result.
class load_visitor {
public:
  virtual ~load_visitor() = default;

  virtual result<void> on_namespace(const namespace_record& record) = 0;
  virtual result<void> on_rank(const rank_record& record) = 0;
  /// Some pages, by namespace, key and rank. With more than one load thread it is called concurrently, and only the
  /// pages of one call are in order.
  virtual result<void> on_pages(std::span<const page_record> pages) = 0;
  /// The published engines, each followed by its ranks. Not called concurrently.
  virtual result<void> on_handshake(const handshake_engine_record& record) {
    (void)record;
    return {};
  }
  virtual result<void> on_handshake(const handshake_rank_record& record) {
    (void)record;
    return {};
  }
  /// Called now and then, never concurrently. `expected` is an estimate.
  virtual void on_progress(std::uint64_t pages_read, std::uint64_t expected) {
    (void)pages_read;
    (void)expected;
  }
};

struct load_summary {
  std::uint64_t namespaces = 0;
  std::uint64_t ranks = 0;
  std::uint64_t pages = 0;
};

/// Counters since the store was opened; sizes are bytes of encoded records.
struct store_stats {
  /// Batches that `commit` accepted, and refused.
  std::uint64_t batches = 0;
  std::uint64_t refused = 0;
  /// Batches accepted and not yet answered.
  std::uint64_t queued_batches = 0;
  std::uint64_t queued_bytes = 0;
  /// Groups written to the log. A group contains all batches that arrived while the previous one was written.
  std::uint64_t groups = 0;
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;
  std::uint64_t syncs = 0;
  duration last_sync{};
  duration longest_sync{};
  duration all_syncs{};
  /// The disk's error while accepted batches wait for room.
  std::optional<error> no_room;
  /// The reason why the store accepts nothing any more.
  std::optional<error> failure;
};

/// The durable records of the registry: a table that is read once, when a node starts, and only written from then on.
/// All functions may be called from several threads.
class metadata_store {
public:
  metadata_store() = default;
  metadata_store(const metadata_store&) = delete;
  metadata_store& operator=(const metadata_store&) = delete;
  /// Closes the store.
  virtual ~metadata_store() = default;

  virtual const node_identity& identity() const noexcept = 0;

  /// Accepts the batch, to be written after all earlier ones, and answers through `done`. Never waits for the disk. An
  /// empty batch is a barrier: it is answered when all earlier ones are.
  ///
  /// An error means that the batch was not accepted: it is unchanged, and `done` is not called.
  /// - `limit_exceeded`: too much is in progress. The caller keeps the batch, adds to it what comes meanwhile, and
  ///   commits it when its previous batch is answered. Callers with at most one batch in progress never see this error
  ///   unless they are more than the limit; their batches grow exactly when the disk is slow.
  /// - `shutting_down`: the store is closed.
  /// - others: a write failed, so nothing later may be acknowledged until the store is opened anew.
  virtual result<void> commit(write_batch&& batch, commit_callback done) = 0;

  /// Reads everything that was answered before the call. Returns when the visitor has received all, or with the first
  /// error; `corrupt` names the record. `threads` share the pages.
  virtual result<load_summary> load(load_visitor& visitor, unsigned threads = 1) = 0;

  /// Reads the descriptions that were answered before the call, some at a time, by namespace and key. An error that
  /// `take` returns ends it and is the result. Returns their number.
  virtual result<std::uint64_t>
  load_descriptions(const std::function<result<void>(std::span<const description_record>)>& take) = 0;

  /// Accepts no more batches, answers all pending ones, and writes out what is in memory. Returns the first failure of
  /// the store, if there was one. Closing again returns the same. Blocks; must not be called by a callback, or during
  /// `load`.
  virtual result<void> close() = 0;

  virtual store_stats stats() const = 0;
};

} // namespace troupe::store
