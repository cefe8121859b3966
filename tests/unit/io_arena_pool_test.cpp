#include "io/memory/arena_name.hpp"
#include "io/memory/arena_pool.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <string>
#include <thread>

namespace io_arena_pool_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;

namespace {

std::shared_ptr<arena> memory_of(std::uint64_t extents, std::uint64_t extent_bytes = 8192) {
  return arena::create({extents * extent_bytes, extent_bytes, huge_page_choice::off}).value();
}

constexpr std::uint64_t mebibyte = 1U << 20U;

/// The next extent, once the host has provided it.
result<extent> assign(arena_pool& pool) {
  for (;;) {
    auto assigned = pool.assign();
    if (assigned || assigned.error().code != errc::busy)
      return assigned;
    std::this_thread::yield();
  }
}

/// The host has given all memory.
void make_ready(const arena_pool& pool) {
  while (pool.counts().ready < pool.counts().extents)
    std::this_thread::yield();
}

} // namespace

TEST_CASE("arena pool: each extent is assigned once until none is left", "[io][arena]") {
  const auto memory = memory_of(4);
  arena_pool pool(memory, 1);
  make_ready(pool);
  CHECK(pool.available() == 4);
  for (std::uint32_t number = 0; number < 4; ++number) {
    const auto assigned = pool.assign();
    REQUIRE(assigned);
    CHECK(assigned->number == number);
    CHECK(assigned->offset == number * 8192);
    CHECK(assigned->bytes.data() == memory->bytes().data() + assigned->offset);
    CHECK(assigned->bytes.size() == 8192);
    std::ranges::fill(assigned->bytes, std::byte{1});
    CHECK(pool.available() == 3 - number);
    CHECK(pool.counts() == extent_counts{4, number + 1, 4, 0});
  }
  const auto none = pool.assign();
  REQUIRE_FALSE(none);
  CHECK(none.error().code == errc::full);
  CHECK(missing(none.error().text, {"4 extents"}) == "");
}

TEST_CASE("arena pool: the most recently returned extent is assigned before a fresh one", "[io][arena]") {
  arena_pool pool(memory_of(4), 1);
  make_ready(pool);
  for (int i = 0; i < 3; ++i)
    REQUIRE(pool.assign());
  CHECK(pool.take_back(0));
  CHECK(pool.take_back(2));
  CHECK(pool.available() == 3);
  CHECK(pool.counts() == extent_counts{4, 1, 4, 0});
  CHECK(pool.assign()->number == 2);
  CHECK(pool.assign()->number == 0);
  CHECK(pool.assign()->number == 3);
  CHECK(pool.counts() == extent_counts{4, 4, 4, 0});
}

TEST_CASE("arena pool: a preferred NUMA node is served first, and then the others", "[io][arena]") {
  const auto usable = usable_numa_nodes();
  if (usable.empty()) {
    WARN("skipped: the kernel tells of no NUMA nodes");
    return;
  }
  const auto memory = arena::create({8 * 8192, 8192, huge_page_choice::off, usable}).value();
  arena_pool pool(memory, 1);
  make_ready(pool);
  std::uint32_t near = 0;
  for (std::uint32_t number = 0; number < 8; ++number)
    near += memory->numa_node_of(number) == usable.back() ? 1 : 0;
  CHECK(near > 0);
  for (std::uint32_t i = 0; i < 8; ++i) {
    const auto assigned = pool.assign(usable.back());
    REQUIRE(assigned);
    CHECK((memory->numa_node_of(assigned->number) == usable.back()) == (i < near));
  }
  CHECK(pool.assign(usable.back()).error().code == errc::full);
  CHECK(pool.take_back(3));
  // A node that the arena does not lie on is no reason to refuse.
  CHECK(pool.assign(numa_nodes_max)->number == 3);
}

TEST_CASE("arena pool: only assigned extents are returned, and once", "[io][arena]") {
  arena_pool pool(memory_of(2), 1);
  CHECK_FALSE(pool.take_back(0));
  CHECK_FALSE(pool.take_back(2));
  CHECK_FALSE(pool.take_back(0xffffffff));
  REQUIRE(assign(pool));
  CHECK(pool.take_back(0));
  CHECK_FALSE(pool.take_back(0));
  CHECK(pool.available() == 2);
}

TEST_CASE("arena pool: an extent for which the host has no memory is retried later", "[io][arena]") {
  std::ifstream info("/proc/meminfo");
  std::string word;
  std::uint64_t kilobytes = 0;
  REQUIRE((info >> word >> kilobytes && word == "MemTotal:"));
  // It is as large as the memory of the host, of which a part is in use.
  arena_pool pool(memory_of(1, kilobytes * 1024 / 4096 * 4096));
  while (pool.counts().failed == 0)
    std::this_thread::yield();
  const auto assigned = pool.assign();
  REQUIRE_FALSE(assigned);
  CHECK(assigned.error().code == errc::busy);
  CHECK(pool.available() == 1);
  CHECK(pool.counts() == extent_counts{1, 0, 0, 1});
}

TEST_CASE("arena pool: a pool reports why the host provides no memory until it does", "[io][arena]") {
  std::atomic<bool> gives{false};
  arena_options wanted{4 * 8192, 8192, huge_page_choice::off};
  wanted.kernel.populate = [&](std::span<std::byte> bytes, int file, std::uint64_t offset) {
    return gives ? arena_kernel::of_host().populate(bytes, file, offset) : ENOMEM;
  };
  arena_pool pool(arena::create(wanted).value(), 2);
  while (pool.refusal().empty())
    std::this_thread::yield();
  CHECK(missing(pool.refusal(), {"the host has no memory for an extent of 8 KiB", "Cannot allocate memory"}) == "");
  CHECK(pool.counts().ready == 0);
  gives = true;
  make_ready(pool);
  while (!pool.refusal().empty())
    std::this_thread::yield();
  CHECK(pool.assign());
}

