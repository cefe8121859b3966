#include "actors/client/copy_engine/copy_engine_state.hpp"
#include "gpu/host_page_mover.hpp"
#include "io/arena.hpp"
#include "tests/catch.hpp"
#include "tests/unit/other_identity.hpp"
#include "workload/replay/device_memory.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

namespace copy_engine_state_test {

namespace {

using namespace troupe;

constexpr std::uint32_t blocks = 8;
constexpr std::uint64_t segment_id = 21;
constexpr rank_number rank = 2;
constexpr namespace_id space{5, 6};

kv_geometry small_geometry() {
  // A page that is no multiple of the alignment, so that padding is seen.
  return {3, 2, 2, 8, 2, 5};
}

key_digest key(std::uint64_t n) {
  return hash_key(std::as_bytes(std::span(&n, 1)));
}

struct device {
  explicit device(std::uint32_t batch_pages_max = 64)
      : memory(*replay::device_memory::create(small_geometry(), blocks, {})),
        state({space, rank, batch_pages_max}, *make_host_page_mover(memory.view())) {
    for (std::uint32_t i = 0; i < blocks; ++i)
      memory.fill(i, key(i), rank);
    segment = *io::arena::create(blocks * slot_bytes);
    REQUIRE(state.bind(segment_id, segment));
  }

  static inline const std::uint64_t page_bytes = small_geometry().page_bytes();
  static inline const std::uint64_t slot_bytes = io::slot_bytes(page_bytes);

  static copy_item item(std::uint32_t block, std::uint64_t buffer, std::uint64_t key_number) {
    return {key(key_number), {40 + block, 3}, buffer * slot_bytes, block};
  }

  /// All that a save does: the codes, one per item.
  std::vector<errc> gather(const std::vector<copy_item>& items) {
    const auto reply = state.gather({segment_id, items});
    REQUIRE(reply);
    return codes(*reply);
  }
  std::vector<errc> scatter(const std::vector<copy_item>& items) {
    const auto reply = state.scatter({segment_id, items});
    REQUIRE(reply);
    return codes(*reply);
  }
  static std::vector<errc> codes(const copy_reply& reply) {
    std::vector<errc> out;
    for (const auto code : reply.results)
      out.push_back(static_cast<errc>(code));
    return out;
  }

  std::byte* buffer(std::uint64_t n) { return segment->bytes().data() + n * slot_bytes; }

  bool holds(std::uint32_t block, std::uint64_t key_number) const {
    return !memory.verify(block, key(key_number), rank).has_value();
  }
  void poison_all() {
    for (std::uint32_t i = 0; i < blocks; ++i)
      memory.poison(i);
  }

