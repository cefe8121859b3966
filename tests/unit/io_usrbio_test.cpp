#include "io/make_engine.hpp"
#include "io/slab/slab_store.hpp"
#include "io/usrbio/client_library.hpp"
#include "io/usrbio/shared_mapping.hpp"
#include "tests/catch.hpp"
#include "tests/named_memory.hpp"
#include "tests/unit/io_support.hpp"
#include "tests/usrbio/served_directory.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sys/stat.h>

namespace io_usrbio_test {

/// Errors of 3FS's daemon and library and their handling: the engine on a stand-in that fails on request.

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;

namespace {

constexpr std::uint64_t block = page_alignment;

/// An engine with a file and memory, on a separate daemon.
class rig {
public:
  explicit rig(std::uint64_t blocks, duration quarantine = std::chrono::seconds(90), std::uint64_t block_bytes = 0)
      : served(TROUPE_USRBIO_DAEMON, TROUPE_USRBIO_LIBRARY), memory(blocks * block),
        file_(make_written_file(served.path() / "file", blocks * block)) {
    options.kind = engine_kind::usrbio;
    options.usrbio = served.options();
    options.usrbio.quarantine = quarantine;
    options.usrbio.block_bytes = block_bytes;
    begin();
  }

  void begin() {
    io = make_engine(options, log.sink()).value();
    file = io->add_file(file_.get()).value();
    buffer = io->add_buffer(memory.bytes()).value();
  }

  request one(operation op, std::uint64_t tag, std::uint64_t at = 0, std::uint64_t count = 1) const {
    return {.op = op,
            .file = file,
            .file_offset = at * block,
            .data = const_cast<rig*>(this)->memory.data() + at * block,
            .length = count * block,
            .buffer = buffer,
            .tag = tag};
  }

  void submit(const request& what) { io->submit({&what, 1}); }

  completion ended(const request& what) {
    submit(what);
    return log.wait_for_tag(what.tag);
  }

  bool has_ended(std::uint64_t tag) {
    const auto all = log.all();
    return std::any_of(all.begin(), all.end(), [&](const auto& c) { return c.tag == tag; });
  }

  /// Repeats the request with new tags until the condition holds.
  bool works_again() {
    return eventually([this] { return ended(one(operation::read, next_tag_++)).status == errc::ok; },
                      std::chrono::milliseconds(5));
  }

