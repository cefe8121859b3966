#include "store/rocksdb_store.hpp"

#include "base/log.hpp"
#include "base/threads.hpp"
#include "store/commit_queue.hpp"
#include "store/gated_files.hpp"
#include "store/handshake_records.hpp"
#include "store/rocksdb_options.hpp"
#include "store/store_directory.hpp"

#include <rocksdb/db.h>
#include <rocksdb/env.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::store {

namespace {

/// The number of pages per call of a visitor.
constexpr std::size_t pages_per_call = 1024;
constexpr std::uint64_t pages_per_progress = 1ULL << 17U;
/// The number of parts into which the pages of a namespace are divided when several threads read.
constexpr std::uint64_t parts_per_namespace = 16;

rocksdb::Slice to_slice(std::string_view bytes) {
  return {bytes.data(), bytes.size()};
}

std::string_view to_view(const rocksdb::Slice& bytes) {
  return {bytes.data(), bytes.size()};
}

errc to_code(const rocksdb::Status& status) {
  // Checked first: it appears as an IO error, and as other errors once RocksDB has stopped because of it.
  if (status.subcode() == rocksdb::Status::kNoSpace)
    return errc::no_space;
  if (status.IsCorruption())
    return errc::corrupt;
  if (status.IsIOError())
    return errc::io_error;
  if (status.IsBusy())
    return errc::busy;
  if (status.IsInvalidArgument())
    return errc::invalid_argument;
  return errc::io_error;
}

tl::unexpected<error> failed(const rocksdb::Status& status, const std::string& what) {
  return fail(to_code(status), what + ": " + status.ToString());
}

result<void> check(const rocksdb_store_options& options) {
  if (options.max_queued_batches == 0 || options.max_queued_bytes == 0)
    return fail(errc::invalid_argument, "the queue limits of a metadata store must be above 0");
  if (options.sync_interval < duration::zero())
    return fail(errc::invalid_argument, "the sync interval of a metadata store cannot be negative");
  return {};
}

/// A half-open range of keys.
struct key_range {
  std::string from;
  std::string to;
};

/// Calls f with key and value of each record of the range, until it returns an error. Without a snapshot: as of now.
template <class F>
result<void> for_each_record(rocksdb::DB& database, const rocksdb::Snapshot* snapshot, const key_range& range, F&& f) {
  auto options = scan_options();
  const auto end = to_slice(range.to);
  options.snapshot = snapshot;
  options.iterate_upper_bound = &end;
  const std::unique_ptr<rocksdb::Iterator> at(database.NewIterator(options));
  for (at->Seek(range.from); at->Valid(); at->Next())
    if (auto done = f(to_view(at->key()), to_view(at->value())); !done)
      return done;
  if (!at->status().ok())
    return failed(at->status(), "cannot read the metadata store");
  return {};
}

using description_taker = std::function<result<void>(std::span<const description_record>)>;

/// Records of one call.
constexpr std::size_t descriptions_per_call = 256;

result<std::uint64_t> read_descriptions(rocksdb::DB& database, const description_taker& take) {
  std::vector<description_record> records;
  std::uint64_t count = 0;
  const auto deliver = [&]() -> result<void> {
    count += records.size();
    auto taken = records.empty() ? result<void>{} : take(records);
    records.clear();
    return taken;
  };
  const key_range all{first_of(table::descriptions), end_of_prefix(first_of(table::descriptions))};
  auto read =
      for_each_record(database, nullptr, all, [&](std::string_view key, std::string_view value) -> result<void> {
        auto record = decode_description(key, value);
        if (!record)
          return tl::unexpected(std::move(record).error());
        records.push_back(std::move(*record));
        return records.size() < descriptions_per_call ? result<void>{} : deliver();
      });
  if (read)
    read = deliver();
  if (!read)
    return tl::unexpected(std::move(read).error());
  return count;
}

/// One scan of a database, with the stop flag that its threads share.
class scan {
public:
  scan(rocksdb::DB& database, load_visitor& visitor)
      : database_(database), visitor_(visitor), snapshot_(database.GetSnapshot()) {
    database_.GetIntProperty(rocksdb::DB::Properties::kEstimateNumKeys, &expected_);
  }
  scan(const scan&) = delete;
  scan& operator=(const scan&) = delete;
  ~scan() { database_.ReleaseSnapshot(snapshot_); }

