// The I/O engine on 3FS's rings: correctness and speed. On a real mount, or on the stand-in of the tests, compared with
// as many threads that copy between the same file and the same memory.

#include "bench/measuring.hpp"
#include "io/make_engine.hpp"
#include "io/page.hpp"
#include "tests/named_memory.hpp"
#include "tests/usrbio/served_directory.hpp"

#include <CLI/CLI.hpp>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::bench;
using namespace troupe::io;
using clock_type = std::chrono::steady_clock;
using seconds = std::chrono::duration<double>;

struct settings {
  std::filesystem::path directory;
  std::filesystem::path stand_in;
  std::string library = "libhf3fs_api_shared.so";
  std::uint64_t size = 512ULL << 20U;
  double seconds_per_round = 1;
  int rounds = 3;
  std::uint32_t depth = 64;
  std::vector<std::uint64_t> page_sizes{64ULL << 10U, 512ULL << 10U, 2ULL << 20U};
};

/// The number of copy threads in the stand-in's daemon.
constexpr int copy_threads = 4;

/// A fully written file of random bytes; the destructor removes it.
class test_file {
public:
  test_file(const std::filesystem::path& directory, std::uint64_t size)
      : path_(directory / fmt::format("troupe-check-{}.tmp", ::getpid())),
        descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {
    if (descriptor_ < 0 || ::ftruncate(descriptor_, static_cast<off_t>(size)) != 0)
      die(system_error(errno, "cannot create " + path_.string()).text);
  }
  test_file(const test_file&) = delete;
  test_file& operator=(const test_file&) = delete;
  ~test_file() {
    ::close(descriptor_);
    ::unlink(path_.c_str());
  }

  int descriptor() const { return descriptor_; }

private:
  std::filesystem::path path_;
  int descriptor_;
};

struct measurement {
  double gigabytes_per_second = 0;
  double cores = 0;
  double microseconds_per_page = 0;
};

/// An engine with a file and memory that keeps requests in progress.
class load {
public:
  load(const settings& how, const usrbio_options& on, int descriptor, std::span<std::byte> memory)
      : how_(how), memory_(memory) {
    engine_options options;
    options.kind = engine_kind::usrbio;
    options.depth = how.depth;
    options.usrbio = on;
    engine_ = value_or_die(make_engine(options, [this](std::span<const completion> batch) { take(batch); }));
    file_ = value_or_die(engine_->add_file(descriptor));
    buffer_ = value_or_die(engine_->add_buffer(memory_));
  }

  std::string describe() const { return engine_->describe(); }

  /// Makes one request; returns its completion.
  completion once(operation op, std::uint64_t offset, std::byte* data, std::uint64_t length) {
    requests_left_ = 0;
    page_bytes_ = length;
    under_way_ = 1;
    const request what{op, file_, offset, data, length, buffer_, 0, clock_type::now() + std::chrono::seconds(60)};
    engine_->submit({&what, 1});
    std::unique_lock guard(mutex_);
    ended_.wait(guard, [this] { return under_way_ == 0; });
    return last_;
  }

  measurement run(operation op, std::uint64_t page_bytes) {
    op_ = op;
    page_bytes_ = page_bytes;
    requests_left_ = 1;
    pages_ = 0;
    failed_ = 0;
    const auto cpu_before = cpu_seconds();
    const auto begin = clock_type::now();
    until_ = begin + std::chrono::duration_cast<clock_type::duration>(seconds(how_.seconds_per_round));
    std::vector<request> first;
    for (std::uint64_t i = 0; i < how_.depth; ++i)
      first.push_back(random_request(i));
    under_way_ = how_.depth;
    engine_->submit(first);
    std::unique_lock guard(mutex_);
    ended_.wait(guard, [this] { return under_way_ == 0; });
    if (failed_ > 0)
      die(fmt::format("{} of {} requests failed, the last one with {} (errno {})", failed_, pages_.load(),
                      to_string(last_.status), last_.system_errno));
    const auto took = seconds(clock_type::now() - begin).count();
    const auto cpu = cpu_seconds() - cpu_before;
    const auto pages = static_cast<double>(pages_);
    return {pages * static_cast<double>(page_bytes) / took / 1e9, cpu / took, cpu * 1e6 / pages};
  }

private:
  request random_request(std::uint64_t tag) {
    return {.op = op_,
            .file = file_,
            .file_offset = random_() % (how_.size / page_bytes_) * page_bytes_,
            .data = memory_.data() + tag * page_bytes_,
            .length = page_bytes_,
            .buffer = buffer_,
            .tag = tag,
            .deadline = clock_type::now() + std::chrono::seconds(60)};
  }

