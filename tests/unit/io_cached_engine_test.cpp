#include "io/engine/uring_engine.hpp"
#include "io/make_engine.hpp"
#include "io/memory/backing.hpp"
#include "io/slab/slab_file.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <cstring>
#include <fstream>
#include <sys/vfs.h>
#include <thread>

namespace io_cached_engine_test {

// Transfers of files in the page cache only: kernel workers carry out large reads in parallel. The time of completion
// depends on them, and the result must not.

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

namespace fs = std::filesystem;

const fs::path memory_directory = "/dev/shm";

bool in_memory() {
  struct statfs system {};
  constexpr auto tmpfs = 0x01021994;
  if (::statfs(memory_directory.c_str(), &system) == 0 && system.f_type == tmpfs)
    return true;
  WARN("not run: " << memory_directory << " is no tmpfs");
  return false;
}

struct variant {
  const char* name;
  std::uint32_t workers;
  bool allow_uring = true;
  bool registered = true;
};

std::ostream& operator<<(std::ostream& out, const variant& v) {
  return out << v.name;
}

constexpr variant variants[] = {{"no worker", 0},
                                {"one worker", 1},
                                {"workers", 4},
                                {"workers, nothing registered", 4, true, false},
                                {"thread pool", 4, false}};

std::unique_ptr<engine> start(const variant& v, completion_log& log, std::uint32_t depth = 16) {
  engine_options options;
  options.depth = depth;
  options.threads = 4;
  options.kernel_workers = v.workers;
  options.kind = v.allow_uring ? engine_kind::automatic : engine_kind::threads;
  options.register_files = v.registered;
  options.register_buffers = v.registered;
  return make_engine(options, log.sink()).value();
}

/// Null, with a warning, where io_uring has not as many workers as the options say.
std::unique_ptr<engine> start_with_workers(const engine_options& options, completion_log& log) {
  auto made = uring_engine::start(options, log.sink());
  const auto wanted = "up to " + std::to_string(options.kernel_workers) + " workers";
  if (made && (*made)->describe().find(wanted) != std::string::npos)
    return std::move(*made);
  WARN("not run: no io_uring, or without a limit for its workers");
  return nullptr;
}

constexpr std::uint64_t block = page_alignment;
/// Left to workers, as reads.
constexpr std::uint64_t large = 128 * block;

bool all_are(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == value; });
}

/// The largest number of threads that serve one ring at this moment.
std::size_t workers_of_one_ring() {
  std::map<std::string, std::size_t> counts;
  std::error_code gone;
  for (const auto& task : fs::directory_iterator("/proc/self/task", gone)) {
    std::ifstream in(task.path() / "comm");
    std::string name;
    if (std::getline(in, name) && name.starts_with("iou-wrk-")) // and the id of the thread that they work for
      ++counts[name];
  }
  std::size_t most = 0;
  for (const auto& [name, count] : counts)
    most = std::max(most, count);
  return most;
}

} // namespace

TEST_CASE("cached engine: the backing storage of a file is detected", "[io][backing]") {
  scratch_directory scratch;
  const auto ends = make_pipe();
  CHECK(backing_of(-1) == backing::device);
  CHECK(backing_of(ends.read_end.get()) == backing::device);
  const unique_descriptor full(::open("/dev/full", O_RDWR | O_CLOEXEC));
  CHECK(backing_of(full.get()) == backing::device);
  const auto file = make_file(scratch / "file", block);
  const auto through_cache = backing_of(file.get());
  CHECK(through_cache != backing::device);
  if (through_cache == backing::cached_device && ::fcntl(file.get(), F_SETFL, O_DIRECT) == 0)
    CHECK(backing_of(file.get()) == backing::device);
  if (!in_memory())
    return;
  scratch_directory memory(memory_directory);
  const auto kept = make_file(memory / "file", block);
  CHECK(backing_of(kept.get()) == backing::memory);
  ::fcntl(kept.get(), F_SETFL, O_DIRECT); // which newer kernels take, to no effect
  CHECK(backing_of(kept.get()) == backing::memory);
}

