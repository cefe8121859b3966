#include "codec/page_codec.hpp"
#include "io/foreign/foreign_pages.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"
#include "workload/kv_values/kv_values.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <sys/stat.h>
#include <thread>

namespace io_foreign_pages_test {

using namespace troupe;
using namespace troupe::io;
using test::scratch_directory;

namespace {

constexpr std::uint64_t page_bytes = 5000;
constexpr namespace_id ns{1, 2};

timestamp now() {
  return std::chrono::steady_clock::now();
}

/// The slab of a node, and a reader elsewhere.
struct shared_disk {
  explicit shared_disk(engine_kind kind = engine_kind::threads)
      : owner(slab_file::open(spec(), true).value()), reader(open_reader(kind)), pages(options()) {}

  slab_spec spec() const {
    return {.path = scratch / "node-1/a.slab",
            .ns = ns,
            .namespace_name = "a",
            .rank = 3,
            .slot_bytes = slot_bytes(page_bytes),
            .slots = 100};
  }
  static std::shared_ptr<foreign_reader> open_reader(engine_kind kind) {
    engine_options how;
    how.kind = kind;
    how.depth = 8;
    return foreign_reader::make(how).value();
  }
  foreign_pages::options options() { return {{reader, scratch.path(), true}, ns, 3, page_bytes, blocks}; }
  incarnation_number incarnation() const { return owner.spec().incarnation; }

  static std::byte fill_of(slot_number slot, generation_number generation) {
    return static_cast<std::byte>(slot * 7 + generation);
  }
  void write(slot_number slot, generation_number generation = 1) const {
    test::aligned_buffer buffer(slot_bytes(page_bytes));
    std::fill_n(buffer.data() + page_header_bytes, page_bytes, fill_of(slot, generation));
    seal_page(buffer.bytes(), {ns, {5, slot}, 3, {slot, generation}, page_bytes});
    REQUIRE(::pwrite(owner.descriptor(), buffer.data(), buffer.size(), static_cast<off_t>(slot * buffer.size())) ==
            static_cast<ssize_t>(buffer.size()));
  }
  static foreign_page page(slot_number slot, std::uint32_t block, generation_number generation = 1) {
    return {{5, slot}, {slot, generation}, block};
  }
  std::vector<errc> read(const std::vector<foreign_page>& wanted) {
    return pages.read("node-1/a.slab", incarnation(), wanted, now() + test::test_patience, now());
  }
  bool block_is(std::uint32_t block, std::byte what) const {
    const auto bytes = std::span(blocks).subspan(block * page_bytes, page_bytes);
    return std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == what; });
  }

  scratch_directory scratch;
  std::vector<std::byte> blocks = std::vector<std::byte>(80 * page_bytes);
  slab_file owner;
  std::shared_ptr<foreign_reader> reader;
  foreign_pages pages;
};

} // namespace

TEST_CASE("foreign pages: pages of the slab file of another node are read into the given blocks",
          "[io][foreign_pages]") {
  shared_disk disk(GENERATE(engine_kind::threads, engine_kind::automatic));
  std::vector<foreign_page> wanted;
  for (slot_number i = 0; i < 70; ++i) {
    disk.write(99 - i);
    wanted.push_back(shared_disk::page(99 - i, i));
  }
  // More than there are frames, and once more over the same file.
  for (int round = 0; round < 2; ++round) {
    CHECK(disk.read(wanted) == std::vector(70, errc::ok));
    for (std::uint32_t i = 0; i < 70; ++i)
      REQUIRE(disk.block_is(i, shared_disk::fill_of(99 - i, 1)));
    CHECK(disk.block_is(70, std::byte{0}));
    std::fill(disk.blocks.begin(), disk.blocks.end(), std::byte{0});
  }
  CHECK(disk.pages.take_trouble().empty());
  CHECK(disk.reader->under_way() == 0);
}

