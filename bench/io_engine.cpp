// Bandwidth of the I/O engine compared with that of fio: the same file, memory, request sizes and depth, random
// offsets, direct I/O where supported, registered buffers and files on both sides; alternating short rounds, since a
// disk's bandwidth drifts. The memory matters: on virtual machines reading into some pages is two to three times as
// fast as into others.

#include "base/unique_descriptor.hpp"
#include "bench/measuring.hpp"
#include "io/make_engine.hpp"
#include "io/memory/backing.hpp"
#include "io/page.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::bench;
using namespace troupe::io;
using seconds = std::chrono::duration<double>;
using clock_type = std::chrono::steady_clock;

struct settings {
  std::filesystem::path directory = ".";
  std::uint64_t size = 2ULL << 30U;
  double seconds_per_round = 2;
  int rounds = 9;
  std::vector<std::uint64_t> page_sizes{64ULL << 10U, 512ULL << 10U, 2ULL << 20U};
  std::uint32_t depth = 32;
  bool json = false;
  bool without_uring = false;
  bool buffered = false;
  bool alone = false;
  bool both = false;
  std::uint32_t kernel_workers = default_kernel_workers();
};

/// The operations of a row; `both`: each request is a read or a write at random.
enum class direction : std::uint8_t { read, write, both };

const char* name_of(direction what) {
  constexpr std::array names{"read", "write", "both"};
  return names[static_cast<std::size_t>(what)];
}

struct measurement {
  double gigabytes_per_second = 0;
  /// Cores busy on average, user and kernel.
  double cores = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Memory that fio can map as well, through /proc.
class shared_memory {
public:
  explicit shared_memory(std::uint64_t bytes)
      : bytes_(bytes), descriptor_(::memfd_create("troupe-bench", MFD_CLOEXEC)) {
    // fio sizes the file itself, to one byte less than this.
    if (!descriptor_ || ::ftruncate(descriptor_.get(), static_cast<off_t>(bytes + page_alignment)) != 0)
      die(system_error(errno, "cannot create memory").text);
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_.get(), 0);
    if (at == MAP_FAILED)
      die(system_error(errno, "cannot map memory").text);
    data_ = static_cast<std::byte*>(at);
    ::madvise(data_, bytes, MADV_HUGEPAGE);
    std::mt19937_64 random(1);
    std::generate_n(data_, bytes, [&] { return static_cast<std::byte>(random()); });
  }
  shared_memory(const shared_memory&) = delete;
  shared_memory& operator=(const shared_memory&) = delete;
  ~shared_memory() { ::munmap(data_, bytes_); }

  std::span<std::byte> bytes() const { return {data_, bytes_}; }
  std::string name() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), descriptor_.get()); }

private:
  std::uint64_t bytes_;
  unique_descriptor descriptor_;
  std::byte* data_ = nullptr;
};

/// A file of random bytes with all of its blocks written; the destructor removes it.
class test_file {
public:
  test_file(const std::filesystem::path& directory, std::uint64_t size, bool try_direct)
      : path_(directory / fmt::format("troupe-bench-io-{}.tmp", ::getpid())),
        descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {
    if (!descriptor_)
      die(system_error(errno, "cannot create " + path_.string()).text);
    direct_ = try_direct && ::fcntl(descriptor_.get(), F_SETFL, O_DIRECT) == 0;
    if (const auto code = ::posix_fallocate(descriptor_.get(), 0, static_cast<off_t>(size)); code != 0)
      die(system_error(code, "cannot allocate " + path_.string()).text);
    constexpr std::uint64_t chunk = 2 << 20;
    const shared_memory memory(chunk);
    for (std::uint64_t at = 0; at < size; at += chunk)
      if (::pwrite(descriptor_.get(), memory.bytes().data(), chunk, static_cast<off_t>(at)) != chunk)
        die(system_error(errno, "cannot write " + path_.string()).text);
    ::fsync(descriptor_.get());
  }
  test_file(const test_file&) = delete;
  test_file& operator=(const test_file&) = delete;
  ~test_file() { ::unlink(path_.c_str()); }

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_.get(); }
  bool direct() const { return direct_; }
  const char* kind() const {
    return backing_of(descriptor()) == backing::device ? "direct I/O" : "through the page cache";
  }

private:
  std::filesystem::path path_;
  unique_descriptor descriptor_;
  bool direct_ = false;
};

/// Keeps `depth` random requests of one size in progress for a while. The sink replaces completed ones in batches, as a
/// busy I/O worker does.
class load {
public:
  load(const settings& how, const test_file& file, const shared_memory& memory, direction what,
       std::uint64_t page_bytes)
      : how_(how), what_(what), page_bytes_(page_bytes), memory_(memory.bytes()) {
    engine_options options;
    options.depth = how.depth;
    options.threads = how.depth;
    options.kind = how.without_uring ? engine_kind::threads : engine_kind::automatic;
    options.kernel_workers = how.kernel_workers;
    engine_ = value_or_die(make_engine(options, [this](std::span<const completion> batch) { take(batch); }));
    file_ = value_or_die(engine_->add_file(file.descriptor()));
    buffer_ = value_or_die(engine_->add_buffer(memory_));
  }