  void take(std::span<const completion> batch) {
    const bool go_on = requests_left_ != 0 && clock_type::now() < until_;
    pages_ += batch.size();
    next_.clear();
    for (const auto& c : batch) {
      if (go_on)
        next_.push_back(random_request(c.tag));
      failed_ += c.status == errc::ok ? 0 : 1;
      last_ = c;
    }
    if (go_on)
      return engine_->submit(next_);
    std::lock_guard guard(mutex_);
    under_way_ -= static_cast<std::uint32_t>(batch.size());
    ended_.notify_one();
  }

  const settings& how_;
  const std::span<std::byte> memory_;
  operation op_ = operation::read;
  std::uint64_t page_bytes_ = 0;
  std::uint64_t requests_left_ = 0;
  std::uint32_t file_ = 0;
  std::uint32_t buffer_ = 0;
  std::mt19937_64 random_{1};
  clock_type::time_point until_;
  std::atomic<std::uint64_t> pages_{0};
  std::uint64_t failed_ = 0;
  std::vector<request> next_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::uint32_t under_way_ = 0;
  completion last_;
  std::unique_ptr<engine> engine_;
};

/// The speed of threads that only copy between file and memory.
double copies_alone(const settings& how, int descriptor, std::span<std::byte> memory, operation op,
                    std::uint64_t page_bytes) {
  std::atomic<std::uint64_t> pages{0};
  std::vector<std::thread> threads;
  const auto begin = clock_type::now();
  const auto until = begin + std::chrono::duration_cast<clock_type::duration>(seconds(how.seconds_per_round));
  for (int t = 0; t < copy_threads; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<std::uint64_t>(t));
      while (clock_type::now() < until) {
        auto* const at = memory.data() + random() % (memory.size() / page_bytes) * page_bytes;
        const auto offset = static_cast<off_t>(random() % (how.size / page_bytes) * page_bytes);
        const auto moved = op == operation::read ? ::pread(descriptor, at, page_bytes, offset)
                                                 : ::pwrite(descriptor, at, page_bytes, offset);
        if (moved != static_cast<ssize_t>(page_bytes))
          die(system_error(errno, "a plain copy failed").text);
        ++pages;
      }
    });
  for (auto& t : threads)
    t.join();
  return static_cast<double>(pages * page_bytes) / seconds(clock_type::now() - begin).count() / 1e9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Checks the engine, and fills the file. Returns false if any check fails.
bool check(const settings& how, load& engine, int descriptor, std::span<std::byte> memory) {
  constexpr std::uint64_t page = 1ULL << 20U;
  bool sound = true;
  const auto row = [&](const char* what, bool is_so) {
    fmt::print("{:<60}  {}\n", what, is_so ? "yes" : "NO");
    sound = sound && is_so;
  };
  row("a hole is an error", engine.once(operation::read, 0, memory.data(), page_alignment).status == errc::io_error);
  const auto pages = how.size / page;
  bool written = true;
  for (std::uint64_t i = 0; i < pages; ++i) {
    std::mt19937_64 random(i);
    std::generate_n(reinterpret_cast<std::uint64_t*>(memory.data()), page / 8, random);
    written = written && engine.once(operation::write, i * page, memory.data(), page).status == errc::ok;
  }
  row("every page is written", written);
  bool same = true;
  for (std::uint64_t i = pages; i-- > 0;) {
    std::mt19937_64 random(i);
    std::vector<std::uint64_t> expected(page / 8);
    std::generate_n(expected.data(), expected.size(), random);
    same = same && engine.once(operation::read, i * page, memory.data(), page).status == errc::ok &&
           std::memcmp(expected.data(), memory.data(), page) == 0;
  }
  row("every byte comes back", same);
  std::vector<char> by_kernel(page_alignment);
  std::mt19937_64 random(0);
  std::uint64_t first = 0;
  row("the file system shows the same bytes",
      ::pread(descriptor, by_kernel.data(), by_kernel.size(), 0) == static_cast<ssize_t>(by_kernel.size()) &&
          (std::memcpy(&first, by_kernel.data(), sizeof first), first == random()));
  row("behind the end there is nothing",
      engine.once(operation::read, how.size, memory.data(), page_alignment).status == errc::slab_damaged);
  return sound;
}