  result<load_summary> run(unsigned threads) {
    if (auto read = read_few(); !read)
      return tl::unexpected(std::move(read).error());
    if (auto read = read_handshakes(); !read)
      return tl::unexpected(std::move(read).error());
    const auto parts = cut_pages(threads);
    std::vector<std::thread> helpers;
    for (unsigned i = 1; i < threads && i < parts.size(); ++i) {
      try {
        helpers.emplace_back(named(thread_name("troupe-load"), [&] { read_parts(parts); }));
      } catch (const std::system_error&) {
        break; // the threads that started do all of it
      }
    }
    read_parts(parts);
    for (auto& helper : helpers)
      helper.join();
    if (failure_)
      return tl::unexpected(std::move(*failure_));
    summary_.pages = pages_;
    visitor_.on_progress(pages_, pages_);
    return summary_;
  }

private:
  template <class F>
  result<void> for_each(const key_range& range, F&& f) {
    return for_each_record(database_, snapshot_, range, f);
  }

  result<void> read_few() {
    // From the first key on, so that a record of an unknown table is reported and not overlooked.
    return for_each({{}, first_of(table::pages)}, [&](std::string_view key, std::string_view value) -> result<void> {
      if (key.starts_with(first_of(table::namespaces)))
        return hand_on(decode_namespace(key, value), [&](const auto& record) {
          ++summary_.namespaces;
          namespaces_.push_back(record.id);
          return visitor_.on_namespace(record);
        });
      if (key.starts_with(first_of(table::ranks)))
        return hand_on(decode_rank(key, value), [&](const auto& record) {
          ++summary_.ranks;
          return visitor_.on_rank(record);
        });
      return hand_on(decode_identity(key, value), [](const auto&) { return result<void>{}; });
    });
  }

  // To the last key, for the same reason; but descriptions are read by themselves, when the pages are known.
  result<void> read_handshakes() {
    const auto read = [&](std::string_view key, std::string_view value) -> result<void> {
      const auto tell = [&](const auto& record) { return visitor_.on_handshake(record); };
      return is_handshake_engine(key) ? hand_on(decode_handshake_engine(key, value), tell)
                                      : hand_on(decode_handshake_rank(key, value), tell);
    };
    if (auto done = for_each({end_of_prefix(first_of(table::pages)), first_of(table::descriptions)}, read); !done)
      return done;
    return for_each({end_of_prefix(first_of(table::descriptions)), std::string(8, '\xff')}, read);
  }

  template <class Record, class F>
  static result<void> hand_on(result<Record> record, F&& f) {
    return record ? f(*record) : result<void>(tl::unexpected(std::move(record).error()));
  }

  // Everything that `read_few` does not read, in all namespaces. The parts are even where digests are random.
  std::vector<key_range> cut_pages(unsigned threads) const {
    std::vector<std::string> cuts{first_of(table::pages)};
    if (threads > 1)
      for (const auto& ns : namespaces_)
        for (std::uint64_t i = 0; i < parts_per_namespace; ++i)
          cuts.push_back(pages_from(ns, i << 60U));
    std::vector<key_range> parts;
    for (std::size_t i = 0; i < cuts.size(); ++i)
      parts.push_back({cuts[i], i + 1 < cuts.size() ? cuts[i + 1] : end_of_prefix(first_of(table::pages))});
    return parts;
  }

  void read_parts(const std::vector<key_range>& parts) {
    while (!stopped_) {
      const auto i = next_part_.fetch_add(1);
      if (i >= parts.size())
        return;
      if (auto read = read_part(parts[i]); !read) {
        const std::lock_guard guard(mutex_);
        if (!failure_)
          failure_ = std::move(read).error();
        stopped_ = true;
      }
    }
  }