  served_directory served;
  named_memory memory;
  completion_log log;
  engine_options options;
  std::unique_ptr<engine> io;
  std::uint32_t file = 0;
  std::uint32_t buffer = 0;

private:
  unique_descriptor file_;
  std::uint64_t next_tag_ = 1'000'000;
};

} // namespace

TEST_CASE("usrbio: results in any order, in parts and of unknown requests end each request once", "[io][usrbio]") {
  const auto seed = GENERATE(1, 2, 3);
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  constexpr std::uint64_t pages = 300;
  rig r(pages);
  auto& control = r.served.control();
  control.reorder = 1;
  control.short_every = 3;
  control.stray_every = 7;
  fill_random(r.memory.bytes(), random);
  const std::vector<std::byte> before(r.memory.bytes().begin(), r.memory.bytes().end());
  std::vector<request> all;
  for (std::uint64_t i = 0; i < pages; ++i)
    all.push_back(r.one(operation::write, i, i));
  r.io->submit(all);
  r.log.wait_for(pages);
  std::fill_n(r.memory.data(), r.memory.size(), std::byte{0});
  for (std::uint64_t i = 0; i < pages; ++i)
    all[i] = r.one(operation::read, pages + i, i);
  std::shuffle(all.begin(), all.end(), random);
  r.io->submit(all);
  for (const auto& c : r.log.wait_for(2 * pages))
    if (c.status != errc::ok)
      FAIL("tag " << c.tag << ": " << to_string(c.status));
  CHECK(std::equal(before.begin(), before.end(), r.memory.bytes().begin()));
  for (const auto& [tag, count] : r.log.counts())
    if (count != 1)
      FAIL("tag " << tag << " was completed " << count << " times");
  CHECK(r.io->counters().continued > 0);
  CHECK(r.io->counters().unmatched > 0);
  CHECK(control.largest_batch > 1);
  CHECK(control.reads_of_holes_allowed == 0);
  CHECK(control.blocking_waits == 0); // of CLOCK_REALTIME, which may be set back
  CHECK(control.odd_rings == 0);      // the daemon would wait for batches that are full
}

TEST_CASE("usrbio: an error, a short result and a hole are distinguished", "[io][usrbio]") {
  rig r(8);
  auto& control = r.served.control();
  control.fail_every = 1;
  control.fail_with = ENOSPC;
  const auto full = r.ended(r.one(operation::write, 1));
  CHECK(full.status == errc::no_space);
  CHECK(full.system_errno == ENOSPC);
  control.fail_with = EIO;
  const auto broken = r.ended(r.one(operation::read, 2));
  CHECK(broken.status == errc::io_error);
  CHECK(broken.system_errno == EIO);
  control.fail_every = 0;
  control.short_every = 1;
  CHECK(r.ended(r.one(operation::read, 3, 0, 4)).status == errc::ok);
  control.short_every = 0;
  const auto holed = make_file(r.served.path() / "holed", 8 * block);
  const auto holes = r.io->add_file(holed.get()).value();
  auto what = r.one(operation::read, 4);
  what.file = holes;
  CHECK(r.ended(what).status == errc::io_error);
  what = r.one(operation::write, 5);
  what.file = holes;
  CHECK(r.ended(what).status == errc::ok);
  what = r.one(operation::read, 6);
  what.file = holes;
  CHECK(r.ended(what).status == errc::ok);
  what.tag = 7;
  what.file_offset = 8 * block; // behind the end
  CHECK(r.ended(what).status == errc::slab_damaged);
}

TEST_CASE("usrbio: a request without room in a ring waits no longer than its deadline", "[io][usrbio]") {
  rig r(8);
  auto& control = r.served.control();
  control.ring_full = 1;
  auto late = r.one(operation::read, 1);
  late.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  r.submit(r.one(operation::read, 0));
  r.submit(late);
  r.submit(r.one(operation::write, 2, 4));
  CHECK(r.log.wait_for_tag(1).status == errc::timeout);
  r.io->cancel(2);
  CHECK(r.log.wait_for_tag(2).status == errc::cancelled);
  CHECK_FALSE(r.has_ended(0));
  control.ring_full = 0;
  CHECK(r.log.wait_for_tag(0).status == errc::ok);
  CHECK(control.prepared == 1);
}

TEST_CASE("usrbio: no transfer crosses the edge of a memory block", "[io][usrbio]") {
  rig r(64, std::chrono::seconds(90), 4 * block);
  std::mt19937_64 random(7);
  fill_random(r.memory.bytes(), random);
  const std::vector<std::byte> before(r.memory.bytes().begin(), r.memory.bytes().end());
  for (std::uint64_t tag = 0; tag < 40; ++tag)
    CHECK(r.ended(r.one(operation::write, tag, tag, 1 + tag % 17)).status == errc::ok);
  CHECK(r.ended(r.one(operation::write, 100, 0, 64)).status == errc::ok);
  std::fill_n(r.memory.data(), r.memory.size(), std::byte{0});
  CHECK(r.ended(r.one(operation::read, 101, 0, 64)).status == errc::ok);
  CHECK(std::equal(before.begin(), before.end(), r.memory.bytes().begin()));
  CHECK(r.served.control().across_blocks == 0);
}

TEST_CASE("usrbio: a request outside its memory never reaches a ring", "[io][usrbio]") {
  rig r(8);
  std::vector<request> all;
  for (std::uint64_t i = 0; i < 8; ++i)
    all.push_back(r.one(operation::read, i, i));
  all[3].length = 6 * block;
  r.io->submit(all);
  r.log.wait_for(8);
  CHECK(r.log.wait_for_tag(3).status == errc::out_of_range);
  CHECK(r.served.control().prepared == 7);
  CHECK(r.served.control().out_of_bounds == 0);
}

TEST_CASE("usrbio: a hanging daemon keeps its memory until it continues", "[io][usrbio]") {
  rig r(8);
  r.served.control().stalled = 1;
  auto late = r.one(operation::read, 1);
  // Long enough for the engine to have handed it over.
  late.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  const std::array both{late, r.one(operation::read, 2, 1)};
  r.io->submit(both);
  REQUIRE(eventually([&] { return r.served.control().prepared == 2 && r.served.control().batches > 0; }));
  r.io->cancel(2);
  std::this_thread::sleep_until(late.deadline + std::chrono::milliseconds(20));
  CHECK_FALSE(r.has_ended(1));
  CHECK_FALSE(r.has_ended(2));
  r.served.control().stalled = 0;
  CHECK(r.log.wait_for_tag(1).status == errc::timeout);
  // All of it was read before the daemon could be stopped.
  CHECK(r.log.wait_for_tag(2).status == errc::ok);
}

TEST_CASE("usrbio: after the death of a daemon its transfers stay quarantined while the next one serves",
          "[io][usrbio]") {
  constexpr auto quarantine = std::chrono::seconds(6);
  rig r(16, quarantine);
  r.served.control().stalled = 1;
  for (std::uint64_t i = 0; i < 4; ++i)
    r.submit(r.one(i % 2 == 0 ? operation::read : operation::write, i, i));
  REQUIRE(eventually([&] { return r.served.control().batches >= 2; }));
  const auto killed = std::chrono::steady_clock::now();
  r.served.kill();
  // Requests until the next daemon end at once when the death is detected.
  std::uint64_t tag = 100;
  const auto is_refused = [&] {
    r.submit(r.one(operation::read, ++tag, 8));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return r.has_ended(tag);
  };
  REQUIRE(eventually(is_refused));
  CHECK(r.log.wait_for_tag(tag).status == errc::io_error);
  const auto is_kept = [&](std::uint64_t which) {
    return !r.has_ended(which) || std::chrono::steady_clock::now() - killed >= quarantine;
  };
  CHECK(is_kept(0));
  r.served.control().stalled = 0;
  r.served.start();
  CHECK(r.works_again());
  // They are still not reused.
  for (std::uint64_t i = 0; i < 4; ++i)
    CHECK(is_kept(i));
  for (std::uint64_t i = 0; i < 4; ++i) {
    const auto c = r.log.wait_for_tag(i);
    CHECK(c.status == errc::io_error);
    CHECK(c.system_errno == ENOTCONN);
  }
  CHECK(r.works_again());
  CHECK(r.io->counters().unmatched == 0);
}

TEST_CASE("usrbio: rings that the next daemon refuses are retried with growing pauses", "[io][usrbio]") {
  rig r(8, std::chrono::milliseconds(10));
  auto& control = r.served.control();
  control.refuse_rings = 1;
  const auto refused = make_engine(r.options, r.log.sink());
  REQUIRE_FALSE(refused.has_value());
  CHECK(missing(refused.error().text, {"ring for reads", r.served.path().string()}).empty());
  r.served.kill();
  const auto asked = control.rings_asked.load();
  const auto since = std::chrono::steady_clock::now();
  r.served.start();
  REQUIRE(eventually([&] { return control.rings_asked >= asked + 3; }));
  // After 100 ms and then 200 ms: no more attempts than the time allows.
  CHECK(std::chrono::steady_clock::now() - since >= std::chrono::milliseconds(300));
  control.refuse_rings = 0;
  CHECK(r.works_again());
}

TEST_CASE("usrbio: files whose descriptors were lost with the daemon are opened again", "[io][usrbio]") {
  rig r(8, std::chrono::milliseconds(50));
  auto& control = r.served.control();
  control.lose_descriptors = 1;
  const auto registered = control.registered.load();
  r.served.kill();
  r.served.start();
  CHECK(r.works_again());
  CHECK(control.registered == registered + 1);
  CHECK(control.deregistered == 0); // there was no daemon to notify
  // Another file under the same name is not written to.
  std::filesystem::rename(r.served.path() / "file", r.served.path() / "other");
  const auto imposter = make_written_file(r.served.path() / "file", 8 * block);
  const auto rings = control.rings_asked.load();
  r.served.kill();
  r.served.start();
  REQUIRE(eventually([&] { return control.rings_asked >= rings + 4; })); // it tries, and tries again
  CHECK(r.ended(r.one(operation::write, 1)).status == errc::io_error);
  std::filesystem::rename(r.served.path() / "other", r.served.path() / "file");
  CHECK(r.works_again());
}

TEST_CASE("usrbio: rings and names are removed with the engine", "[io][usrbio]") {
  rig r(8);
  auto& control = r.served.control();
  CHECK(r.ended(r.one(operation::read, 1)).status == errc::ok);
  REQUIRE(eventually([&] { return control.rings_live == 2; }));
  const auto iovs = r.served.path() / "3fs-virt/iovs";
  const auto count = [&] {
    return std::distance(std::filesystem::directory_iterator(iovs), std::filesystem::directory_iterator());
  };
  CHECK(count() == 3 + 2 + 1);
  // Other users cannot open memory that the daemon trusts.
  // Either its name was removed, or it is the owner's alone. Tests beside this one have memory of the same kind.
  std::size_t seen = 0;
  for (const auto& x : std::filesystem::directory_iterator(iovs))
    if (const auto memory = std::filesystem::read_symlink(x); memory.filename().string().starts_with("hf3fs-iov-")) {
      struct stat status {};
      const bool has_name = ::stat(memory.c_str(), &status) == 0;
      CHECK((!has_name || (status.st_mode & 077) == 0));
      ++seen;
    }
  CHECK(seen > 0);
  r.io.reset();
  CHECK(count() == 3); // the semaphores: the library alone would have left the ring with flags
  CHECK(eventually([&] { return control.rings_live == 0; }));
  CHECK(control.registered > 0);
  CHECK(control.registered == control.deregistered);
}

TEST_CASE("usrbio: memory that the daemon refuses is an error and is not copied", "[io][usrbio]") {
  rig r(8);
  r.served.control().refuse_iovs = 1;
  named_memory more(block);
  const auto refused = r.io->add_buffer(more.bytes());
  REQUIRE_FALSE(refused.has_value());
  CHECK(missing(refused.error().text, {more.path()}).empty());
  aligned_buffer own(block);
  CHECK_FALSE(r.io->add_buffer(own.bytes()).has_value());
  r.served.control().refuse_iovs = 0;
  CHECK(r.io->add_buffer(more.bytes()).has_value());
  CHECK(r.io->add_buffer(own.bytes()).has_value());
  CHECK(r.ended(r.one(operation::read, 1)).status == errc::ok);
}

TEST_CASE("usrbio: several users of one memory file register it with the daemon once", "[io][usrbio]") {
  rig r(8);
  CHECK(r.io->add_buffer(r.memory.bytes().subspan(block, block)).has_value());
  auto second = make_engine(r.options, r.log.sink()).value();
  CHECK(second->add_buffer(r.memory.bytes().subspan(2 * block)).has_value());
  CHECK(r.served.control().iovs_wrapped == 1);
  CHECK(r.served.control().iovs_created == 0);
}

TEST_CASE("usrbio: a missing part is reported and not replaced silently", "[io][usrbio]") {
  served_directory served(TROUPE_USRBIO_DAEMON, TROUPE_USRBIO_LIBRARY);
  completion_log log;
  engine_options options;
  options.kind = engine_kind::usrbio;
  options.usrbio = served.options();
  const scratch_directory elsewhere;
  std::string part;
  SECTION("the library") {
    options.usrbio.library = "libnothing-of-3fs.so";
    part = "storage.usrbio_library";
  }
  SECTION("functions of the library") {
    options.usrbio.library = "libm.so.6";
    part = "too old";
  }
  SECTION("3FS") {
    options.usrbio.directory = elsewhere.path();
    part = "is not on 3FS";
  }
  SECTION("the mount point") {
    options.usrbio.mount_point = (elsewhere / "none").string();
    part = "is not on 3FS";
  }
  SECTION("the daemon") {
    served.kill();
    part = "is not on 3FS";
  }
  SECTION("the name of the daemon's semaphore") {
    std::filesystem::remove(served.path() / "3fs-virt/iovs/submit-ios");
    part = "has no semaphore for transfers";
  }
  SECTION("the daemon's semaphore, as in a container with a /dev/shm of its own") {
    std::filesystem::remove(std::filesystem::read_symlink(served.path() / "3fs-virt/iovs/submit-ios"));
    part = "a container needs the host's /dev/shm";
  }
  const auto made = make_engine(options, log.sink());
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code == errc::unsupported);
  CHECK(missing(made.error().text, {part}).empty());
  options.kind = engine_kind::usrbio_or_uring;
  CHECK(make_engine(options, log.sink()).has_value());
}

