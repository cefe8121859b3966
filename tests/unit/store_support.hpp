#pragma once

#include "store/metadata_store.hpp"
#include "store/rocksdb_store.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/io_support.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::test {

inline namespace_id namespace_number(std::uint64_t n) {
  return {0xabcd, n};
}

inline key_digest key_number(std::uint64_t n) {
  return {(n + 1) * 0x9e3779b97f4a7c15ULL, n};
}

/// The page of key `n`, at a slot that tells which write it is from.
inline store::page_record page_number(std::uint64_t n, rank_number rank = 0, slot_ref where = {7, 1}) {
  return {namespace_number(1), key_number(n), rank, where, n % 2 == 0 ? key_digest{} : key_number(n - 1)};
}

inline store::namespace_record sample_namespace(std::uint64_t n) {
  store::namespace_record record;
  record.id = namespace_number(n);
  record.spec.name = "space " + std::to_string(n);
  record.spec.model = "model";
  record.spec.revision = "main";
  record.spec.dtype = "bfloat16";
  record.spec.salt = std::string("\0\xff salt", 7);
  record.spec.world_size = 8;
  record.spec.geometry = {61, 1, 1, 576, 2, 64};
  record.mode = n % 2 == 0 ? store::world_size_mode::fixed : store::world_size_mode::automatic;
  record.created = std::chrono::sys_seconds(std::chrono::seconds(1'800'000'000 + n));
  return record;
}

/// Takes answers and lets a test wait for them.
class answer_log {
public:
  /// A callback that records its answer under this number.
  store::commit_callback expect(std::uint64_t number) {
    return [this, number](result<void> answer) {
      const std::lock_guard guard(mutex_);
      all_.emplace_back(number, answer ? errc::ok : answer.error().code);
      arrived_.notify_all();
    };
  }

  /// Waits until this many answers have arrived.
  std::vector<std::pair<std::uint64_t, errc>> wait_for(std::size_t count) {
    std::unique_lock guard(mutex_);
    await(arrived_, guard, [&] { return all_.size() >= count; });
    return all_;
  }

  std::vector<std::pair<std::uint64_t, errc>> all() {
    const std::lock_guard guard(mutex_);
    return all_;
  }

private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::pair<std::uint64_t, errc>> all_;
};

/// Commits and waits for the answer.
inline result<void> commit_now(store::metadata_store& store, store::write_batch batch) {
  std::mutex mutex;
  std::condition_variable arrived;
  std::optional<result<void>> answer;
  auto taken = store.commit(std::move(batch), [&](result<void> x) {
    const std::lock_guard guard(mutex);
    answer = std::move(x);
    arrived.notify_all();
  });
  if (!taken)
    return taken;
  std::unique_lock held(mutex);
  await(arrived, held, [&] { return answer.has_value(); });
  return *answer;
}

/// Collects the records of a load, for several threads too.
class loaded : public store::load_visitor {
public:
  result<void> on_namespace(const store::namespace_record& record) override {
    namespaces.push_back(record);
    return {};
  }

  result<void> on_rank(const store::rank_record& record) override {
    ranks.push_back(record);
    return {};
  }

  result<void> on_pages(std::span<const store::page_record> batch) override {
    const std::lock_guard guard(mutex_);
    pages.insert(pages.end(), batch.begin(), batch.end());
    return {};
  }

  result<void> on_handshake(const store::handshake_engine_record& record) override {
    handshake_engines.push_back(record);
    return {};
  }

  result<void> on_handshake(const store::handshake_rank_record& record) override {
    handshake_ranks.push_back(record);
    return {};
  }

  void on_progress(std::uint64_t read, std::uint64_t expected) override { progress.emplace_back(read, expected); }

  const store::page_record* find(const key_digest& key, rank_number rank = 0) const {
    const auto at = std::ranges::find_if(pages, [&](const auto& p) { return p.key == key && p.rank == rank; });
    return at == pages.end() ? nullptr : &*at;
  }

  std::vector<store::namespace_record> namespaces;
  std::vector<store::rank_record> ranks;
  std::vector<store::page_record> pages;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> progress;
  std::vector<store::handshake_engine_record> handshake_engines;
  std::vector<store::handshake_rank_record> handshake_ranks;

private:
  std::mutex mutex_;
};

/// The order in which pages are read by one thread.
inline bool in_order(const std::vector<store::page_record>& pages) {
  return std::ranges::is_sorted(pages, {}, [](const store::page_record& p) { return std::tuple(p.ns, p.key, p.rank); });
}

inline store::rocksdb_store_options options_for(const std::filesystem::path& directory,
                                                store::durability level = store::durability::strict) {
  store::rocksdb_store_options options;
  options.directory = directory;
  options.level = level;
  return options;
}

/// Opens; ends the test with the reason if that fails.
inline std::unique_ptr<store::rocksdb_store> open_store(const store::rocksdb_store_options& options) {
  auto opened = store::rocksdb_store::open(options);
  if (!opened)
    FAIL(to_string(opened.error()));
  return std::move(*opened);
}

inline std::unique_ptr<store::rocksdb_store> open_store(const std::filesystem::path& directory) {
  return open_store(options_for(directory));
}

/// Loads everything; ends the test with the reason if that fails.
inline void load_all(store::metadata_store& store, loaded& into, unsigned threads = 1) {
  if (auto read = store.load(into, threads); !read)
    FAIL(to_string(read.error()));
}

} // namespace troupe::test
