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
  /// The store's own directory; created if it does not exist.
  std::filesystem::path directory;
  /// `relaxed` or `strict`.
  durability level = durability::strict;
  /// With `relaxed`: how much a power loss may lose.
  duration sync_interval = std::chrono::milliseconds(100);
  /// Limits of accepted and unanswered batches; see `commit`.
  std::size_t max_queued_batches = 1024;
  std::size_t max_queued_bytes = std::size_t{64} << 20U;
  /// The pause before a full disk is tried again; it grows with each attempt.
  duration first_pause = std::chrono::seconds(1);
  /// RocksDB's access to files and threads, so that tests can inject failures. Not owned; null is the system's.
  rocksdb::Env* env = nullptr;
  /// While it is closed no thread writes: committed batches wait as on a full disk.
  std::shared_ptr<const write_gate> gate = write_gate::always_open();
};

/// A store in an embedded RocksDB. One thread of its own writes, and at most two of RocksDB's flush and compact.
/// Memory: about 100 MiB for what is not in a table file yet.
class rocksdb_store final : public metadata_store {
public:
  /// Replays the log and counts the run, which is durable when this returns. Errors: `busy` if it is open already;
  /// `identity_mismatch` if the directory has another schema or is not a store; `corrupt`; `io_error`, `no_space`;
  /// `invalid_argument`.
  static result<std::unique_ptr<rocksdb_store>> open(const rocksdb_store_options& options);
  ~rocksdb_store() override;

  /// Passes all records of a closed store to the visitor that `begin` returns for its identity, and changes nothing:
  /// neither its files nor the number of runs. Returns false where there is no store. Errors: `identity_mismatch` if
  /// the directory has another schema or is not a store; `corrupt`; `io_error`. The caller keeps nodes out meanwhile.
  static result<bool> look(const std::filesystem::path& directory,
                           const std::function<load_visitor&(const node_identity&)>& begin);

  const node_identity& identity() const noexcept override;
  result<void> commit(write_batch&& batch, commit_callback done) override;
  result<load_summary> load(load_visitor& visitor, unsigned threads = 1) override;
  result<std::uint64_t>
  load_descriptions(const std::function<result<void>(std::span<const description_record>)>& take) override;
  result<void> close() override;
  store_stats stats() const override;

private:
  class database;

  explicit rocksdb_store(std::unique_ptr<database> opened);

  const std::unique_ptr<database> database_;
};

} // namespace troupe::store
