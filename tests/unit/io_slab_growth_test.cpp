#include "io/slab/disk_budget.hpp"
#include "io/slab/occupied_slots.hpp"
#include "io/slab/slab_growth.hpp"
#include "io/slab/slab_reader.hpp"
#include "io/slab/slab_trailer.hpp"
#include "tests/catch.hpp"
#include "tests/sparse_files.hpp"
#include "tests/unit/io_support.hpp"

#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/// Slab files that get disk space as they need it.

namespace io_slab_growth_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t slot_size = 4 * page_alignment;

slab_spec growing_spec(const fs::path& path, std::uint64_t first = 4) {
  return {.path = path,
          .ns = {0xaaaa, 0xbbbb},
          .namespace_name = "llama",
          .rank = 1,
          .slot_bytes = slot_size,
          .slots = 1000,
          .grows = true,
          .first_slots = first};
}

std::uint64_t disk_bytes(const fs::path& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

std::uint64_t tail() {
  return slab_growth::record_bytes + slab_trailer_bytes;
}

void overwrite(const fs::path& path, std::uint64_t offset, std::span<const std::byte> bytes) {
  const unique_descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)) ==
          static_cast<ssize_t>(bytes.size()));
}

std::uint64_t record_offset(const slab_spec& spec, std::uint64_t record) {
  return spec.slots * spec.slot_bytes + record * slab_trailer_bytes;
}

std::string page_text(slab_file& slab, std::uint64_t slot) {
  aligned_buffer buffer(slot_size);
  REQUIRE(::pread(slab.descriptor(), buffer.data(), slot_size, static_cast<off_t>(slot * slot_size)) ==
          static_cast<ssize_t>(slot_size));
  return reinterpret_cast<const char*>(buffer.data());
}

void write_page(slab_file& slab, std::uint64_t slot, const std::string& text) {
  aligned_buffer buffer(slot_size);
  std::memcpy(buffer.data(), text.c_str(), text.size() + 1);
  REQUIRE(::pwrite(slab.descriptor(), buffer.data(), slot_size, static_cast<off_t>(slot * slot_size)) ==
          static_cast<ssize_t>(slot_size));
}

} // namespace

TEST_CASE("slab growth: a growing slab has disk space for its first slots, and then for more", "[io][slab_file]") {
  scratch_directory scratch;
  const auto spec = growing_spec(scratch / "slab");
  const auto direct = GENERATE(true, false);
  auto slab = slab_file::open(spec, direct);
  REQUIRE(slab.has_value());
  REQUIRE(slab->growth());
  CHECK(slab->growth()->slots() == 4);
  CHECK(fs::file_size(spec.path) == 1000 * slot_size + tail());
  CHECK(disk_bytes(spec.path) >= 4 * slot_size);
  CHECK(disk_bytes(spec.path) < 12 * slot_size);
  write_page(*slab, 3, "the third");
  REQUIRE(slab->growth()->grow(100));
  CHECK(slab->growth()->slots() == 100);
  CHECK(disk_bytes(spec.path) >= 100 * slot_size);
  write_page(*slab, 99, "the last");
  CHECK(slab->damage().empty());
  CHECK(slab->growth()->grow(50)); // there already
  CHECK(slab->growth()->slots() == 100);
  CHECK(slab->growth()->grow(1001).error().code == errc::out_of_range);
  const auto incarnation = slab->spec().incarnation;
  slab = slab_file::open(growing_spec(scratch / "other"), direct);
  // The slab is opened again, also with other sizes in the config.
  auto wanted = growing_spec(spec.path, 8);
  wanted.slots = 77;
  slab = slab_file::open(wanted, direct);
  REQUIRE(slab.has_value());
  CHECK(slab->spec().slots == 1000);
  CHECK(slab->spec().incarnation == incarnation);
  CHECK(slab->growth()->slots() == 100);
  CHECK(page_text(*slab, 3) == "the third");
  CHECK(page_text(*slab, 99) == "the last");
  REQUIRE(slab->growth()->grow(101));
  CHECK(slab->growth()->slots() == 101);
}

TEST_CASE("slab growth: a slab whose growth was not recorded keeps its old size, now and after a reopen",
          "[io][slab_file]") {
  scratch_directory scratch;
  const auto spec = growing_spec(scratch / "slab");
  {
    auto slab = slab_file::open(spec, false);
    REQUIRE(slab.has_value());
    const auto before = disk_bytes(spec.path);
    // There is room for the slots, and the records lie behind what may be written.
    struct rlimit old {};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit less { 500 * slot_size, old.rlim_max };
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &less) == 0);
    const auto grown = slab->growth()->grow(100);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
    std::signal(SIGXFSZ, handler);
    CHECK_FALSE(grown);
    CHECK(slab->growth()->slots() == 4);
    CHECK(disk_bytes(spec.path) <= before);
    REQUIRE(slab->growth()->grow(20));
  }
  CHECK(slab_file::open(spec).value().growth()->slots() == 20);
}