TEST_CASE("usrbio: a frozen daemon does not keep an engine from ending", "[io][usrbio]") {
  rig r(8, std::chrono::milliseconds(50));
  r.served.stop_running();
  r.submit(r.one(operation::read, 1));
  r.submit(r.one(operation::write, 2, 1));
  r.io->stop();
  CHECK(r.log.wait_for_tag(1).status == errc::shutting_down);
  CHECK(r.log.wait_for_tag(2).status == errc::shutting_down);
  r.served.run_on();
}

TEST_CASE("usrbio: the descriptor table is bounded", "[io][usrbio]") {
  using usrbio::capped;
  using usrbio::most_descriptors;
  const auto huge = capped({rlim_t{1} << 30U, rlim_t{1} << 30U});
  CHECK(huge.rlim_cur == most_descriptors);
  CHECK(huge.rlim_max == most_descriptors);
  CHECK(capped({1024, RLIM_INFINITY}).rlim_cur == 1024);
  CHECK(capped({1024, RLIM_INFINITY}).rlim_max == most_descriptors);
  CHECK(capped({1024, 4096}).rlim_max == 4096);
  rig r(1);
  CHECK(r.served.control().descriptor_table <= most_descriptors);
}

TEST_CASE("usrbio: the file of a memory range is found however the kernel has split its mapping", "[io][usrbio]") {
  named_memory memory(16 * block);
  REQUIRE(::mlock(memory.data() + 4 * block, block) == 0);
  REQUIRE(::madvise(memory.data() + 8 * block, block, MADV_DONTFORK) == 0);
  const auto found = usrbio::shared_mapping_of(memory.bytes().subspan(2 * block, 12 * block));
  REQUIRE(found.has_value());
  CHECK(found->path == memory.path());
  CHECK(found->base == memory.data());
  CHECK(found->bytes == memory.size());
  aligned_buffer own(block);
  CHECK_FALSE(usrbio::shared_mapping_of(own.bytes()).has_value());
  ::unlink(memory.path().c_str());
  CHECK_FALSE(usrbio::shared_mapping_of(memory.bytes()).has_value());
}