  result<void> read_part(const key_range& part) {
    std::vector<page_record> pages;
    pages.reserve(pages_per_call);
    auto read = for_each(part, [&](std::string_view key, std::string_view value) -> result<void> {
      auto page = decode_page(key, value);
      if (!page)
        return tl::unexpected(std::move(page).error());
      pages.push_back(*page);
      return pages.size() < pages_per_call ? result<void>{} : deliver(pages);
    });
    return read ? deliver(pages) : read;
  }

  result<void> deliver(std::vector<page_record>& pages) {
    if (pages.empty() || stopped_)
      return {};
    if (auto taken = visitor_.on_pages(pages); !taken)
      return taken;
    const auto before = pages_.fetch_add(pages.size());
    const auto now = before + pages.size();
    pages.clear();
    if (before / pages_per_progress != now / pages_per_progress) {
      const std::lock_guard guard(mutex_);
      visitor_.on_progress(now, std::max(now, expected_));
    }
    return {};
  }

  rocksdb::DB& database_;
  load_visitor& visitor_;
  const rocksdb::Snapshot* const snapshot_;
  std::uint64_t expected_ = 0;
  load_summary summary_;
  std::vector<namespace_id> namespaces_;
  std::atomic<std::size_t> next_part_ = 0;
  std::atomic<std::uint64_t> pages_ = 0;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::optional<error> failure_;
};

} // namespace

/// The database and the log that the commit queue writes to; the only user of RocksDB.
class rocksdb_store::database final : public group_writer {
public:
  explicit database(store_directory directory) : directory_(std::move(directory)) {}

  result<void> open(const rocksdb_store_options& wanted) {
    wanted_ = wanted;
    // RocksDB uses the files directly where the gate cannot close.
    if (wanted.gate != write_gate::always_open()) {
      gated_ = make_gated_environment(wanted.gate, wanted.env);
      wanted_.env = gated_.get();
    }
    if (auto opened = open_files(); !opened)
      return opened;
    if (auto counted = count_run(); !counted)
      return counted;
    written_ = db_->GetLatestSequenceNumber();
    commit_queue_options limits;
    limits.level = wanted.level;
    limits.sync_interval = wanted.sync_interval;
    limits.max_batches = wanted.max_queued_batches;
    limits.max_bytes = wanted.max_queued_bytes;
    limits.first_pause = wanted.first_pause;
    auto started = commit_queue::start(limits, *this);
    if (!started)
      return tl::unexpected(std::move(started).error());
    queue_ = std::move(*started);
    return {};
  }

  result<void> write(std::span<const write_batch> group) override {
    if (auto may = may_write(); !may)
      return may;
    group_.Clear();
    for (const auto& batch : group)
      batch.for_each([&](const write_batch::change& change) {
        const auto added = add_to_group(change);
        added.PermitUncheckedError(); // fails only where a batch has a limit, and this one has none
      });
    const auto status = db_->Write(rocksdb::WriteOptions(), &group_);
    if (group_.GetDataSize() > most_kept_bytes)
      group_ = rocksdb::WriteBatch();
    if (!status.ok())
      return failed(status, "cannot write to the log of the metadata store in '" + directory_.path().string() + "'");
    written_ = db_->GetLatestSequenceNumber();
    return {};
  }

  // Recovers by opening the files anew, as after a crash: records behind a torn one would not be read, and a restart is
  // the one recovery that is always tested. Everything that was answered must exist afterwards.
  result<void> recover() override {
    if (auto may = may_write(); !may)
      return may;
    const std::lock_guard no_reader(reading_);
    if (db_) {
      const auto closed = db_->Close();
      closed.PermitUncheckedError(); // it has failed already
      db_.reset();
    }
    if (auto opened = open_files(); !opened)
      return opened;
    if (const auto found = db_->GetLatestSequenceNumber(); found < written_)
      return fail(errc::corrupt, "the metadata store in '" + directory_.path().string() + "' was written up to " +
                                     std::to_string(written_) + " and has " + std::to_string(found));
    return {};
  }

