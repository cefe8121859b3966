#include "io/make_engine.hpp"
#include "io/slab/slab_file.hpp"
#include "tests/catch.hpp"
#include "tests/named_memory.hpp"
#include "tests/unit/io_support.hpp"
#include "tests/usrbio/served_directory.hpp"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>
#include <thread>

namespace io_engine_test {

// The requirements of every engine, whatever its implementation.

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;

namespace {

struct variant {
  const char* name;
  engine_kind kind;
  bool registered = true;
  /// The variant uses a file in /dev/shm.
  bool named_memory = false;

  bool on_3fs() const { return kind == engine_kind::usrbio; }
};

std::ostream& operator<<(std::ostream& out, const variant& v) {
  return out << v.name;
}

constexpr variant variants[] = {{"io_uring", engine_kind::automatic},
                                {"io_uring, nothing registered", engine_kind::automatic, false},
                                {"thread pool", engine_kind::threads},
                                {"usrbio, by copies", engine_kind::usrbio},
                                {"usrbio", engine_kind::usrbio, true, true}};

/// The directory for the files and the memory of a variant.
class place {
public:
  explicit place(const variant& v) : variant_(v) {
    if (v.on_3fs())
      served_.emplace(TROUPE_USRBIO_DAEMON, TROUPE_USRBIO_LIBRARY);
    scratch_.emplace(served_ ? served_->path() : std::filesystem::temp_directory_path());
  }

  std::filesystem::path operator/(const std::string& name) const { return *scratch_ / name; }

  engine_options options() const {
    engine_options out;
    out.kind = variant_.kind;
    out.register_files = variant_.registered;
    out.register_buffers = variant_.registered;
    if (served_)
      out.usrbio = served_->options();
    return out;
  }

  std::unique_ptr<engine> start(completion_log& log, std::uint32_t depth = 32) const {
    auto how = options();
    how.depth = depth;
    how.threads = 4;
    auto made = make_engine(how, log.sink());
    INFO((made ? std::string() : to_string(made.error())));
    REQUIRE(made.has_value());
    return std::move(*made);
  }

  /// Files that are read before they are written have no holes there.
  unique_descriptor file(const std::string& name, std::uint64_t size) const {
    return served_ ? make_written_file(*this / name, size) : make_file(*this / name, size);
  }

private:
  const variant& variant_;
  std::optional<served_directory> served_;
  std::optional<scratch_directory> scratch_;
};

/// Memory of a variant.
class memory_of {
public:
  memory_of(const variant& v, std::size_t size) {
    if (v.named_memory)
      named_.emplace(size);
    else
      own_.emplace(size);
  }