TEST_CASE("cached engine: pages in the page cache are read back unchanged", "[io][engine][cached]") {
  if (!in_memory())
    return;
  const auto v = GENERATE(from_range(std::begin(variants), std::end(variants)));
  const auto seed = GENERATE(1, 2);
  INFO(v << ", seed " << seed);
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  scratch_directory scratch(memory_directory);
  constexpr std::uint64_t slots = 48;
  constexpr std::uint64_t slot = 2 * large;
  const auto opened = make_file(scratch / "file", slots * slot);
  aligned_buffer written(slots * slot);
  aligned_buffer read(slots * slot);
  fill_random(written.bytes(), random);
  std::vector<std::uint64_t> lengths; // on both sides of the part that is left to workers
  for (std::uint64_t i = 0; i < slots; ++i)
    lengths.push_back((random() % (slot / block) + 1) * block);
  completion_log log;
  auto io = start(v, log);
  const auto file = io->add_file(opened.get()).value();
  const auto from = io->add_buffer(written.bytes()).value();
  const auto into = io->add_buffer(read.bytes()).value();
  // Slots are written in two halves, and the first half is read back while the second is written.
  const auto submit = [&](operation op, std::uint64_t first, std::uint64_t first_tag) {
    std::vector<request> requests;
    for (auto i = first; i < first + slots / 2; ++i)
      requests.push_back({.op = op,
                          .file = file,
                          .file_offset = i * slot,
                          .data = (op == operation::read ? read : written).data() + i * slot,
                          .length = lengths[i],
                          .buffer = op == operation::read ? into : from,
                          .tag = first_tag + i});
    std::shuffle(requests.begin(), requests.end(), random);
    io->submit(requests);
  };
  submit(operation::write, 0, 0);
  log.wait_for(slots / 2);
  submit(operation::write, slots / 2, 0);
  submit(operation::read, 0, slots);
  log.wait_for(3 * slots / 2);
  submit(operation::read, slots / 2, slots);
  for (const auto& c : log.wait_for(2 * slots))
    if (c.status != errc::ok)
      FAIL("tag " << c.tag << ": " << to_string(c.status));
  for (std::uint64_t i = 0; i < slots; ++i)
    if (std::memcmp(written.data() + i * slot, read.data() + i * slot, lengths[i]) != 0)
      FAIL("slot " << i);
  CHECK(log.counts().size() == 2 * slots);
  CHECK(io->counters().unmatched == 0);
}

TEST_CASE("cached engine: a large read from the page cache that reaches the end of the file reports it",
          "[io][engine][cached]") {
  if (!in_memory())
    return;
  const auto v = GENERATE(from_range(std::begin(variants), std::end(variants)));
  INFO(v);
  scratch_directory scratch(memory_directory);
  const auto opened = make_file(scratch / "file", large + 1000);
  aligned_buffer memory(3 * large);
  std::fill_n(memory.data(), memory.size(), std::byte{0xff});
  completion_log log;
  auto io = start(v, log);
  const request what{.file = io->add_file(opened.get()).value(),
                     .data = memory.data(),
                     .length = 2 * large,
                     .buffer = io->add_buffer(memory.bytes()).value()};
  io->submit({&what, 1});
  CHECK(log.wait_for_tag(0).status == errc::slab_damaged);
  CHECK(all_are(memory.bytes().first(large + 1000), std::byte{0}));
  CHECK(all_are(memory.bytes().subspan(large + 1000), std::byte{0xff}));
}