TEST_CASE("slab growth: a growing slab may begin without any slot", "[io][slab_file]") {
  scratch_directory scratch;
  auto slab = slab_file::open(growing_spec(scratch / "slab", 0));
  REQUIRE(slab.has_value());
  CHECK(slab->growth()->slots() == 0);
  REQUIRE(slab->growth()->grow(1000));
  CHECK(slab->growth()->slots() == 1000);
  CHECK(slab_file::open(growing_spec(scratch / "too much", 1001)).error().code == errc::invalid_argument);
}

TEST_CASE("slab growth: a growing slab and a fixed one are not confused", "[io][slab_file]") {
  scratch_directory scratch;
  auto grows = growing_spec(scratch / "grows");
  REQUIRE(slab_file::open(grows).has_value());
  auto fixed = grows;
  fixed.grows = false;
  fixed.first_slots = 0;
  CHECK(slab_file::open(fixed).error().code == errc::identity_mismatch);
  fixed.path = scratch / "fixed";
  fixed.slots = 10;
  REQUIRE(slab_file::open(fixed).has_value());
  fixed.grows = true;
  CHECK(slab_file::open(fixed).error().code == errc::identity_mismatch);
  // The slab has another namespace.
  grows.ns.lo += 1;
  CHECK(slab_file::open(grows).error().code == errc::identity_mismatch);
}

TEST_CASE("slab growth: a slab that crashed at any moment of its growth opens", "[io][slab_file]") {
  scratch_directory scratch;
  const auto spec = growing_spec(scratch / "slab");
  incarnation_number incarnation = 0;
  {
    auto slab = slab_file::open(spec, false);
    REQUIRE(slab.has_value());
    incarnation = slab->spec().incarnation;
    REQUIRE(slab->growth()->grow(20)); // in record 0, since 1 had the first number
  }
  const auto before = disk_bytes(spec.path);
  const auto record = [&](std::uint64_t slots) { return make_growth_record({slots, incarnation}); };
  const auto opened_slots = [&] { return slab_file::open(spec).value().growth()->slots(); };
  const auto grown_in = [&](std::uint64_t slots) {
    for (const std::uint64_t i : {0U, 1U}) {
      const unique_descriptor file(::open(spec.path.c_str(), O_RDWR | O_CLOEXEC));
      std::array<std::byte, slab_trailer_bytes> block{};
      REQUIRE(::pread(file.get(), block.data(), block.size(), static_cast<off_t>(record_offset(spec, i))) == 4096);
      if (const auto found = read_growth_record(block); found && found->slots == slots)
        return i;
    }
    FAIL("no such record");
    return std::uint64_t{0};
  };
  const auto last = grown_in(20);
  const auto next = 1 - last;
  SECTION("after the allocation and before the record: it keeps its old size and the space is freed") {
    {
      const unique_descriptor file(::open(spec.path.c_str(), O_RDWR | O_CLOEXEC));
      REQUIRE(::fallocate(file.get(), 0, 20 * slot_size, 200 * slot_size) == 0);
    }
    CHECK(disk_bytes(spec.path) >= 220 * slot_size);
    CHECK(opened_slots() == 20);
    CHECK(disk_bytes(spec.path) <= before);
  }
  SECTION("within the record") {
    auto torn = record(40);
    std::fill(torn.begin() + 512, torn.end(), std::byte{0x5a});
    overwrite(spec.path, record_offset(spec, next), torn);
    CHECK(opened_slots() == 20);
    // And it grows as if nothing had happened.
    {
      auto slab = slab_file::open(spec);
      REQUIRE(slab->growth()->grow(30));
    }
    CHECK(opened_slots() == 30);
  }
  SECTION("after the record") {
    overwrite(spec.path, record_offset(spec, next), record(40));
    CHECK(opened_slots() == 40);
  }
  SECTION("a record of another file or of too many slots is ignored") {
    overwrite(spec.path, record_offset(spec, next), make_growth_record({40, incarnation + 1}));
    CHECK(opened_slots() == 20);
    overwrite(spec.path, record_offset(spec, next), record(1001));
    CHECK(opened_slots() == 20);
  }
  SECTION("without any valid record it is damaged and left unchanged") {
    std::array<std::byte, 2 * slab_trailer_bytes> zeroes{};
    overwrite(spec.path, record_offset(spec, 0), zeroes);
    const auto opened = slab_file::open(spec);
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().code == errc::slab_damaged);
    CHECK(fs::file_size(spec.path) == slab_file_bytes(spec));
  }
}