TEST_CASE("usrbio: a daemon that dies and restarts repeatedly causes no wrong byte", "[io][usrbio]") {
  const auto seed = GENERATE(range(1, 4));
  INFO("seed " << seed);
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  constexpr std::uint64_t pages = 64;
  rig r(2 * pages, std::chrono::milliseconds(200));
  auto& control = r.served.control();
  control.reorder = 1;
  control.short_every = 11;
  std::uint64_t tag = 0;
  // Page i of the file holds its number and a version; the memory of page i is that of the block i.
  std::vector<std::uint64_t> version(pages, 0);
  std::vector<bool> certain(pages, true);
  for (int round = 0; round < 6; ++round) {
    for (int step = 0; step < 40; ++step) {
      std::vector<request> all;
      std::vector<std::uint64_t> written(pages, 0);
      for (std::uint64_t i = 0; i < pages; ++i) {
        const bool writes = random() % 2 == 0;
        auto* const words = reinterpret_cast<std::uint64_t*>(r.memory.data() + i * block);
        const auto value = writes ? version[i] + 1 : ~std::uint64_t{0};
        for (std::uint64_t w = 0; w < block / 8; w += 2) {
          words[w] = i;
          words[w + 1] = value;
        }
        written[i] = writes ? value : 0;
        all.push_back(r.one(writes ? operation::write : operation::read, tag++, i));
      }
      r.io->submit(all);
      if (step == 20) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
        r.served.kill();
        r.served.start();
      }
      for (std::uint64_t i = 0; i < pages; ++i) {
        const auto status = r.log.wait_for_tag(all[i].tag).status;
        if (written[i] != 0) {
          version[i] = written[i];
          certain[i] = status == errc::ok;
          continue;
        }
        if (status != errc::ok || !certain[i])
          continue;
        const auto* const words = reinterpret_cast<const std::uint64_t*>(r.memory.data() + i * block);
        for (std::uint64_t w = 0; w < block / 8; w += 2)
          if ((version[i] != 0 && words[w] != i) || words[w + 1] != version[i])
            FAIL("page " << i << " has " << words[w] << ", version " << words[w + 1] << " instead of " << version[i]);
      }
    }
    CHECK(r.works_again());
  }
  CHECK(r.io->counters().unmatched == 0);
  CHECK(control.blocking_waits == 0);
}