TEST_CASE("arena pool: concurrent threads get each extent of host memory once", "[io][arena]") {
  const auto memory = memory_of(64, 4096);
  arena_pool pool(memory, GENERATE(0U, 1U, 4U));
  for (std::uint32_t i = 0; i < 64; ++i) {
    const auto x = assign(pool);
    REQUIRE(x);
    // Existing contents would be lost if the memory were provided a second time.
    CHECK(x->bytes.front() == std::byte{0});
    x->bytes.front() = std::byte{1};
  }
  CHECK(assign(pool).error().code == errc::full);
  CHECK(pool.counts() == extent_counts{64, 64, 64, 0});
  for (std::uint32_t i = 0; i < 64; ++i)
    CHECK(memory->bytes()[i * 4096] == std::byte{1});
}

TEST_CASE("arena pool: a pool is destroyed while the host still provides memory", "[io][arena]") {
  for (int i = 0; i < 20; ++i)
    arena_pool(memory_of(64, mebibyte), 2);
}

TEST_CASE("arena pool: a client finds the arena by the information from the pool", "[io][arena]") {
  arena_pool pool(memory_of(4));
  const auto assigned = assign(pool);
  REQUIRE(assigned);
  CHECK(pool.info().bytes == 4 * 8192);
  CHECK(pool.info().extent_bytes == 8192);
  CHECK(pool.describe() == "4 KiB pages");
  auto found = arena_finder{}.find(pool.info().bytes, pool.info().name);
  REQUIRE(found);
  (*found)->bytes()[assigned->offset] = std::byte{7};
  CHECK(assigned->bytes.front() == std::byte{7});
}

TEST_CASE("arena pool: no two threads own an extent at once", "[io][arena]") {
  constexpr int holders = 4;
  constexpr std::uint32_t extents = 3;
  arena_pool pool(memory_of(extents, 4096));
  make_ready(pool);
  std::array<std::atomic<int>, extents> users{};
  std::atomic<int> shared{0};
  std::atomic<int> assigned{0};
  std::atomic<int> refused{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < holders; ++i)
      threads.emplace_back([&] {
        for (int round = 0; round < 2000; ++round) {
          const auto x = pool.assign();
          if (!x) {
            refused += x.error().code == errc::full ? 1 : 0;
            continue;
          }
          ++assigned;
          shared += ++users[x->number] == 1 ? 0 : 1;
          --users[x->number];
          shared += pool.take_back(x->number) ? 0 : 1;
        }
      });
  }
  CHECK(shared == 0);
  CHECK(assigned + refused == holders * 2000);
  CHECK(assigned > 0);
  CHECK(pool.available() == extents);
  CHECK(pool.counts().assigned == 0);
  CHECK(pool.counts().ready <= extents);
}

TEST_CASE("arena pool: extents are as large as possible with sixteen in an arena", "[io][arena]") {
  const auto of = [](std::uint64_t arena_bytes, std::uint64_t slot_bytes = 4096) {
    return extent_bytes_for(arena_bytes, slot_bytes).value();
  };
  CHECK(of(256 * mebibyte) == 16 * mebibyte);
  CHECK(of(256 * mebibyte - 1) == 8 * mebibyte);
  CHECK(of(1024 * mebibyte) == 64 * mebibyte);
  CHECK(of(std::uint64_t{64} << 40U) == 64 * mebibyte);
  CHECK(of(32 * mebibyte) == 2 * mebibyte);
  CHECK(of(4 * mebibyte) == 2 * mebibyte); // fewer of them, but no smaller ones
  CHECK(of(4 * mebibyte, 0) == 2 * mebibyte);
}

TEST_CASE("arena pool: the largest slot fits into an extent of whole huge pages", "[io][arena]") {
  const auto of = [](std::uint64_t arena_bytes, std::uint64_t slot_bytes) {
    return extent_bytes_for(arena_bytes, slot_bytes).value();
  };
  CHECK(of(32 * mebibyte, 2 * mebibyte) == 2 * mebibyte);
  CHECK(of(32 * mebibyte, 2 * mebibyte + 4096) == 4 * mebibyte);
  CHECK(of(32 * mebibyte, 16 * mebibyte) == 16 * mebibyte);
  CHECK(of(1024 * mebibyte, 70 * mebibyte + 1) == 72 * mebibyte);
}

TEST_CASE("arena pool: an arena with fewer than two extents is an error that names the key", "[io][arena]") {
  for (const auto& [bytes, slot] : {std::pair{4 * mebibyte - 1, std::uint64_t{4096}}, std::pair{mebibyte, mebibyte},
                                    std::pair{32 * mebibyte, 16 * mebibyte + 1}, std::pair{mebibyte, ~std::uint64_t{0}},
                                    std::pair{std::uint64_t{0}, std::uint64_t{0}}}) {
    const auto none = extent_bytes_for(bytes, slot);
    REQUIRE_FALSE(none);
    CHECK(none.error().code == errc::invalid_argument);
    CHECK(missing(none.error().text, {"memory.bytes", size_text(bytes), "at least"}) == "");
  }
}

} // namespace io_arena_pool_test