TEST_CASE("slab growth: a slab that was killed while growing has its old size or its new one", "[io][slab_file]") {
  scratch_directory scratch;
  const auto spec = growing_spec(scratch / "slab");
  REQUIRE(slab_file::open(spec).has_value());
  std::uint64_t known = 4;
  for (int round = 0; round < 6 && known < 900; ++round) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const auto child = ::fork();
    if (child == 0) {
      auto slab = slab_file::open(spec);
      for (std::uint64_t i = slab->growth()->slots() + 1; i <= 1000; ++i) {
        if (!slab->growth()->grow(i))
          ::_exit(1);
        if (::write(ends[1], &i, sizeof i) != sizeof i)
          ::_exit(1);
      }
      ::pause();
    }
    std::uint64_t notified = 0;
    for (int i = 0; i < 5 + round; ++i)
      REQUIRE(::read(ends[0], &notified, sizeof notified) == sizeof notified);
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    ::close(ends[1]);
    for (std::uint64_t more = 0; ::read(ends[0], &more, sizeof more) == sizeof more;)
      notified = more;
    ::close(ends[0]);
    auto slab = slab_file::open(spec);
    REQUIRE(slab.has_value());
    known = slab->growth()->slots();
    CHECK(known >= notified);
    CHECK(known <= notified + 1);
  }
}

TEST_CASE("slab growth: a slab keeps its size where there is no space", "[io][slab_file]") {
  scratch_directory scratch;
  auto spec = growing_spec(scratch / "slab");
  // More than any disk of a test has.
  spec.slots = (std::uint64_t{1} << 50U) / slot_size;
  SECTION("when it is created") {
    spec.first_slots = spec.slots / 2;
    const auto opened = slab_file::open(spec);
    REQUIRE_FALSE(opened.has_value());
    // Some file systems have no files that are so long.
    if (opened.error().code != errc::io_error) {
      CHECK(opened.error().code == errc::no_space);
      CHECK(missing(opened.error().text, {"storage.disk_bytes", "slab"}) == "");
    }
    CHECK(fs::is_empty(scratch.path()));
  }
  SECTION("when it grows") {
    spec.slots = (std::uint64_t{1} << 43U) / slot_size;
    auto slab = slab_file::open(spec);
    if (!slab)
      return; // no file is so long here
    const auto grown = slab->growth()->grow(spec.slots);
    REQUIRE_FALSE(grown.has_value());
    CHECK(grown.error().code == errc::no_space);
    CHECK(slab->growth()->slots() == 4);
    CHECK(slab->growth()->grow(5));
    CHECK(slab->damage().empty());
  }
}

TEST_CASE("slab growth: a slab grows in worthwhile steps as far as there is space", "[io][slab_file]") {
  constexpr std::uint64_t plenty = std::uint64_t{1} << 40U;
  constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20U;
  CHECK(next_slots(0, 1000, 1, mebibyte, plenty) == 64);
  CHECK(next_slots(64, 1000, 100, mebibyte, plenty) == 164);
  CHECK(next_slots(0, 1000, 1, 32 * mebibyte, plenty) == 8);
  CHECK(next_slots(990, 1000, 1, mebibyte, plenty) == 1000);
  CHECK(next_slots(1000, 1000, 1, mebibyte, plenty) == 1000);
  CHECK(next_slots(10, 1000, 1, mebibyte, 5 * mebibyte + 1) == 15);
  CHECK(next_slots(10, 1000, 1, mebibyte, mebibyte - 1) == 10);
  disk_budget budget(100);
  CHECK(budget.take(60));
  CHECK_FALSE(budget.take(41));
  CHECK(budget.left() == 40);
  CHECK(budget.take(40));
  budget.give_back(60);
  CHECK(budget.used() == 40);
  CHECK(budget.limit() == 100);
}

namespace {

slab_spec sparse_spec(const fs::path& path, std::uint64_t first = 4) {
  auto out = growing_spec(path, first);
  out.sparse = true;
  return out;
}

void trim(slab_file& slab, std::uint64_t slot, std::uint64_t from) {
  REQUIRE(::fallocate(slab.descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(slot * slot_size + from), static_cast<off_t>(slot_size - from)) == 0);
}

std::vector<std::uint64_t> occupied(slab_file& slab) {
  const auto found = occupied_slots(slab.descriptor(), slab.growth()->slots(), slot_size);
  REQUIRE(found);
  return *found;
}

} // namespace