  rocksdb::Status add_to_group(const write_batch::change& change) {
    using kind = write_batch::change::kind;
    if (change.what == kind::put)
      return group_.Put(to_slice(change.key), to_slice(change.value));
    if (change.what == kind::erase)
      return group_.Delete(to_slice(change.key));
    return group_.DeleteRange(to_slice(change.key), end_of_prefix(change.key));
  }

  result<void> sync() override {
    if (const auto status = db_->SyncWAL(); !status.ok())
      return failed(status, "cannot sync the log of the metadata store in '" + directory_.path().string() + "'");
    return {};
  }

  result<load_summary> load(load_visitor& visitor, unsigned threads) {
    const std::shared_lock reading(reading_);
    if (!db_)
      return closed();
    return scan(*db_, visitor).run(threads);
  }

  result<std::uint64_t> load_descriptions(const description_taker& take) {
    const std::shared_lock reading(reading_);
    if (!db_)
      return closed();
    return read_descriptions(*db_, take);
  }

  result<void> close() {
    const std::lock_guard guard(close_mutex_);
    if (std::exchange(closed_, true))
      return outcome_;
    outcome_ = queue_ ? queue_->close() : result<void>{};
    const std::lock_guard no_reader(reading_);
    if (!db_)
      return outcome_;
    // Empties the log, so that the next start need not replay it.
    rocksdb::Status status;
    if (outcome_)
      status = db_->Flush(rocksdb::FlushOptions());
    const auto closed = db_->Close();
    db_.reset();
    if (outcome_ && (!status.ok() || !closed.ok()))
      outcome_ = failed(status.ok() ? closed : status,
                        "cannot close the metadata store in '" + directory_.path().string() + "' cleanly");
    return outcome_;
  }

  commit_queue& queue() noexcept { return *queue_; }
  const node_identity& identity() const noexcept { return identity_; }

private:
  /// A larger group frees its memory after use.
  static constexpr std::size_t most_kept_bytes = std::size_t{8} << 20U;

  /// Starts the threads that flush and compact, which live as long as the process. If RocksDB failed to start them
  /// later, when it first needs them, it would end the process.
  static result<void> start_threads(rocksdb::Env& env) {
    try {
      for (const auto pool : {rocksdb::Env::HIGH, rocksdb::Env::LOW})
        env.IncBackgroundThreadsIfNeeded(1, pool);
    } catch (const std::system_error& e) {
      return tl::unexpected<error>(no_thread("the threads of the metadata store", e.code().value()));
    }
    return {};
  }

  result<void> open_files() {
    const auto options = database_options(wanted_);
    if (auto started = start_threads(*options.env); !started)
      return started;
    rocksdb::DB* opened = nullptr;
    const auto status = rocksdb::DB::Open(options, directory_.path().string(), &opened);
    if (!status.ok()) {
      // A full disk, or a lack of open files, is no damage: the data is good once there is room.
      const bool may_be_damaged = !status.IsIOError() || status.IsPathNotFound();
      auto out = failed(status, "cannot open the metadata store in '" + directory_.path().string() + "'" +
                                    (may_be_damaged ? "; if it is damaged, delete the directory to start with an "
                                                      "empty cache"
                                                    : ""));
      out.value().text += way_out_of(out.value().text);
      return out;
    }
    db_.reset(opened);
    return {};
  }

  // Checked before RocksDB fails: a refused call was not attempted, and needs no reopening. Like a full disk, a claim
  // that has run out is no failure of the store: writes wait until it is valid again.
  result<void> may_write() const {
    return wanted_.gate->check("write to the metadata store in '" + directory_.path().string() + "'", errc::no_space);
  }

  static tl::unexpected<error> closed() { return fail(errc::shutting_down, "the metadata store is closed"); }