TEST_CASE("cached engine: copies end exactly once when cancelled, late or stopped, and do not touch memory afterwards",
          "[io][engine][cached]") {
  if (!in_memory())
    return;
  const auto v = GENERATE(from_range(std::begin(variants), std::end(variants)));
  const auto seed = GENERATE(range(1, 5));
  INFO(v << ", seed " << seed);
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  constexpr std::uint64_t count = 200;
  scratch_directory scratch(memory_directory);
  const auto opened = make_file(scratch / "file", 16 * large); // of zeros
  aligned_buffer memory(count * large);
  completion_log log;
  auto io = start(v, log, 8);
  const auto file = io->add_file(opened.get()).value();
  const auto buffer = io->add_buffer(memory.bytes()).value();
  for (std::uint64_t tag = 0; tag < count; ++tag) {
    request what{.op = random() % 3 == 0 ? operation::write : operation::read,
                 .file = file,
                 .file_offset = random() % 16 * large,
                 .data = memory.data() + tag * large,
                 .length = large,
                 .buffer = buffer,
                 .tag = tag};
    if (random() % 4 == 0)
      what.deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 2000);
    io->submit({&what, 1});
    if (random() % 3 == 0)
      io->cancel(random() % (tag + 1));
  }
  const bool stop = seed % 2 == 0;
  if (stop)
    io->stop();
  const auto completions = log.wait_for(count);
  // All have ended: no write to their memory may follow.
  std::fill_n(memory.data(), memory.size(), std::byte{0xaa});
  for (const auto& c : completions) {
    const bool expected = c.status == errc::ok || c.status == errc::timeout || c.status == errc::cancelled ||
                          (stop && c.status == errc::shutting_down);
    if (!expected)
      FAIL("tag " << c.tag << ": " << to_string(c.status));
  }
  io->stop();
  CHECK(completions.size() == count);
  CHECK(log.counts().size() == count);
  CHECK(io->counters().unmatched == 0);
  CHECK(all_are(memory.bytes(), std::byte{0xaa}));
}

TEST_CASE("cached engine: writes to the page cache and other requests do not wait for each other",
          "[io][uring][cached]") {
  if (!in_memory())
    return;
  scratch_directory scratch(memory_directory);
  const auto opened = make_file(scratch / "file", large);
  const auto ends = make_pipe();
  aligned_buffer memory(large);
  completion_log log;
  engine_options options;
  options.depth = 1;
  const auto made = start_with_workers(options, log);
  if (!made)
    return;
  auto& io = *made;
  const auto buffer = io.add_buffer(memory.bytes()).value();
  const auto file = io.add_file(opened.get()).value();
  request hanging{.file = io.add_file(ends.read_end.get()).value(),
                  .data = memory.data(),
                  .length = block,
                  .buffer = buffer,
                  .tag = 0};
  request read{.file = file, .data = memory.data() + block, .length = large - block, .buffer = buffer, .tag = 1};
  io.submit({&hanging, 1}); // the pipe is empty: nothing else gets its place
  io.submit({&read, 1});
  for (std::uint64_t tag = 2; tag < 20; ++tag) {
    auto write = read;
    write.op = operation::write;
    write.tag = tag;
    io.submit({&write, 1});
  }
  for (std::uint64_t tag = 2; tag < 20; ++tag)
    CHECK(log.wait_for_tag(tag).status == errc::ok);
  CHECK(log.all().size() == 18);
  io.cancel(0);
  CHECK(log.wait_for_tag(0).status == errc::cancelled);
  CHECK(log.wait_for_tag(1).status == errc::ok);
}

TEST_CASE("cached engine: the number of kernel workers is limited as configured", "[io][uring][cached]") {
  if (!in_memory())
    return;
  constexpr std::uint64_t count = 400;
  scratch_directory scratch(memory_directory);
  const auto opened = make_file(scratch / "file", 16 * large);
  aligned_buffer memory(64 * large);
  completion_log log;
  engine_options options;
  options.kernel_workers = 2;
  const auto made = start_with_workers(options, log);
  if (!made)
    return;
  auto& io = *made;
  const auto file = io.add_file(opened.get()).value();
  const auto buffer = io.add_buffer(memory.bytes()).value();
  std::vector<request> requests;
  for (std::uint64_t tag = 0; tag < count; ++tag)
    requests.push_back({.op = tag % 8 == 0 ? operation::write : operation::read,
                        .file = file,
                        .file_offset = tag % 16 * large,
                        .data = memory.data() + tag % 64 * large,
                        .length = large,
                        .buffer = buffer,
                        .tag = tag});
  io.submit(requests);
  std::size_t most = 0;
  while (log.all().size() < count)
    most = std::max(most, workers_of_one_ring());
  CHECK(most <= 2 + 2); // the kernel counts those for writes, of which one suffices, apart
}

} // namespace io_cached_engine_test