  std::span<std::byte> bytes() { return named_ ? named_->bytes() : own_->bytes(); }
  std::byte* data() { return bytes().data(); }
  std::size_t size() { return bytes().size(); }

private:
  std::optional<aligned_buffer> own_;
  std::optional<named_memory> named_;
};

constexpr std::uint64_t block = page_alignment;

} // namespace

TEST_CASE("engine: pages are read back from where they were written, many at a time", "[io][engine]") {
  const auto v = GENERATE(from_range(std::begin(variants), std::end(variants)));
  const auto seed = GENERATE(1, 2, 3);
  INFO(v << ", seed " << seed);
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  const place scratch(v);
  constexpr std::uint64_t slots = 300;
  const slab_spec spec{.path = scratch / "slab",
                       .ns = {1, 2},
                       .namespace_name = "test",
                       .rank = 0,
                       .slot_bytes = slot_bytes(3 * block),
                       .slots = slots};
  auto slab = slab_file::open(spec);
  REQUIRE(slab.has_value());
  memory_of memory(v, slots * spec.slot_bytes);
  completion_log log;
  auto io = scratch.start(log);
  const auto file = io->add_file(slab->descriptor()).value();
  const auto buffer = io->add_buffer(memory.bytes()).value();

  const auto slot_memory = [&](std::uint64_t i) {
    return memory.bytes().subspan(i * spec.slot_bytes, spec.slot_bytes);
  };
  const auto identity = [&](std::uint64_t slot) {
    return page_identity{.ns = spec.ns,
                         .key = {7, slot},
                         .rank = 0,
                         .where = {static_cast<slot_number>(slot), 1},
                         .payload_bytes = 3 * block - 5};
  };
  // Slot i of the file uses another place in memory, in random order.
  std::vector<std::uint64_t> places(slots);
  for (std::uint64_t i = 0; i < slots; ++i)
    places[i] = i;
  const auto submit_all = [&](operation op, std::uint64_t first_tag) {
    std::vector<request> requests;
    for (std::uint64_t slot = 0; slot < slots; ++slot)
      requests.push_back({.op = op,
                          .file = file,
                          .file_offset = slot * spec.slot_bytes,
                          .data = slot_memory(places[slot]).data(),
                          .length = spec.slot_bytes,
                          .buffer = buffer,
                          .tag = first_tag + slot});
    std::shuffle(requests.begin(), requests.end(), random);
    for (std::size_t at = 0; at < requests.size();) { // in batches of any size
      const auto count = std::min<std::size_t>(requests.size() - at, random() % 40 + 1);
      io->submit(std::span(requests).subspan(at, count));
      at += count;
    }
  };
  std::shuffle(places.begin(), places.end(), random);
  for (std::uint64_t slot = 0; slot < slots; ++slot) {
    fill_random(slot_memory(places[slot]), random);
    seal_page(slot_memory(places[slot]), identity(slot));
  }
  submit_all(operation::write, 0);
  log.wait_for(slots);
  std::fill_n(memory.data(), memory.size(), std::byte{0});
  std::shuffle(places.begin(), places.end(), random);
  submit_all(operation::read, slots);
  const auto completions = log.wait_for(2 * slots);
  for (std::uint64_t slot = 0; slot < slots; ++slot)
    if (verify_page(slot_memory(places[slot]), identity(slot)) != errc::ok)
      FAIL("slot " << slot);
  for (const auto& c : completions)
    if (c.status != errc::ok)
      FAIL("tag " << c.tag << ": " << to_string(c.status));
  for (const auto& [tag, count] : log.counts())
    if (count != 1)
      FAIL("tag " << tag << " was completed " << count << " times");
  const auto counters = io->counters();
  CHECK(counters.submitted == 2 * slots);
  CHECK(counters.completed == 2 * slots);
  CHECK(counters.unmatched == 0);
}

TEST_CASE("engine: a file that ends early is reported with the bytes that were read", "[io][engine]") {
  const auto v = GENERATE(from_range(std::begin(variants), std::end(variants)));
  const bool direct = GENERATE(false, true);
  INFO(v << (direct ? ", direct" : ""));
  const place scratch(v);
  const auto opened = scratch.file("file", 3 * block + 1000);
  if (direct && ::fcntl(opened.get(), F_SETFL, O_DIRECT) != 0)
    return; // tmpfs of older kernels
  memory_of memory(v, 8 * block);
  completion_log log;
  auto io = scratch.start(log);
  const auto file = io->add_file(opened.get()).value();
  const auto buffer = io->add_buffer(memory.bytes()).value();
  std::fill_n(memory.data(), memory.size(), std::byte{0xff});
  const auto read = [&](std::uint64_t tag, std::uint64_t offset) {
    io->submit(std::vector{request{.file = file,
                                   .file_offset = offset,
                                   .data = memory.data(),
                                   .length = 4 * block,
                                   .buffer = buffer,
                                   .tag = tag}});
    return log.wait_for_tag(tag).status;
  };
  CHECK(read(1, 0) == errc::slab_damaged);         // ends inside a sector
  CHECK(read(2, 8 * block) == errc::slab_damaged); // begins behind the end
  CHECK(memory.data()[3 * block + 999] == std::byte{0});
  CHECK(memory.data()[4 * block] == std::byte{0xff}); // nothing beyond the request
  REQUIRE(::ftruncate(opened.get(), 2 * block) == 0);
  CHECK(read(3, 0) == errc::slab_damaged); // ends at a block
  CHECK(log.all().size() == 3);
}

TEST_CASE("engine: system errors of a transfer are reported", "[io][engine]") {
  const auto v = GENERATE(from_range(std::begin(variants), std::end(variants)));
  INFO(v);
  const place scratch(v);
  const auto good = scratch.file("file", block);
  const unique_descriptor read_only(::open((scratch / "file").c_str(), O_RDONLY | O_CLOEXEC));
  const unique_descriptor full(::open("/dev/full", O_RDWR | O_CLOEXEC));
  const int no_right = v.on_3fs() ? EACCES : EBADF;
  memory_of memory(v, block);
  completion_log log;
  auto io = scratch.start(log);
  const auto read_only_file = io->add_file(read_only.get()).value();
  const auto buffer = io->add_buffer(memory.bytes()).value();
  request what{
      .op = operation::write, .file = read_only_file, .data = memory.data(), .length = block, .buffer = buffer};
  io->submit({&what, 1});
  const auto refused = log.wait_for_tag(0);
  CHECK(refused.status == errc::io_error);
  CHECK(refused.system_errno == no_right);
  const auto full_file = io->add_file(full.get());
  if (v.on_3fs()) {
    REQUIRE_FALSE(full_file.has_value());
    CHECK(full_file.error().code == errc::invalid_argument);
    return;
  }
  what.file = full_file.value();
  what.tag = 1;
  io->submit({&what, 1});
  const auto no_space = log.wait_for_tag(1);
  CHECK(no_space.status == errc::no_space);
  CHECK(no_space.system_errno == ENOSPC);
}

TEST_CASE("engine: invalid requests complete with an error and touch nothing", "[io][engine]") {
  const auto v = GENERATE(from_range(std::begin(variants), std::end(variants)));
  INFO(v);
  const place scratch(v);
  const auto opened = scratch.file("file", 4 * block);
  memory_of memory(v, 2 * block);
  completion_log log;
  auto io = scratch.start(log);
  const auto file = io->add_file(opened.get()).value();
  const auto buffer = io->add_buffer(memory.bytes()).value();
  const request good{.file = file, .data = memory.data(), .length = block, .buffer = buffer, .tag = 0};
  std::vector<request> requests(6, good);
  for (std::size_t i = 0; i < requests.size(); ++i)
    requests[i].tag = i;
  requests[1].file = file + 1;
  requests[2].buffer = buffer + 1;
  requests[3].length = 3 * block;
  requests[4].data = nullptr;
  requests[5].length = 0;
  io->submit(requests);
  io->submit({});
  log.wait_for(6);
  CHECK(log.wait_for_tag(0).status == errc::ok);
  CHECK(log.wait_for_tag(1).status == errc::invalid_argument);
  CHECK(log.wait_for_tag(2).status == errc::invalid_argument);
  CHECK(log.wait_for_tag(3).status == errc::out_of_range);
  CHECK(log.wait_for_tag(4).status == errc::invalid_argument);
  CHECK(log.wait_for_tag(5).status == errc::invalid_argument);
  io->remove_file(file);
  io->remove_buffer(buffer);
  io->remove_file(file); // again, and unknown ones: nothing
  io->remove_buffer(buffer);
  io->remove_buffer(1'000'000);
  io->submit({&good, 1});
  CHECK(log.wait_for(7)[6].status == errc::invalid_argument);
}

TEST_CASE("engine: a trim frees the disk space of a range, which reads as zeroes", "[io][engine]") {
  const auto v = GENERATE(from_range(std::begin(variants), std::end(variants)));
  INFO(v);
  const place scratch(v);
  const auto opened = scratch.file("file", 8 * block);
  memory_of memory(v, 8 * block);
  std::ranges::fill(memory.bytes(), std::byte{0x5a});
  completion_log log;
  auto io = scratch.start(log);
  const auto file = io->add_file(opened.get()).value();
  const auto buffer = io->add_buffer(memory.bytes()).value();
  const request whole{
      .op = operation::write, .file = file, .data = memory.data(), .length = 8 * block, .buffer = buffer, .tag = 1};
  io->submit({&whole, 1});
  CHECK(log.wait_for_tag(1).status == errc::ok);
  // No memory, and no buffer of that number.
  const request trim{
      .op = operation::trim, .file = file, .file_offset = 2 * block, .length = 3 * block, .buffer = 77, .tag = 2};
  io->submit({&trim, 1});
  const auto trimmed = log.wait_for_tag(2);
  if (v.on_3fs()) {
    CHECK(trimmed.status == errc::io_error);
    CHECK(trimmed.system_errno == EOPNOTSUPP);
    return;
  }
  CHECK(trimmed.status == errc::ok);
  struct stat status {};
  REQUIRE(::fstat(opened.get(), &status) == 0);
  CHECK(status.st_size == static_cast<off_t>(8 * block));
  CHECK(static_cast<std::uint64_t>(status.st_blocks) * 512 == 5 * block);
  auto read = whole;
  read.op = operation::read;
  read.tag = 3;
  io->submit({&read, 1});
  CHECK(log.wait_for_tag(3).status == errc::ok);
  for (std::uint64_t i = 0; i < 8; ++i) {
    const auto expected = i >= 2 && i < 5 ? std::byte{0} : std::byte{0x5a};
    CHECK(std::ranges::all_of(memory.bytes().subspan(i * block, block), [&](std::byte x) { return x == expected; }));
  }
  auto nothing = trim;
  nothing.length = 0;
  nothing.tag = 4;
  io->submit({&nothing, 1});
  CHECK(log.wait_for_tag(4).status == errc::invalid_argument);
  auto beyond = trim;
  beyond.file_offset = ~std::uint64_t{0} - block;
  beyond.tag = 5;
  io->submit({&beyond, 1});
  CHECK(log.wait_for_tag(5).status == errc::out_of_range);
}

TEST_CASE("engine: files and buffers are added and removed", "[io][engine]") {
  const auto v = GENERATE(from_range(std::begin(variants), std::end(variants)));
  INFO(v);
  const place scratch(v);
  completion_log log;
  auto io = scratch.start(log);
  for (std::uint64_t round = 0; round < 200; ++round) {
    const auto opened = scratch.file(std::to_string(round), block);
    memory_of memory(v, block);
    std::memcpy(memory.data(), &round, sizeof round);
    const auto file = io->add_file(opened.get()).value();
    const auto buffer = io->add_buffer(memory.bytes()).value();
    const request what{
        .op = operation::write, .file = file, .data = memory.data(), .length = block, .buffer = buffer, .tag = round};
    io->submit({&what, 1});
    REQUIRE(log.wait_for_tag(round).status == errc::ok);
    std::uint64_t found = ~round;
    REQUIRE(::pread(opened.get(), &found, sizeof found, 0) == sizeof found);
    REQUIRE(found == round);
    io->remove_file(file);
    io->remove_buffer(buffer);
  }
}

TEST_CASE("engine: exceeded limits of files and buffers are errors", "[io][engine]") {
  const bool uring = GENERATE(true, false);
  completion_log log;
  engine_options options;
  options.kind = uring ? engine_kind::automatic : engine_kind::threads;
  options.max_files = 1;
  options.max_buffers = 1;
  auto io = make_engine(options, log.sink()).value();
  aligned_buffer memory(block);
  const auto ends = make_pipe();
  CHECK(io->add_file(ends.read_end.get()).has_value());
  CHECK(io->add_file(ends.read_end.get()).error().code == errc::limit_exceeded);
  CHECK(io->add_buffer(memory.bytes()).has_value());
  CHECK(io->add_buffer(memory.bytes()).error().code == errc::limit_exceeded);
  CHECK(io->add_buffer({}).error().code == errc::invalid_argument);
}

TEST_CASE("engine: a request whose deadline has passed is not begun", "[io][engine]") {
  const auto v = GENERATE(from_range(std::begin(variants), std::end(variants)));
  INFO(v);
  const place scratch(v);
  const auto opened = scratch.file("file", block);
  memory_of memory(v, block);
  std::fill_n(memory.data(), block, std::byte{1});
  completion_log log;
  auto io = scratch.start(log);
  const request late{.op = operation::write,
                     .file = io->add_file(opened.get()).value(),
                     .data = memory.data(),
                     .length = block,
                     .buffer = io->add_buffer(memory.bytes()).value(),
                     .tag = 5,
                     .deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1)};
  io->submit({&late, 1});
  CHECK(log.wait_for_tag(5).status == errc::timeout);
  char found = 7;
  REQUIRE(::pread(opened.get(), &found, 1, 0) == 1);
  CHECK(found == 0);
}