  measurement run() {
    std::vector<request> first;
    for (std::uint64_t i = 0; i < how_.depth; ++i)
      first.push_back(random_request(i));
    const auto cpu_before = cpu_seconds();
    const auto begin = clock_type::now();
    until_ = begin + std::chrono::duration_cast<clock_type::duration>(seconds(how_.seconds_per_round));
    bytes_ = 0;
    under_way_ = how_.depth;
    engine_->submit(first);
    std::unique_lock guard(mutex_);
    ended_.wait(guard, [this] { return under_way_ == 0; });
    const auto took = seconds(clock_type::now() - begin).count();
    return {static_cast<double>(bytes_) / took / 1e9, (cpu_seconds() - cpu_before) / took};
  }

  std::string describe() const { return engine_->describe(); }

private:
  operation next_operation() {
    if (what_ == direction::both)
      return random_() % 2 == 0 ? operation::read : operation::write;
    return what_ == direction::read ? operation::read : operation::write;
  }

  request random_request(std::uint64_t tag) {
    return {.op = next_operation(),
            .file = file_,
            .file_offset = random_() % (how_.size / page_bytes_) * page_bytes_,
            .data = memory_.data() + tag * page_bytes_,
            .length = page_bytes_,
            .buffer = buffer_,
            .tag = tag,
            .deadline = clock_type::now() + std::chrono::seconds(30)};
  }

  void take(std::span<const completion> batch) {
    const bool go_on = clock_type::now() < until_;
    next_.clear();
    for (const auto& c : batch) {
      if (c.status != errc::ok)
        die(fmt::format("a request ended with {} (errno {})", to_string(c.status), c.system_errno));
      if (go_on)
        next_.push_back(random_request(c.tag));
    }
    bytes_ += batch.size() * page_bytes_;
    if (go_on)
      return engine_->submit(next_);
    std::lock_guard guard(mutex_);
    under_way_ -= static_cast<std::uint32_t>(batch.size());
    ended_.notify_one();
  }

  const settings& how_;
  const direction what_;
  const std::uint64_t page_bytes_;
  const std::span<std::byte> memory_;
  std::uint32_t file_ = 0;
  std::uint32_t buffer_ = 0;
  std::mt19937_64 random_{std::random_device{}()};
  clock_type::time_point until_;
  std::atomic<std::uint64_t> bytes_{0};
  std::vector<request> next_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::uint32_t under_way_ = 0;
  std::unique_ptr<engine> engine_;
};

bool have_fio() {
  return std::system("command -v fio >/dev/null 2>&1") == 0;
}

measurement run_fio(const settings& how, const test_file& file, const shared_memory& memory, direction what,
                    std::uint64_t page_bytes) {
  const auto command = fmt::format(
      "fio --name=troupe --filename='{}' --size={} --ioengine=io_uring --direct={} --iodepth={} --rw=rand{} --bs={} "
      "--fixedbufs=1 --registerfiles=1 --norandommap --randrepeat=0 --fallocate=posix --overwrite=1 --time_based "
      "--runtime={}ms --thread --iomem=mmapshared:{} --output-format=json",
      file.path().string(), how.size, file.direct() ? 1 : 0, how.depth, what == direction::both ? "rw" : name_of(what),
      page_bytes, static_cast<int>(how.seconds_per_round * 1000), memory.name());
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(::popen(command.c_str(), "r"), ::pclose);
  if (!output)
    die("cannot start fio");
  std::string text;
  std::array<char, 4096> chunk{};
  while (const auto got = std::fread(chunk.data(), 1, chunk.size(), output.get()))
    text.append(chunk.data(), got);
  const auto report = nlohmann::json::parse(text.substr(std::min(text.find('{'), text.size())), nullptr, false);
  if (report.is_discarded() || report["jobs"][0]["error"] != 0)
    die("fio failed: " + text);
  const auto& job = report["jobs"][0];
  return {(job["read"]["bw_bytes"].get<double>() + job["write"]["bw_bytes"].get<double>()) / 1e9,
          (job["usr_cpu"].get<double>() + job["sys_cpu"].get<double>()) / 100};
}

struct row {
  std::uint64_t page_bytes = 0;
  direction what = direction::read;
  std::vector<measurement> ours;
  std::vector<measurement> fio;

  static double middle(const std::vector<measurement>& of, double measurement::*what) {
    std::vector<double> values;
    for (const auto& m : of)
      values.push_back(m.*what);
    return values.empty() ? 0 : median(std::move(values));
  }

  static std::vector<double> bandwidths(const std::vector<measurement>& of) {
    std::vector<double> out;
    for (const auto& m : of)
      out.push_back(m.gigabytes_per_second);
    return out;
  }