  result<void> count_run() {
    std::string key;
    append_identity_key(key);
    std::string value;
    const auto status = db_->Get(rocksdb::ReadOptions(), key, &value);
    if (status.IsNotFound()) {
      identity_ = first_identity();
    } else if (!status.ok()) {
      return failed(status, "cannot read the identity of the node");
    } else {
      auto found = decode_identity(key, value);
      if (!found)
        return tl::unexpected(std::move(found).error());
      identity_ = *found;
      ++identity_.run;
    }
    value.clear();
    append_value(value, identity_);
    rocksdb::WriteOptions synced;
    synced.sync = true;
    if (const auto written = db_->Put(synced, key, value); !written.ok())
      return failed(written, "cannot write to the metadata store in '" + directory_.path().string() + "'");
    return {};
  }

  /// Declared first, destroyed last: the lock is released after the database is closed.
  store_directory directory_;
  rocksdb_store_options wanted_;
  /// Null where the gate is always open. Outlives the open database.
  std::unique_ptr<rocksdb::Env> gated_;
  node_identity identity_;
  /// Null between two opens, while the disk has no room for the second, and after `close`. Changed by `recover` and
  /// `close`, which hold this against `load`; the queue's thread is the only other user.
  std::unique_ptr<rocksdb::DB> db_;
  std::shared_mutex reading_;
  /// RocksDB's sequence number of the last written record.
  rocksdb::SequenceNumber written_ = 0;
  std::unique_ptr<commit_queue> queue_;
  /// Used by the queue's thread; kept for its memory.
  rocksdb::WriteBatch group_;
  std::mutex close_mutex_;
  bool closed_ = false;
  result<void> outcome_;
};

rocksdb_store::rocksdb_store(std::unique_ptr<database> opened) : database_(std::move(opened)) {}

rocksdb_store::~rocksdb_store() {
  if (const auto closed = database_->close(); !closed)
    log::get("store")->error("{}", closed.error().text);
}

result<std::unique_ptr<rocksdb_store>> rocksdb_store::open(const rocksdb_store_options& options) {
  if (auto sound = check(options); !sound)
    return tl::unexpected(std::move(sound).error());
  auto directory = store_directory::open(options.directory);
  if (!directory)
    return tl::unexpected(std::move(directory).error());
  auto opened = std::make_unique<database>(std::move(*directory));
  if (auto ready = opened->open(options); !ready)
    return tl::unexpected(std::move(ready).error());
  return std::unique_ptr<rocksdb_store>(new rocksdb_store(std::move(opened)));
}

result<bool> rocksdb_store::look(const std::filesystem::path& directory,
                                 const std::function<load_visitor&(const node_identity&)>& begin) {
  auto ours = store_directory::check(directory);
  if (!ours || !*ours)
    return ours;
  rocksdb_store_options how;
  how.directory = directory;
  auto options = database_options(how);
  options.create_if_missing = false;
  rocksdb::DB* opened = nullptr;
  if (const auto status = rocksdb::DB::OpenForReadOnly(options, directory.string(), &opened); !status.ok())
    return failed(status, "cannot open the metadata store in '" + directory.string() + "'");
  const std::unique_ptr<rocksdb::DB> db(opened);
  std::string key;
  append_identity_key(key);
  std::string value;
  const auto status = db->Get(rocksdb::ReadOptions(), key, &value);
  if (status.IsNotFound())
    return false;
  if (!status.ok())
    return failed(status, "cannot read the identity of the node");
  const auto identity = decode_identity(key, value);
  if (!identity)
    return tl::unexpected(identity.error());
  if (const auto seen = scan(*db, begin(*identity)).run(1); !seen)
    return tl::unexpected(seen.error());
  return true;
}

const node_identity& rocksdb_store::identity() const noexcept {
  return database_->identity();
}

result<void> rocksdb_store::commit(write_batch&& batch, commit_callback done) {
  return database_->queue().commit(std::move(batch), std::move(done));
}

result<load_summary> rocksdb_store::load(load_visitor& visitor, unsigned threads) {
  return database_->load(visitor, threads);
}

result<std::uint64_t> rocksdb_store::load_descriptions(const description_taker& take) {
  return database_->load_descriptions(take);
}

result<void> rocksdb_store::close() {
  return database_->close();
}

store_stats rocksdb_store::stats() const {
  return database_->queue().stats();
}

} // namespace troupe::store