TEST_CASE("engine: after stop everything is refused at once", "[io][engine]") {
  const auto v = GENERATE(from_range(std::begin(variants), std::end(variants)));
  INFO(v);
  const place scratch(v);
  memory_of memory(v, block);
  completion_log log;
  auto io = scratch.start(log);
  const auto buffer = io->add_buffer(memory.bytes()).value();
  io->stop();
  io->stop();
  const request late{.data = memory.data(), .length = block, .buffer = buffer, .tag = 9};
  io->submit({&late, 1});
  REQUIRE(log.all().size() == 1);
  CHECK(log.all()[0].status == errc::shutting_down);
  CHECK(io->add_file(0).error().code == errc::shutting_down);
  CHECK(io->add_buffer(memory.bytes()).error().code == errc::shutting_down);
  io->cancel(9);
  io->remove_buffer(buffer);
  CHECK(io->counters().submitted == 1);
  CHECK(io->counters().completed == 1);
}

TEST_CASE("engine: a completion sink may submit more requests and register memory", "[io][engine]") {
  const auto v = GENERATE(from_range(std::begin(variants), std::end(variants)));
  INFO(v);
  const place scratch(v);
  const auto opened = scratch.file("file", block);
  memory_of memory(v, block);
  memory_of more(v, block);
  completion_log log;
  engine* io = nullptr;
  std::atomic<int> left{1000};
  request what{.data = memory.data(), .length = block};
  auto options = scratch.options();
  options.threads = 3;
  const auto forward = log.sink();
  auto made = make_engine(options, [&](std::span<const completion> batch) {
                for (const auto& c : batch)
                  if (left.fetch_sub(1) > 0) {
                    auto next = what;
                    next.tag = c.tag + 1;
                    io->submit({&next, 1});
                  } else {
                    const auto id = io->add_buffer(more.bytes());
                    if (id)
                      io->remove_buffer(*id);
                  }
                forward(batch);
              }).value();
  io = made.get();
  what.file = made->add_file(opened.get()).value();
  what.buffer = made->add_buffer(memory.bytes()).value();
  what.tag = 0;
  made->submit({&what, 1});
  CHECK(log.wait_for(1001).size() == 1001);
  made->stop();
  CHECK(log.counts().size() == 1001);
}

