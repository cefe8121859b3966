#include "store/rocksdb_options.hpp"

#include "base/log.hpp"

#include <rocksdb/env.h>
#include <rocksdb/table.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <memory>

namespace troupe::store {

namespace {

constexpr std::size_t kibibyte = 1024;
constexpr std::size_t mebibyte = 1024 * kibibyte;

// Records are written in small pieces, overwritten or deleted later, and read once, in order, by a whole scan.
rocksdb::BlockBasedTableOptions table_options() {
  rocksdb::BlockBasedTableOptions table;
  // A scan reads each block once: a cache would waste memory.
  table.no_block_cache = true;
  // Large, because there are no lookups of single keys: a smaller index, and less overhead per record.
  table.block_size = 32 * kibibyte;
  // Keys share the namespace and, with several ranks, the digest; fewer full keys are fewer bytes.
  table.block_restart_interval = 64;
  // No filter: there are no point lookups to accelerate.
  table.filter_policy = nullptr;
  table.format_version = 5;
  return table;
}

/// Forwards RocksDB's messages to the node's log. RocksDB's own log file is disabled: on a full disk, the second line
/// that it cannot write ends the process with an assertion.
class forwarding_logger final : public rocksdb::Logger {
public:
  forwarding_logger() : Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {}

  using Logger::Logv;
  void Logv(const char* format, va_list arguments) override { log_line(spdlog::level::warn, format, arguments); }
  void Logv(rocksdb::InfoLogLevel level, const char* format, va_list arguments) override {
    if (level >= GetInfoLogLevel() && level != rocksdb::InfoLogLevel::HEADER_LEVEL)
      log_line(level >= rocksdb::InfoLogLevel::ERROR_LEVEL ? spdlog::level::err : spdlog::level::warn, format,
               arguments);
  }
  /// Drops the dump of the options, some hundred lines.
  void LogHeader(const char*, va_list) override {}

private:
  static void log_line(spdlog::level::level_enum level, const char* format, va_list arguments) {
    std::array<char, 1024> line{}; // longer lines are cut
    std::vsnprintf(line.data(), line.size(), format, arguments);
    std::ranges::replace(line, '\n', ' ');
    log::get("store")->log(level, "RocksDB: {}", line.data());
  }
};

} // namespace

rocksdb::Options database_options(const rocksdb_store_options& wanted) {
  rocksdb::Options o;
  o.create_if_missing = true;
  if (wanted.env != nullptr)
    o.env = wanted.env;

  // The log. After a power loss its end may be arbitrary; everything before that is a consistent state. Damage in the
  // middle looks the same, so it discards what came after it, but never leaves a gap.
  o.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  // Logs whose records are all in table files are deleted; this bounds the rest, and with it the time to open.
  o.max_total_wal_size = 128 * mebibyte;
  // With `relaxed`: keeps the kernel writing, so that a sync is short.
  o.wal_bytes_per_sync = wanted.level == durability::relaxed ? mebibyte : 0;

  // Memory for records that are not in a table file yet: at most three times this.
  o.write_buffer_size = 32 * mebibyte;
  o.max_write_buffer_number = 3;
  // Only one thread writes.
  o.allow_concurrent_memtable_write = false;
  o.enable_write_thread_adaptive_yield = false;

  // Table files. Two threads for flushing and compacting: the node's cores are for pages.
  o.max_background_jobs = 2;
  o.max_subcompactions = 1;
  // Deleted and overwritten records are removed soon, and take little space until then.
  o.level_compaction_dynamic_level_bytes = true;
  // Random digests do not compress and cost next to nothing; with several ranks, repeated parents compress well.
  o.compression = rocksdb::kLZ4Compression;
  o.bytes_per_sync = mebibyte;
  o.compaction_readahead_size = 2 * mebibyte;
  o.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table_options()));
  // A thousand keys take 60 kB: even a billion keys stay below the usual limit of descriptors.
  o.max_open_files = 512;
  // RocksDB would end the process where a second one could not be started.
  o.max_file_opening_threads = 1;

  // A background error stops the store; an automatic resume would hide it.
  o.max_bgerror_resume_count = 0;
  o.paranoid_checks = true;

  // No threads that write statistics.
  o.info_log = std::make_shared<forwarding_logger>();
  o.stats_dump_period_sec = 0;
  o.stats_persist_period_sec = 0;
  o.max_manifest_file_size = 16 * mebibyte;
  return o;
}

rocksdb::ReadOptions scan_options() {
  rocksdb::ReadOptions o;
  o.fill_cache = false;
  o.readahead_size = 2 * mebibyte;
  // Measured: no slower than without. An undetected error would be a page that belongs to another key.
  o.verify_checksums = true;
  return o;
}

} // namespace troupe::store
