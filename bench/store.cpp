// The metadata store: commits per second by durability and number of batches in progress, bytes per key on disk, and
// the time to read all keys at a start. One page per key, each with a parent.

#include "store/rocksdb_store.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::store;
namespace fs = std::filesystem;
using clock_type = std::chrono::steady_clock;

struct settings {
  std::uint64_t keys = 1'000'000;
  std::uint32_t ranks = 1;
  fs::path directory = ".";
  double seconds = 1;
};

[[noreturn]] void die(const std::string& text) {
  std::fprintf(stderr, "troupe-bench-store: %s\n", text.c_str());
  std::exit(1);
}

void demand(const result<void>& outcome) {
  if (!outcome)
    die(to_string(outcome.error()));
}

/// A directory below the given one; removed with the object.
class scratch {
public:
  explicit scratch(const fs::path& parent) {
    auto name = (parent / "troupe-bench-store-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      die("cannot create a directory in '" + parent.string() + "'");
    path_ = name;
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  const fs::path& path() const { return path_; }

private:
  fs::path path_;
};

double seconds_since(clock_type::time_point begin) {
  return std::chrono::duration<double>(clock_type::now() - begin).count();
}

std::uint64_t scramble(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

key_digest key(std::uint64_t n) {
  return {scramble(2 * n), scramble(2 * n + 1)};
}

page_record page(std::uint64_t n, rank_number rank) {
  return {{1, 2}, key(n), rank, {static_cast<slot_number>(n), 1}, key(n + 1)};
}

/// Keeps a constant number of batches in progress: each answer is followed by the next batch.
class window {
public:
  explicit window(unsigned size) : free_(size), size_(size) {}

  void enter() {
    std::unique_lock held(mutex_);
    changed_.wait(held, [&] { return free_ > 0; });
    --free_;
  }
  void leave() {
    const std::lock_guard guard(mutex_);
    ++free_;
    changed_.notify_one();
  }
  void wait_until_empty() {
    std::unique_lock held(mutex_);
    changed_.wait(held, [&] { return free_ == size_; });
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned free_;
  const unsigned size_;
};

void commit(metadata_store& store, window& room, write_batch batch) {
  room.enter();
  demand(store.commit(std::move(batch), [&room](const result<void>& answer) {
    demand(answer);
    room.leave();
  }));
}

const char* name_of(durability level) {
  return level == durability::relaxed ? "relaxed" : "strict";
}

std::unique_ptr<metadata_store> make_store(durability level, const fs::path& directory) {
  rocksdb_store_options options;
  options.directory = directory;
  options.level = level;
  auto opened = rocksdb_store::open(options);
  if (!opened)
    die(to_string(opened.error()));
  return std::move(*opened);
}

void measure_commits(const settings& s, durability level, unsigned depth, std::uint64_t records, bool erase) {
  const scratch directory(s.directory);
  const auto store = make_store(level, directory.path());
  window room(depth);
  std::uint64_t n = 0;
  std::uint64_t batches = 0;
  const auto begin = clock_type::now();
  while (seconds_since(begin) < s.seconds) {
    write_batch batch;
    for (std::uint64_t i = 0; i < records; ++i, ++n) {
      batch.put(page(n, 0));
      if (erase && n >= 1000)
        batch.erase_page({1, 2}, key(n - 1000), 0);
    }
    ++batches;
    commit(*store, room, std::move(batch));
  }
  room.wait_until_empty();
  const auto took = seconds_since(begin);
  const auto stats = store->stats();
  const auto per = [&](std::uint64_t x) { return static_cast<double>(x) / took; };
  const auto sync = stats.syncs == 0 ? 0.0
                                     : std::chrono::duration<double, std::micro>(stats.all_syncs).count() /
                                           static_cast<double>(stats.syncs);
  std::printf("%-9s %7u %8llu %7s %12.0f %12.0f %9.1f %9.0f %10.0f\n", name_of(level), depth,
              static_cast<unsigned long long>(records), erase ? "yes" : "no", per(batches), per(stats.records),
              static_cast<double>(stats.batches) / static_cast<double>(std::max<std::uint64_t>(1, stats.groups)),
              per(stats.syncs), sync);
}

void print_commits(const settings& s) {
  std::printf("Commits, %.1f s each\n\n%-9s %7s %8s %7s %12s %12s %9s %9s %10s\n", s.seconds, "", "under way",
              "records", "erases", "commits/s", "records/s", "per group", "syncs/s", "us/sync");
  for (const auto level : {durability::relaxed, durability::strict})
    for (const auto& [records, erase] : {std::pair(1ULL, false), std::pair(64ULL, false), std::pair(64ULL, true)})
      for (const unsigned depth : {1U, 8U, 64U})
        measure_commits(s, level, depth, records, erase);
}

class counter : public load_visitor {
public:
  result<void> on_namespace(const namespace_record&) override { return {}; }
  result<void> on_rank(const rank_record&) override { return {}; }
  result<void> on_pages(std::span<const page_record> pages) override {
    std::uint64_t sum = 0;
    for (const auto& p : pages)
      sum += p.where.slot + p.parent.lo;
    sum_ += sum;
    pages_ += pages.size();
    return {};
  }

  std::uint64_t pages() const { return pages_; }

private:
  std::atomic<std::uint64_t> sum_ = 0;
  std::atomic<std::uint64_t> pages_ = 0;
};

std::uint64_t bytes_in(const fs::path& directory) {
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(directory))
    bytes += entry.file_size();
  return bytes;
}

double measure_load(const settings& s, const fs::path& directory, std::uint64_t keys, unsigned threads) {
  const auto begin = clock_type::now();
  const auto store = make_store(durability::strict, directory);
  const auto opened = seconds_since(begin);
  counter visitor;
  const auto read = store->load(visitor, threads);
  if (!read)
    die(to_string(read.error()));
  if (visitor.pages() != keys * s.ranks)
    die("found " + std::to_string(visitor.pages()) + " pages");
  const auto took = seconds_since(begin);
  std::printf("%12llu %7u %10.3f %10.3f %14.0f\n", static_cast<unsigned long long>(keys), threads, opened,
              took - opened, static_cast<double>(visitor.pages()) / (took - opened));
  return took;
}

void measure_size(const settings& s, std::uint64_t keys) {
  const scratch directory(s.directory);
  constexpr std::uint64_t per_batch = 512;
  const auto begin = clock_type::now();
  {
    const auto store = make_store(durability::relaxed, directory.path());
    window room(8);
    for (std::uint64_t n = 0; n < keys;) {
      write_batch batch;
      for (std::uint64_t i = 0; i < per_batch && n < keys; ++i, ++n)
        for (rank_number rank = 0; rank < s.ranks; ++rank)
          batch.put(page(n, rank));
      commit(*store, room, std::move(batch));
    }
    room.wait_until_empty();
    demand(store->close());
  }
  std::printf("\n%llu keys, %u ranks: written in %.2f s, %.1f bytes per page on disk\n\n%12s %7s %10s %10s %14s\n",
              static_cast<unsigned long long>(keys), s.ranks, seconds_since(begin),
              static_cast<double>(bytes_in(directory.path())) / static_cast<double>(keys * s.ranks), "keys", "threads",
              "open, s", "load, s", "pages/s");
  for (const unsigned threads : {1U, 2U, 4U})
    measure_load(s, directory.path(), keys, threads);
}

} // namespace

int main(int argc, char** argv) {
  settings s;
  bool sizes_only = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const bool has_value = i + 1 < argc;
    if (arg == "--keys" && has_value) {
      s.keys = std::strtoull(argv[++i], nullptr, 10);
    } else if (arg == "--ranks" && has_value) {
      s.ranks = static_cast<std::uint32_t>(std::strtoul(argv[++i], nullptr, 10));
    } else if (arg == "--directory" && has_value) {
      s.directory = argv[++i];
    } else if (arg == "--seconds" && has_value) {
      s.seconds = std::strtod(argv[++i], nullptr);
    } else if (arg == "--sizes-only") {
      sizes_only = true;
    } else {
      std::fprintf(stderr, "usage: %s [--keys N] [--ranks N] [--directory DIR] [--seconds S] [--sizes-only]\n",
                   argv[0]);
      return arg == "--help" ? 0 : 2;
    }
  }
  if (!sizes_only)
    print_commits(s);
  measure_size(s, std::max<std::uint64_t>(1, s.keys));
  return 0;
}