TEST_CASE("engine: an engine stops while other threads add and remove buffers", "[io][engine]") {
  const auto v = GENERATE(from_range(std::begin(variants), std::end(variants)));
  INFO(v);
  const place scratch(v);
  memory_of memory(v, block);
  for (int round = 0; round < 100; ++round) {
    completion_log log;
    auto io = scratch.start(log, 4);
    std::vector<std::thread> callers;
    for (int i = 0; i < 2; ++i)
      callers.emplace_back([&] {
        // Ends once the engine refuses.
        while (const auto id = io->add_buffer(memory.bytes()))
          io->remove_buffer(*id);
      });
    io->stop();
    for (auto& x : callers)
      x.join();
  }
}

TEST_CASE("engine: every request ends exactly once, under concurrent submits, cancels and stops", "[io][engine]") {
  const auto v = GENERATE(from_range(std::begin(variants), std::end(variants)));
  const auto seed = GENERATE(range(1, 6));
  INFO(v << ", seed " << seed);
  constexpr std::uint64_t writers = 3;
  constexpr std::uint64_t each = 2000;
  const place scratch(v);
  const auto opened = scratch.file("file", 64 * block);
  memory_of memory(v, writers * each * block);
  completion_log log;
  auto io = scratch.start(log, 16);
  const auto file = io->add_file(opened.get()).value();
  const auto buffer = io->add_buffer(memory.bytes()).value();
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> submitted{0};
  for (std::uint64_t w = 0; w < writers; ++w)
    threads.emplace_back([&, w] {
      std::mt19937_64 random(static_cast<std::uint64_t>(seed) * 100 + w);
      std::vector<request> batch;
      for (std::uint64_t i = 0; i < each;) {
        batch.clear();
        for (auto count = random() % 50 + 1; count > 0 && i < each; --count, ++i) {
          const auto slot = random() % 64;
          request r{.op = random() % 2 == 0 ? operation::read : operation::write,
                    .file = file,
                    .file_offset = slot * block,
                    .data = memory.data() + (w * each + i) * block,
                    .length = block,
                    .buffer = buffer,
                    .tag = w * each + i};
          if (random() % 3 == 0)
            r.deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 2000);
          batch.push_back(r);
        }
        io->submit(batch);
        submitted += batch.size();
        if (random() % 2 == 0)
          io->cancel(w * each + random() % i);
      }
    });
  threads.emplace_back([&] {
    while (submitted < writers * each / 2) // in the middle of it
      std::this_thread::yield();
    io->stop();
  });
  for (auto& t : threads)
    t.join();
  const auto completions = log.wait_for(writers * each);
  CHECK(completions.size() == writers * each);
  const auto counts = log.counts();
  CHECK(counts.size() == writers * each);
  for (const auto& c : completions) {
    const bool expected = c.status == errc::ok || c.status == errc::timeout || c.status == errc::cancelled ||
                          c.status == errc::shutting_down;
    if (!expected)
      FAIL("tag " << c.tag << ": " << to_string(c.status));
  }
  CHECK(io->counters().unmatched == 0);
  CHECK(io->counters().completed == writers * each);
}

TEST_CASE("engine: options out of range are refused", "[io][engine]") {
  completion_log log;
  engine_options options;
  SECTION("depth") {
    options.depth = 0;
  }
  SECTION("too much depth") {
    options.depth = 1U << 20U;
  }
  SECTION("threads") {
    options.threads = 0;
  }
  SECTION("workers of the kernel") {
    options.kernel_workers = 100'000;
  }
  SECTION("files") {
    options.max_files = 0;
  }
  SECTION("buffers") {
    options.max_buffers = 100'000;
  }
  CHECK(make_engine(options, log.sink()).error().code == errc::invalid_argument);
}

} // namespace io_engine_test