TEST_CASE("slab growth: a sparse slab has slots without disk space of their own, also after a reopen",
          "[io][slab_file]") {
  scratch_directory scratch;
  if (!can_be_sparse_in(scratch.path()))
    return;
  const auto spec = sparse_spec(scratch / "slab");
  {
    auto slab = slab_file::open(spec);
    REQUIRE(slab.has_value());
    REQUIRE(slab->spec().sparse);
    auto& growth = *slab->growth();
    CHECK(growth.is_sparse());
    CHECK(growth.slots() == 4);
    CHECK(growth.granted() == 4);
    CHECK(disk_bytes(spec.path) == 4 * slot_size + tail());
    for (std::uint64_t slot = 0; slot < 4; ++slot) {
      write_page(*slab, slot, "page " + std::to_string(slot));
      trim(*slab, slot, slot_size / 2);
    }
    REQUIRE(growth.extend(6).has_value());
    CHECK(growth.slots() == 6);
    CHECK(growth.granted() == 4);
    // The file system may need a block for the list of the parts.
    CHECK(disk_bytes(spec.path) <= 2 * slot_size + tail() + page_alignment);
    write_page(*slab, 5, "page 5");
    // What grows then begins behind them.
    REQUIRE(growth.grow(8).has_value());
    CHECK(growth.slots() == 8);
    CHECK(growth.granted() == 6);
    const auto given = growth.take_granted();
    CHECK(given.pages == 6);
    CHECK(given.slots == std::vector<io::slot_range>{{6, 8}});
    CHECK(growth.take_granted().slots.empty());
    CHECK(disk_bytes(spec.path) <= 5 * slot_size + tail() + page_alignment);
    CHECK(occupied(*slab) == std::vector<std::uint64_t>{slot_size / 2, slot_size / 2, slot_size / 2, slot_size / 2, 0,
                                                        slot_size, slot_size, slot_size});
    CHECK_FALSE(growth.extend(spec.slots + 1).has_value());
    CHECK(growth.extend(3).has_value());
    CHECK(growth.slots() == 8);
  }
  CHECK(granted_slab_bytes(spec.path) == 6 * slot_size + tail());
  CHECK(granted_slab_bytes(scratch / "none") == 0);
  auto slab = slab_file::open(growing_spec(spec.path, 1));
  REQUIRE(slab.has_value());
  CHECK(slab->spec().sparse);
  CHECK(slab->growth()->slots() == 8);
  CHECK(slab->growth()->granted() == 6);
  for (std::uint64_t slot : {0, 1, 2, 3, 5})
    CHECK(page_text(*slab, slot) == "page " + std::to_string(slot));
}

TEST_CASE("slab growth: a slab that is not sparse stays so, and cannot be extended", "[io][slab_file]") {
  scratch_directory scratch;
  const auto path = scratch / "slab";
  REQUIRE(slab_file::open(growing_spec(path)).has_value());
  auto slab = slab_file::open(sparse_spec(path));
  REQUIRE(slab.has_value());
  CHECK_FALSE(slab->spec().sparse);
  CHECK_FALSE(slab->growth()->is_sparse());
  CHECK(slab->growth()->granted() == 4);
  const auto extended = slab->growth()->extend(6);
  REQUIRE_FALSE(extended.has_value());
  CHECK(extended.error().code == errc::unsupported);
  REQUIRE(slab->growth()->grow(6).has_value());
  CHECK(slab->growth()->granted() == 6);
}

TEST_CASE("slab growth: a sparse slab is a growing one where its file system cannot say what files occupy",
          "[io][slab_file]") {
  const fs::path memory("/dev/shm");
  if (!fs::exists(memory))
    return;
  scratch_directory scratch(memory);
  const unique_descriptor probe(::open((scratch / "probe").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (can_be_sparse(probe.get()))
    return;
  auto slab = slab_file::open(sparse_spec(scratch / "slab"));
  REQUIRE(slab.has_value());
  CHECK_FALSE(slab->spec().sparse);
  CHECK(slab->growth()->slots() == 4);
}

TEST_CASE("slab growth: what the slots of a file with many parts occupy is found", "[io][slab_file]") {
  scratch_directory scratch;
  if (!can_be_sparse_in(scratch.path()))
    return;
  const unique_descriptor file(::open((scratch / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  constexpr std::uint64_t count = 1500;
  REQUIRE(::ftruncate(file.get(), static_cast<off_t>(count * slot_size)) == 0);
  std::vector<std::uint64_t> expected;
  const std::vector<std::byte> bytes(slot_size, std::byte{1});
  for (std::uint64_t slot = 0; slot < count; ++slot) {
    const auto length = slot % 5 * page_alignment;
    expected.push_back(length);
    if (length > 0)
      REQUIRE(::pwrite(file.get(), bytes.data(), length, static_cast<off_t>(slot * slot_size)) ==
              static_cast<ssize_t>(length));
  }
  CHECK(occupied_slots(file.get(), count, slot_size) == expected);
  CHECK(occupied_slots(file.get(), 2, slot_size) == std::vector<std::uint64_t>{0, page_alignment});
  CHECK_FALSE(occupied_slots(-1, 2, slot_size));
}

} // namespace io_slab_growth_test