TEST_CASE("usrbio: a slab on 3FS gets its length only", "[io][usrbio]") {
  served_directory served(TROUPE_USRBIO_DAEMON, TROUPE_USRBIO_LIBRARY);
  completion_log log;
  slab_store_options options;
  options.engine.kind = engine_kind::usrbio;
  options.engine.usrbio.library = TROUPE_USRBIO_LIBRARY;
  options.slab = {.path = served.path() / "below/slab", .ns = {1, 2}, .namespace_name = "test", .rank = 0};
  options.slab.slot_bytes = slot_bytes(block);
  options.slab.slots = 10'000;
  named_memory memory(2 * slot_bytes(block));
  for (int run = 0; run < 2; ++run) {
    auto store = open_slab_store(options, log.sink());
    INFO((store ? std::string() : to_string(store.error())));
    REQUIRE(store.has_value());
    struct stat status {};
    REQUIRE(::stat(options.slab.path.c_str(), &status) == 0);
    CHECK(static_cast<std::uint64_t>(status.st_size) == slab_file_bytes(options.slab));
    CHECK(status.st_blocks * 512 < status.st_size / 10);
    CHECK((*store)->traits().direct);
    CHECK((*store)->health().has_value());
    CHECK(missing((*store)->describe(), {"USRBIO", served.path().string()}).empty());
    const auto buffer = (*store)->add_buffer(memory.bytes()).value();
    page_request what{.op = run == 0 ? operation::write : operation::read,
                      .where = {9'999, 1},
                      .data = memory.data(),
                      .length = slot_bytes(block),
                      .buffer = buffer,
                      .tag = static_cast<std::uint64_t>(run)};
    std::memset(memory.data(), run == 0 ? 'x' : 0, memory.size());
    (*store)->submit({&what, 1});
    CHECK(log.wait_for_tag(what.tag).status == errc::ok);
    CHECK(memory.data()[slot_bytes(block) - 1] == std::byte{'x'});
    (*store)->stop();
  }
  // Outside of 3FS no file is left behind.
  const scratch_directory elsewhere;
  options.slab.path = elsewhere / "slab";
  CHECK(open_slab_store(options, log.sink()).error().code == errc::unsupported);
  CHECK_FALSE(std::filesystem::exists(options.slab.path));
}

} // namespace io_usrbio_test