  replay::device_memory memory;
  copy_engine_state state;
  std::shared_ptr<io::arena> segment;
};

} // namespace

TEST_CASE("copy engine: what was gathered comes back by a scatter, in other blocks, and nothing else is touched",
          "[copy_engine_state]") {
  device d;
  auto items = std::vector{d.item(0, 3, 0), d.item(5, 1, 5), d.item(2, 0, 2)};
  CHECK(d.gather(items) == std::vector(3, errc::ok));
  d.poison_all();
  items[0].block = 7;
  items[1].block = 4;
  CHECK(d.scatter(items) == std::vector(3, errc::ok));
  CHECK(d.holds(7, 0));
  CHECK(d.holds(4, 5));
  CHECK(d.holds(2, 2));
  for (const std::uint32_t block : {0, 1, 3, 5, 6})
    CHECK(d.memory.is_poisoned(block));
}

TEST_CASE("copy engine: what is gathered is a sealed page, with nothing of the buffer's past", "[copy_engine_state]") {
  device d;
  std::fill(d.segment->bytes().begin(), d.segment->bytes().end(), std::byte{0xee});
  CHECK(d.gather({d.item(1, 2, 1)}) == std::vector{errc::ok});
  const std::span page(d.buffer(2), device::slot_bytes);
  CHECK(io::verify_page(page, {space, key(1), rank, {41, 3}, device::page_bytes}) == errc::ok);
  CHECK(std::all_of(page.begin() + static_cast<std::ptrdiff_t>(io::page_header_bytes + device::page_bytes), page.end(),
                    [](std::byte b) { return b == std::byte{0}; }));
  CHECK(*d.buffer(1) == std::byte{0xee});
  CHECK(*d.buffer(3) == std::byte{0xee});
}

TEST_CASE("copy engine: a page of anything else is not scattered, and fails alone", "[copy_engine_state]") {
  device d;
  const std::vector items{d.item(0, 0, 0), d.item(1, 1, 1), d.item(2, 2, 2)};
  REQUIRE(d.gather(items) == std::vector(3, errc::ok));
  d.poison_all();
  auto wanted = items;
  SECTION("another key") {
    wanted[1].key = key(99);
  }
  SECTION("another slot") {
    ++wanted[1].where.slot;
  }
  SECTION("an older generation") {
    --wanted[1].where.generation;
  }
  SECTION("another item's page") {
    wanted[1].buffer_offset = wanted[0].buffer_offset;
  }
  CHECK(d.scatter(wanted) == std::vector{errc::ok, errc::identity_mismatch, errc::ok});
  CHECK(d.holds(0, 0));
  CHECK(d.memory.is_poisoned(1));
  CHECK(d.holds(2, 2));
}

TEST_CASE("copy engine: a page that differs in any one field of its identity is not scattered", "[copy_engine_state]") {
  for (const auto& change : test::identity_changes) {
    INFO(change.field);
    device d;
    const std::vector items{d.item(0, 0, 0), d.item(1, 1, 1)};
    REQUIRE(d.gather(items) == std::vector(2, errc::ok));
    d.poison_all();
    const std::span page(d.buffer(1), device::slot_bytes);
    const auto wanted = io::identity_of(page);
    REQUIRE(wanted);
    auto other = *wanted;
    change.make(other);
    // Sealed anew, so that the header is sound, and with the checksum of what is moved: only the identity can tell.
    io::seal_page(page, other, io::checksum_of(page.subspan(io::page_header_bytes, device::page_bytes)));
    const auto got = d.scatter(items);
    CHECK(got[0] == errc::ok);
    CHECK(got[1] == (other.payload_bytes == wanted->payload_bytes ? errc::identity_mismatch : errc::corrupt));
    CHECK(d.holds(0, 0));
    CHECK(d.memory.is_poisoned(1));
  }
}

TEST_CASE("copy engine: a page of another rank or namespace is not scattered", "[copy_engine_state]") {
  device d;
  REQUIRE(d.gather({d.item(0, 0, 0)}) == std::vector{errc::ok});
  d.poison_all();
  const bool other_rank = GENERATE(false, true);
  copy_engine_state other({other_rank ? space : namespace_id{5, 7}, other_rank ? rank + 1 : rank, 64},
                          *make_host_page_mover(d.memory.view()));
  REQUIRE(other.bind(segment_id, d.segment));
  const auto reply = other.scatter({segment_id, {{d.item(0, 0, 0)}}});
  REQUIRE(reply);
  CHECK(device::codes(*reply) == std::vector{errc::identity_mismatch});
  CHECK(d.memory.is_poisoned(0));
}

TEST_CASE("copy engine: a flipped, torn or empty page is corrupt and not scattered", "[copy_engine_state]") {
  device d;
  const std::vector items{d.item(0, 0, 0), d.item(1, 1, 1)};
  REQUIRE(d.gather(items) == std::vector(2, errc::ok));
  d.poison_all();
  SECTION("a flipped bit at the end") {
    d.buffer(1)[io::page_header_bytes + device::page_bytes - 1] ^= std::byte{0x10};
  }
  SECTION("a flipped bit in the header") {
    d.buffer(1)[8] ^= std::byte{1};
  }
  SECTION("cut short") {
    std::memset(d.buffer(1) + io::page_header_bytes + 512, 0, device::page_bytes - 512);
  }
  SECTION("zeroes") {
    std::memset(d.buffer(1), 0, device::slot_bytes);
  }
  CHECK(d.scatter(items) == std::vector{errc::ok, errc::corrupt});
  CHECK(d.holds(0, 0));
  CHECK(d.memory.is_poisoned(1));
}

TEST_CASE("copy engine: a block or buffer that does not exist fails alone", "[copy_engine_state]") {
  device d;
  constexpr std::uint64_t huge = ~std::uint64_t{0};
  std::vector items{d.item(0, 0, 0), d.item(1, 1, 1), d.item(2, 2, 2)};
  SECTION("block") {
    items[1].block = GENERATE(std::uint32_t{blocks}, 0xfffffffeU);
  }
  SECTION("buffer") {
    items[1].buffer_offset =
        GENERATE_COPY(blocks * device::slot_bytes, (blocks - 1) * device::slot_bytes + 4096, 100, huge, huge - 4095);
  }
  CHECK(d.gather(items) == std::vector{errc::ok, errc::out_of_range, errc::ok});

  // The same order as a scatter, of pages that are all there.
  REQUIRE(d.gather({d.item(1, 1, 1)}) == std::vector{errc::ok});
  d.poison_all();
  CHECK(d.scatter(items) == std::vector{errc::ok, errc::out_of_range, errc::ok});
  CHECK(d.holds(0, 0));
  CHECK(d.memory.is_poisoned(1));
  CHECK(d.holds(2, 2));
}

TEST_CASE("copy engine: a page with a block missing is not stored, and a block not wanted is not written",
          "[copy_engine_state]") {
  device d;
  std::vector items{d.item(0, 0, 0), d.item(1, 1, 1), d.item(2, 2, 2)};
  REQUIRE(d.gather(items) == std::vector(3, errc::ok));
  items[1].block = null_block;
  CHECK(d.gather(items) == std::vector{errc::ok, errc::out_of_range, errc::ok});
  d.poison_all();
  CHECK(d.scatter(items) == std::vector(3, errc::ok));
  CHECK(d.holds(0, 0));
  CHECK(d.memory.is_poisoned(1));
  CHECK(d.holds(2, 2));
}

TEST_CASE("copy engine: an order for another segment, or one that is too long, is refused as a whole",
          "[copy_engine_state]") {
  device d(4);
  const auto refused = [&](std::uint64_t segment, std::size_t items) {
    const copy_order order{segment, std::vector<copy_item>(items, d.item(0, 0, 0))};
    const auto gathered = d.state.gather(order);
    const auto scattered = d.state.scatter(order);
    REQUIRE_FALSE(gathered);
    REQUIRE_FALSE(scattered);
    CHECK(gathered.error().code == scattered.error().code);
    CHECK_FALSE(scattered.error().text.empty());
    return scattered.error().code;
  };
  CHECK(refused(segment_id + 1, 1) == errc::expired);
  CHECK(refused(0, 1) == errc::expired);
  CHECK(refused(segment_id, 5) == errc::limit_exceeded);

  // After a reconnect, orders of the life before find nothing.
  REQUIRE(d.state.bind(segment_id + 1, *io::arena::create(device::slot_bytes)));
  CHECK(refused(segment_id, 1) == errc::expired);
  CHECK(d.state.gather({segment_id + 1, {{d.item(0, 0, 0)}}}));

  copy_engine_state unbound({space, rank, 4}, *make_host_page_mover(d.memory.view()));
  CHECK(unbound.gather({0, {}}).error().code == errc::expired);
}

TEST_CASE("copy engine: an empty order has an empty answer", "[copy_engine_state]") {
  device d;
  CHECK(d.gather({}).empty());
  CHECK(d.scatter({}).empty());
}

} // namespace copy_engine_state_test