TEST_CASE("foreign pages: an encoded page of another node is decoded into its block", "[io][foreign_pages]") {
  shared_disk disk;
  std::mt19937_64 random(3);
  const auto values = workload::make_values(workload::value_kind::normal, page_bytes / 2, random);
  test::aligned_buffer buffer(slot_bytes(page_bytes));
  const auto stored = codec::stored_bytes(page_encoding::bf16, page_bytes);
  const auto payload = buffer.bytes().subspan(page_header_bytes, stored);
  REQUIRE(codec::encode(values, payload) == codec::outcome::encoded);
  const auto write = [&](slot_number slot) {
    const page_identity identity{ns, {5, slot}, 3, {slot, 1}, page_bytes};
    seal_page(buffer.bytes(), identity, {page_encoding::bf16, stored, checksum_of(payload)});
    REQUIRE(::pwrite(disk.owner.descriptor(), buffer.data(), buffer.size(), static_cast<off_t>(slot * buffer.size())) ==
            static_cast<ssize_t>(buffer.size()));
  };
  write(4);
  payload[0] ^= std::byte{1}; // a page that no encoder wrote
  write(5);
  CHECK(disk.read({shared_disk::page(4, 7), shared_disk::page(5, 8)}) == std::vector{errc::ok, errc::corrupt});
  CHECK(std::ranges::equal(std::span(disk.blocks).subspan(7 * page_bytes, page_bytes), values));
}

TEST_CASE("foreign pages: an unexpected page leaves its block unchanged", "[io][foreign_pages]") {
  shared_disk disk;
  disk.write(1);
  disk.write(2, 5);
  disk.write(3);
  const char torn = 99;
  REQUIRE(::pwrite(unique_descriptor(::open(disk.spec().path.c_str(), O_WRONLY)).get(), &torn, 1,
                   static_cast<off_t>(3 * slot_bytes(page_bytes) + page_header_bytes + 1234)) == 1);
  auto other_key = shared_disk::page(1, 3);
  other_key.key = {6, 1};
  const auto got = disk.read({shared_disk::page(1, 0), shared_disk::page(2, 1, 4), shared_disk::page(3, 2), other_key,
                              shared_disk::page(50, 4), shared_disk::page(100, 5), shared_disk::page(1, 80),
                              shared_disk::page(1, null_block)});
  CHECK(got == std::vector{errc::ok, errc::identity_mismatch, errc::corrupt, errc::identity_mismatch, errc::corrupt,
                           errc::out_of_range, errc::out_of_range, errc::ok});
  CHECK(disk.block_is(0, shared_disk::fill_of(1, 1)));
  for (std::uint32_t i = 1; i < 80; ++i)
    REQUIRE(disk.block_is(i, std::byte{0}));
}

TEST_CASE("foreign pages: a file with another identity is not read, is reported once, and is retried later",
          "[io][foreign_pages]") {
  shared_disk disk;
  disk.write(1);
  const std::vector<foreign_page> wanted{shared_disk::page(1, 0)};
  const auto begun = now();
  const auto later_on = begun + std::chrono::minutes(20);
  const auto until = begun + std::chrono::hours(1);
  const auto read = [&](const char* path, incarnation_number of, timestamp when) {
    return disk.pages.read(path, of, wanted, until, when).front();
  };
  CHECK(read("node-1/a.slab", disk.incarnation() + 1, begun) == errc::unsupported);
  CHECK(disk.pages.take_trouble().find("is not the expected file") != std::string::npos);
  CHECK(read("node-1/a.slab", disk.incarnation() + 1, begun) == errc::unsupported);
  CHECK(disk.pages.take_trouble().empty());
  // After a reattachment another file is expected, and it is checked at once.
  CHECK(read("node-1/a.slab", disk.incarnation(), begun) == errc::ok);
  CHECK(read("node-2/a.slab", disk.incarnation(), begun) == errc::unsupported);
  CHECK(disk.pages.take_trouble().find("there is no slab") != std::string::npos);
  std::filesystem::create_directory(disk.scratch / "node-2");
  std::filesystem::create_hard_link(disk.spec().path, disk.scratch / "node-2/a.slab");
  CHECK(read("node-2/a.slab", disk.incarnation(), begun) == errc::unsupported);
  CHECK(read("node-2/a.slab", disk.incarnation(), later_on) == errc::ok);
  // A path cannot leave the directory.
  const auto outside = disk.scratch.path().string() + "/node-1/a.slab";
  CHECK(read(outside.c_str(), disk.incarnation(), begun) == errc::unsupported);
  CHECK(disk.pages.take_trouble().find("not a path below") != std::string::npos);
  CHECK(read("node-2/../node-1/a.slab", disk.incarnation(), begun) == errc::unsupported);
  CHECK(read("", disk.incarnation(), begun) == errc::unsupported);
}