  double our_bandwidth() const { return middle(ours, &measurement::gigabytes_per_second); }
  double fio_bandwidth() const { return middle(fio, &measurement::gigabytes_per_second); }
  double our_cores() const { return middle(ours, &measurement::cores); }
  double fio_cores() const { return middle(fio, &measurement::cores); }
};

row measure(const settings& how, const test_file& file, direction what, std::uint64_t page_bytes, bool with_fio) {
  row out{page_bytes, what, {}, {}};
  const shared_memory memory(how.depth * page_bytes);
  load our_load(how, file, memory, what, page_bytes);
  for (int round = 0; round < how.rounds; ++round) {
    // The order alternates, so that a steady drift favours neither side.
    const bool fio_first = round % 2 == 0;
    if (with_fio && fio_first)
      out.fio.push_back(run_fio(how, file, memory, what, page_bytes));
    out.ours.push_back(our_load.run());
    if (with_fio && !fio_first)
      out.fio.push_back(run_fio(how, file, memory, what, page_bytes));
  }
  return out;
}

nlohmann::json to_json(const row& r) {
  nlohmann::json out{{"page_bytes", r.page_bytes},
                     {"operation", name_of(r.what)},
                     {"gbps", r.our_bandwidth()},
                     {"cores", r.our_cores()},
                     {"gbps_of_rounds", r.bandwidths(r.ours)}};
  if (!r.fio.empty()) {
    out["fio_gbps"] = r.fio_bandwidth();
    out["fio_cores"] = r.fio_cores();
    out["fio_gbps_of_rounds"] = r.bandwidths(r.fio);
    out["ratio"] = r.our_bandwidth() / r.fio_bandwidth();
  }
  return out;
}

void print_row(const row& r) {
  fmt::print("{:>6} KiB  {:<5}  {:>6.3f} GB/s  {:>5.2f}", r.page_bytes >> 10U, name_of(r.what), r.our_bandwidth(),
             r.our_cores());
  if (!r.fio.empty())
    fmt::print("  {:>6.3f} GB/s  {:>5.2f}  {:>6.3f}", r.fio_bandwidth(), r.fio_cores(),
               r.our_bandwidth() / r.fio_bandwidth());
  fmt::print("\n");
  std::fflush(stdout);
}

int run(const settings& how) {
  const bool with_fio = !how.alone && have_fio();
  const test_file file(how.directory, how.size, !how.buffered);
  nlohmann::json rows = nlohmann::json::array();
  if (!how.json) {
    const shared_memory memory(how.depth * page_alignment);
    const load probe(how, file, memory, direction::read, page_alignment);
    fmt::print("io engine: {}\nfile: {} MiB in {}, {}; depth {}; medians of {} rounds of {} s{}\n\n", probe.describe(),
               how.size >> 20U, std::filesystem::absolute(how.directory).string(), file.kind(), how.depth, how.rounds,
               how.seconds_per_round, with_fio ? ", alternating with fio" : "; without fio");
    fmt::print("      page  op          engine  cores{}\n", with_fio ? "          fio  cores   ratio" : "");
  }
  for (const auto page_bytes : how.page_sizes)
    for (const auto what : {direction::read, direction::write, direction::both}) {
      if (what == direction::both && !how.both)
        continue;
      const auto measured = measure(how, file, what, page_bytes, with_fio);
      if (how.json)
        rows.push_back(to_json(measured));
      else
        print_row(measured);
    }
  if (how.json)
    std::cout << rows.dump(2) << '\n';
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  settings how;
  CLI::App app{"Bandwidth of the I/O engine compared with that of fio"};
  app.add_option("--directory", how.directory, "Where to put the test file; the disk to measure")
      ->check(CLI::ExistingDirectory);
  app.add_option("--size", how.size, "Bytes of the test file")->transform(CLI::AsSizeValue(false));
  app.add_option("--seconds", how.seconds_per_round, "Length of a round")->check(CLI::PositiveNumber);
  app.add_option("--rounds", how.rounds, "Rounds of each, alternating")->check(CLI::PositiveNumber);
  app.add_option("--depth", how.depth, "Requests in progress")->check(CLI::Range(1, 4096));
  app.add_option("--page-bytes", how.page_sizes, "Request sizes")->transform(CLI::AsSizeValue(false));
  app.add_flag("--json", how.json, "Print JSON instead of a table");
  app.add_flag("--buffered", how.buffered, "Use the page cache also where direct I/O is possible");
  app.add_flag("--alone", how.alone, "Leave fio out");
  app.add_flag("--both", how.both, "Measure reads and writes at once as well");
  app.add_option("--kernel-workers", how.kernel_workers,
                 "Threads of the kernel that copy for cached files; 0: the engine's own thread does");
  app.add_flag("--threads", how.without_uring, "Measure the thread pool that replaces io_uring");
  CLI11_PARSE(app, argc, argv);
  how.size = std::max<std::uint64_t>(how.size >> 21U, 1) << 21U;
  return run(how);
}
