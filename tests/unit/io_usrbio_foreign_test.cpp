#include "io/foreign/foreign_pages.hpp"
#include "io/make_engine.hpp"
#include "io/slab/slab_file.hpp"
#include "tests/catch.hpp"
#include "tests/named_memory.hpp"
#include "tests/unit/io_support.hpp"
#include "tests/usrbio/served_directory.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/file.h>
#include <sys/mman.h>

namespace io_usrbio_foreign_test {

/// Files of other nodes on 3FS after a restart of its daemon with a new mount.

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;

namespace {

constexpr std::uint64_t block = page_alignment;
constexpr std::uint64_t page_bytes = 8192;

slab_spec four_slots(const std::filesystem::path& path) {
  return {
      .path = path, .ns = {1, 2}, .namespace_name = "a", .rank = 0, .slot_bytes = slot_bytes(page_bytes), .slots = 4};
}

struct daemon_that_forgets : served_directory {
  daemon_that_forgets() : served_directory(TROUPE_USRBIO_DAEMON, TROUPE_USRBIO_LIBRARY) {
    control().lose_descriptors = 1;
  }

  engine_options how() const {
    engine_options out;
    out.kind = engine_kind::usrbio;
    out.usrbio = options();
    out.usrbio.quarantine = std::chrono::milliseconds(50);
    return out;
  }
};

unique_descriptor open_to_read(const std::filesystem::path& path) {
  return unique_descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

} // namespace

TEST_CASE("usrbio: a read-only file is reopened without a lock and without affecting other files", "[io][usrbio]") {
  daemon_that_forgets served;
  const auto path = served.path() / "theirs";
  const auto own = make_written_file(served.path() / "own", block);
  const auto theirs = make_written_file(path, block);
  named_memory memory(2 * block);
  completion_log log;
  const auto io = make_engine(served.how(), log.sink()).value();
  const auto buffer = io->add_buffer(memory.bytes()).value();
  std::uint64_t tag = 0;
  const auto read = [&](std::uint32_t file) {
    const request what{
        .op = operation::read, .file = file, .data = memory.data(), .length = block, .buffer = buffer, .tag = ++tag};
    io->submit({&what, 1});
    return log.wait_for_tag(tag);
  };
  const auto own_file = io->add_file(own.get()).value();
  const auto opened = open_to_read(path);
  auto their_file = io->add_file(opened.get()).value();
  CHECK(read(own_file).status == errc::ok);
  CHECK(read(their_file).status == errc::ok);
  const auto restart = [&] {
    served.kill();
    served.start();
    CHECK(eventually([&] { return read(own_file).status == errc::ok; }, std::chrono::milliseconds(5)));
  };
  SECTION("its owner holds or takes the lock") {
    const auto owner = open_to_read(path);
    if (GENERATE(true, false))
      REQUIRE(::flock(owner.get(), LOCK_EX | LOCK_NB) == 0);
    restart();
    CHECK(read(their_file).status == errc::ok);
    CHECK(::flock(owner.get(), LOCK_EX | LOCK_NB) == 0);
  }
  SECTION("it is removed and comes back") {
    std::filesystem::rename(path, served.path() / "aside");
    restart();
    const auto lost = read(their_file);
    CHECK(lost.status == errc::io_error);
    CHECK(lost.system_errno == EBADF);
    // The reader opens it again.
    std::filesystem::rename(served.path() / "aside", path);
    io->remove_file(their_file);
    const auto again = open_to_read(path);
    their_file = io->add_file(again.get()).value();
    CHECK(read(their_file).status == errc::ok);
  }
}

TEST_CASE("usrbio: rings that read the file of another node do not touch its page cache", "[io][usrbio]") {
  daemon_that_forgets served;
  const auto spec = four_slots(served.path() / "a.slab");
  const auto owner = slab_file::open(spec, false).value();
  const std::vector<std::byte> slot(spec.slot_bytes, std::byte{1});
  REQUIRE(::pwrite(owner.descriptor(), slot.data(), slot.size(), 0) == static_cast<ssize_t>(slot.size()));
  REQUIRE(::fsync(owner.descriptor()) == 0);
  const auto reader = foreign_reader::make(served.how()).value();
  const auto soon = std::chrono::steady_clock::now() + test_patience;
  const auto file = reader->open(spec.path, owner.spec(), false, soon).value();
  const auto frames = reader->make_frames(spec.slot_bytes, 2).value();
  // The daemon is stalled so that its reads do not fill the page cache again.
  served.control().stalled = 1;
  const slot_number first = 0;
  errc code = errc::ok;
  reader->read(file, frames, {&first, 1}, std::chrono::steady_clock::now() + std::chrono::milliseconds(50),
               [&](std::size_t, errc x, std::span<std::byte>) { code = x; });
  CHECK(code == errc::timeout);
  auto* const at = ::mmap(nullptr, spec.slot_bytes, PROT_READ, MAP_SHARED, owner.descriptor(), 0);
  REQUIRE(at != MAP_FAILED);
  std::vector<unsigned char> there(spec.slot_bytes / block);
  REQUIRE(::mincore(at, spec.slot_bytes, there.data()) == 0);
  ::munmap(at, spec.slot_bytes);
  CHECK(std::ranges::all_of(there, [](unsigned char x) { return (x & 1U) != 0; }));
  served.control().stalled = 0;
}

TEST_CASE("usrbio: pages in the file of another node are read again after a daemon restart", "[io][usrbio]") {
  daemon_that_forgets served;
  const auto spec = four_slots(served.path() / "node/a.slab");
  const auto owner = slab_file::open(spec, true).value();
  aligned_buffer page(spec.slot_bytes);
  seal_page(page.bytes(), {spec.ns, {5, 1}, 0, {1, 1}, page_bytes});
  REQUIRE(::pwrite(owner.descriptor(), page.data(), page.size(), static_cast<off_t>(page.size())) ==
          static_cast<ssize_t>(page.size()));
  std::vector<std::byte> blocks(page_bytes);
  foreign_pages pages(
      {{foreign_reader::make(served.how()).value(), served.path(), true}, spec.ns, 0, page_bytes, blocks});
  auto time = std::chrono::steady_clock::now();
  const auto read = [&] {
    const std::vector<foreign_page> wanted{{{5, 1}, {1, 1}, 0}};
    time += std::chrono::minutes(1);
    const auto until = std::chrono::steady_clock::now() + test_patience;
    return pages.read("node/a.slab", owner.spec().incarnation, wanted, until, time);
  };
  CHECK(read() == std::vector{errc::ok});
  served.kill();
  CHECK(read() != std::vector{errc::ok});
  std::filesystem::rename(spec.path, served.path() / "aside");
  served.start();
  CHECK(read() != std::vector{errc::ok});
  std::filesystem::rename(served.path() / "aside", spec.path);
  CHECK(eventually([&] { return read() == std::vector{errc::ok}; }, std::chrono::milliseconds(5)));
}

} // namespace io_usrbio_foreign_test