TEST_CASE("foreign pages: a file that is truncated while it is read fails its pages and is opened again",
          "[io][foreign_pages]") {
  shared_disk disk;
  disk.write(1);
  disk.write(60);
  CHECK(disk.read({shared_disk::page(1, 0)}) == std::vector{errc::ok});
  std::filesystem::resize_file(disk.spec().path, 10 * slot_bytes(page_bytes));
  CHECK(disk.read({shared_disk::page(1, 0), shared_disk::page(60, 1)}) == std::vector{errc::ok, errc::slab_damaged});
  CHECK(disk.read({shared_disk::page(1, 0)}) == std::vector{errc::unsupported});
  CHECK(disk.pages.take_trouble().find("no sound trailer") != std::string::npos);
}

TEST_CASE("foreign pages: a read from a hanging file system times out", "[io][foreign_pages]") {
  shared_disk disk;
  disk.write(1);
  CHECK(disk.read({shared_disk::page(1, 0)}) == std::vector{errc::ok});
  // The deadline is long past: the call does not wait, and late results are dropped.
  const std::vector<foreign_page> wanted{shared_disk::page(1, 1), shared_disk::page(1, 2)};
  const auto over = now() - std::chrono::seconds(1);
  const auto got = disk.pages.read("node-1/a.slab", disk.incarnation(), wanted, over, over);
  for (std::size_t i = 0; i < 2; ++i)
    CHECK((got[i] == errc::timeout || got[i] == errc::ok));
  for (int i = 0; i < 100; ++i)
    disk.pages.read("node-1/a.slab", disk.incarnation(), wanted, over, over);
  // Abandoned frames are reused when they are free.
  CHECK(disk.read({shared_disk::page(1, 3)}) == std::vector{errc::ok});
  CHECK(disk.block_is(3, shared_disk::fill_of(1, 1)));
}

TEST_CASE("foreign pages: files that open after their request timed out are closed while others are read",
          "[io][foreign_pages]") {
  shared_disk disk(GENERATE(engine_kind::threads, engine_kind::automatic));
  for (slot_number i = 0; i < 100; ++i)
    disk.write(i);
  auto expected = disk.spec();
  expected.incarnation = disk.incarnation();
  std::atomic<bool> ends = false;
  // The deadline is past before the call begins, and the file still opens.
  auto late = std::async(std::launch::async, [&] {
    while (!ends) {
      static_cast<void>(disk.reader->open(disk.spec().path, expected, true, now() - std::chrono::seconds(1)));
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  std::vector<foreign_page> wanted;
  for (slot_number i = 0; i < 64; ++i)
    wanted.push_back(shared_disk::page(i, i));
  for (int round = 0; round < 300; ++round)
    REQUIRE(disk.read(wanted) == std::vector(64, errc::ok));
  ends = true;
  late.get();
}

TEST_CASE("foreign pages: several threads read through one engine", "[io][foreign_pages]") {
  shared_disk disk;
  for (slot_number i = 0; i < 100; ++i)
    disk.write(i);
  std::vector<std::future<bool>> all;
  for (std::uint32_t t = 0; t < 4; ++t)
    all.push_back(std::async(std::launch::async, [&disk, t] {
      std::vector<std::byte> own(100 * page_bytes);
      auto how = disk.options();
      how.blocks = own;
      foreign_pages mine(how);
      std::vector<foreign_page> wanted;
      for (slot_number i = 0; i < 100; ++i)
        wanted.push_back(shared_disk::page((i * 7 + t) % 100, i));
      const auto got = mine.read("node-1/a.slab", disk.incarnation(), wanted, now() + test::test_patience, now());
      bool fine = got == std::vector(100, errc::ok);
      for (slot_number i = 0; i < 100; ++i)
        fine &= own[i * page_bytes] == shared_disk::fill_of((i * 7 + t) % 100, 1);
      return fine;
    }));
  for (auto& x : all)
    CHECK(x.get());
}

} // namespace io_foreign_pages_test
