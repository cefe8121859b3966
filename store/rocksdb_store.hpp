#pragma once

#include "base/write_gate.hpp"
#include "store/metadata_store.hpp"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>

namespace rocksdb {
class Env;
} // namespace rocksdb

namespace troupe::store {

struct rocksdb_store_options {
  /// Of its own; made if there is none.
  std::filesystem::path directory;
  /// relaxed or strict.
  durability level = durability::strict;
  /// With relaxed: how much a loss of power may take back.
  duration sync_interval = std::chrono::milliseconds(100);
  /// Limits of what is accepted and not yet answered; see `commit`.
  std::size_t max_queued_batches = 1024;
  std::size_t max_queued_bytes = std::size_t{64} << 20U;
  /// How long a disk that is full is left alone before it is tried again; longer each time.
  duration first_pause = std::chrono::seconds(1);
  /// Through which RocksDB sees files and threads, so that tests can break them. Not owned; null is the system's.
  rocksdb::Env* env = nullptr;
  /// While it is closed nothing is written, by whatever thread: what is committed waits as it does where the disk is
  /// full. Null: writes need nobody's leave.
  std::shared_ptr<const write_gate> gate{};
};

/// A store in an embedded RocksDB. One thread of its own writes, at most two of RocksDB's rearrange what was written.
/// Memory: about 100 MiB for what is not in a table file yet.
class rocksdb_store final : public metadata_store {
public:
  /// Reads back what the log holds and counts the run, which is durable when this returns. Errors: busy if it is open
  /// already; identity_mismatch if the directory has another schema or is not ours; corrupt; io_error, no_space;
  /// invalid_argument.
  static result<std::unique_ptr<rocksdb_store>> open(const rocksdb_store_options& options);
  ~rocksdb_store() override;

  /// Shows all that a store holds which nobody has open to the visitor that `begin` gives for its identity, and changes
  /// nothing: neither its files nor the number of runs. False where there is no store. Errors: identity_mismatch if the
  /// directory is another schema's or not ours; corrupt; io_error. The caller keeps nodes out meanwhile.
  static result<bool> look(const std::filesystem::path& directory,
                           const std::function<load_visitor&(const node_identity&)>& begin);

  const node_identity& identity() const noexcept override;
  result<void> commit(write_batch&& batch, commit_callback done) override;
  result<load_summary> load(load_visitor& visitor, unsigned threads = 1) override;
  result<void> close() override;
  store_stats stats() const override;

private:
  class database;

  explicit rocksdb_store(std::unique_ptr<database> opened);

  const std::unique_ptr<database> database_;
};

} // namespace troupe::store
