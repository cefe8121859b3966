#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "store/records.hpp"
#include "store/write_batch.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace troupe::store {

/// When a batch is answered, and so what a crash can take back.
enum class durability : std::uint8_t {
  /// Once it is in the log file, which the end of the process cannot take back. The log is synced once per
  /// `sync_interval`: a loss of power takes back at most that much, and always the newest. Batches that ask for a sync,
  /// as all do that erase pages, are answered as with `strict`.
  relaxed,
  /// Once it is on the medium.
  strict,
};

/// Called exactly once per accepted batch, in the order of submission, from the store's thread (or from within
/// `commit`, where nothing is to be waited for). Must be quick and must not throw; may call `commit` and `stats`,
/// nothing else of the store.
///
/// Late where the disk is full: when there is room again, see `store_stats::no_room`. An error means that the batch is
/// not known to be durable: after a restart it is there entirely or not at all.
using commit_callback = std::function<void(result<void>)>;

/// Takes what `load` reads. What it returns as an error ends the load and is the load's result.
class load_visitor {
public:
  virtual ~load_visitor() = default;

  virtual result<void> on_namespace(const namespace_record& record) = 0;
  virtual result<void> on_rank(const rank_record& record) = 0;
  /// Some pages, by namespace, key and rank. With more than one load thread this is called by several at once, and
  /// only the pages of one call are in order.
  virtual result<void> on_pages(std::span<const page_record> pages) = 0;
  /// What engines have published, each followed by its ranks. Not by two threads at once.
  virtual result<void> on_handshake(const handshake_engine_record& record) {
    (void)record;
    return {};
  }
  virtual result<void> on_handshake(const handshake_rank_record& record) {
    (void)record;
    return {};
  }
  /// Now and then, never by two threads at once. `expected` is an estimate.
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

/// Since the store was opened; sizes are in bytes of encoded records.
struct store_stats {
  /// Accepted by `commit`, and refused by it.
  std::uint64_t batches = 0;
  std::uint64_t refused = 0;
  /// Accepted and not yet answered.
  std::uint64_t queued_batches = 0;
  std::uint64_t queued_bytes = 0;
  /// Written to the log. One group holds all batches that had come while the one before was written.
  std::uint64_t groups = 0;
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;
  std::uint64_t syncs = 0;
  duration last_sync{};
  duration longest_sync{};
  duration all_syncs{};
  /// While what was accepted waits for room on the disk: what the disk said.
  std::optional<error> no_room;
  /// Why the store takes nothing any more.
  std::optional<error> failure;
};

/// Where the registry keeps what must survive a crash: a table of records that is read once, when a node starts, and
/// only written from then on. All functions may be called from several threads.
class metadata_store {
public:
  metadata_store() = default;
  metadata_store(const metadata_store&) = delete;
  metadata_store& operator=(const metadata_store&) = delete;
  /// Closes.
  virtual ~metadata_store() = default;

  virtual const node_identity& identity() const noexcept = 0;

  /// Takes the batch over to be written after all that was accepted before, and answers through `done`. Never waits for
  /// the disk. An empty batch is a barrier: answered when everything before it is.
  ///
  /// An error means that the batch was not taken: it is untouched, and `done` is not called.
  ///   limit_exceeded   too much is under way. The way out is to hold on to the batch, add to it what comes meanwhile,
  ///                    and commit it when the caller's batch before this one is answered. Who never has more than one
  ///                    batch under way does not come here, as long as there are not more such callers than the
  ///                    limit; and their batches become larger exactly when the disk is slow.
  ///   shutting_down    the store is closed.
  ///   others           a write failed, so that nothing later may be acknowledged until the store is opened anew.
  virtual result<void> commit(write_batch&& batch, commit_callback done) = 0;

  /// Reads everything that was answered before the call. Returns when the visitor has seen all, or with the first
  /// error; corrupt names the record. `threads` share the pages.
  virtual result<load_summary> load(load_visitor& visitor, unsigned threads = 1) = 0;

  /// Takes no more batches, answers all it has, writes out what is in memory. The first failure of the store, if there
  /// was one. Closing again gives the same answer. Waits; not to be called by a callback, or during `load`.
  virtual result<void> close() = 0;

  virtual store_stats stats() const = 0;
};

} // namespace troupe::store