int run(const settings& how) {
  std::optional<test::served_directory> served;
  if (!how.stand_in.empty())
    served.emplace((how.stand_in / "troupe-usrbio-daemon").string(),
                   (how.stand_in / "libhf3fs_api_shared.so").string());
  usrbio_options on;
  if (served)
    on = served->options();
  else
    on.library = how.library;
  const auto directory = served ? served->path() : how.directory;
  on.directory = directory;
  const auto largest = *std::max_element(how.page_sizes.begin(), how.page_sizes.end());
  test::named_memory memory(std::max<std::uint64_t>(how.depth * largest, 1ULL << 20U));
  std::fill_n(memory.data(), memory.size(), std::byte{1});
  const test_file file(directory, how.size);
  load engine(how, on, file.descriptor(), memory.bytes());
  fmt::print("{}\n\n", engine.describe());
  if (!check(how, engine, file.descriptor(), memory.bytes()))
    return 1;
  fmt::print("\n{:>10}  {:<5}  {:>12}  {:>14}  {:>6}  {:>12}  {:>12}\n", "page", "op", "engine", "copies alone",
             "ratio", "cores/(GB/s)", "us per page");
  for (const auto page_bytes : how.page_sizes)
    for (const auto op : {operation::read, operation::write}) {
      std::vector<double> ours;
      std::vector<double> alone;
      std::vector<double> cores;
      std::vector<double> costs;
      for (int round = 0; round < how.rounds; ++round) {
        const auto x = engine.run(op, page_bytes);
        ours.push_back(x.gigabytes_per_second);
        cores.push_back(x.cores / x.gigabytes_per_second);
        costs.push_back(x.microseconds_per_page);
        if (served)
          alone.push_back(copies_alone(how, file.descriptor(), memory.bytes(), op, page_bytes));
      }
      fmt::print("{:>6} KiB  {:<5}  {:>7.3f} GB/s", page_bytes >> 10U, op == operation::read ? "read" : "write",
                 median(ours));
      if (served)
        fmt::print("  {:>9.3f} GB/s  {:>6.3f}", median(alone), median(ours) / median(alone));
      else
        fmt::print("  {:>14}  {:>6}", "-", "-");
      fmt::print("  {:>12.3f}  {:>12.2f}\n", median(cores), median(costs));
      std::cout.flush();
    }
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  settings how;
  CLI::App app{"The I/O engine on 3FS's rings: correctness and speed"};
  auto* const directory =
      app.add_option("--directory", how.directory, "A directory on 3FS")->check(CLI::ExistingDirectory);
  app.add_option("--stand-in", how.stand_in, "Directory of the stand-in's library and daemon, used instead of 3FS")
      ->check(CLI::ExistingDirectory)
      ->excludes(directory);
  app.add_option("--library", how.library, "3FS's client library");
  app.add_option("--size", how.size, "Bytes of the test file")->transform(CLI::AsSizeValue(false));
  app.add_option("--seconds", how.seconds_per_round, "Length of a round")->check(CLI::PositiveNumber);
  app.add_option("--rounds", how.rounds, "Rounds of each")->check(CLI::PositiveNumber);
  app.add_option("--depth", how.depth, "Requests in progress")->check(CLI::Range(1, 4096));
  app.add_option("--page-bytes", how.page_sizes, "Request sizes")->transform(CLI::AsSizeValue(false));
  CLI11_PARSE(app, argc, argv);
  if (how.directory.empty() && how.stand_in.empty())
    die("needs --directory DIR on 3FS, or --stand-in DIR");
  how.size = std::max<std::uint64_t>(how.size >> 21U, 8) << 21U;
  return run(how);
}
