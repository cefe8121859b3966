#include "actors/client/copy_engine/copy_engine_state.hpp"
#include "gpu/host_page_mover.hpp"
#include "tests/catch.hpp"
#include "tests/unit/known_arenas.hpp"
#include "tests/unit/other_identity.hpp"
#include "workload/replay/device_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace copy_engine_state_test {

namespace {

using namespace troupe;

constexpr std::uint32_t blocks = 8;
constexpr owner_id owner = 21;
constexpr rank_number rank = 2;
constexpr namespace_id ns{5, 6};

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
        state({ns, rank, batch_pages_max, arenas}, *make_host_page_mover(memory.view())) {
    for (std::uint32_t i = 0; i < blocks; ++i)
      memory.fill(i, key(i), rank);
    REQUIRE(state.bind(owner, arena));
  }

  static inline const std::uint64_t page_bytes = small_geometry().page_bytes();
  static inline const std::uint64_t slot_bytes = io::slot_bytes(page_bytes);

  static copy_item item(std::uint32_t block, std::uint64_t frame, std::uint64_t key_number) {
    return {key(key_number), {40 + block, 3}, frame * slot_bytes, block};
  }

  /// All that a save does: the codes, one per item.
  std::vector<errc> gather(const std::vector<copy_item>& items) {
    const auto reply = state.gather({owner, items});
    REQUIRE(reply);
    return codes(*reply);
  }
  std::vector<errc> scatter(const std::vector<copy_item>& items) {
    const auto reply = state.scatter({owner, items});
    REQUIRE(reply);
    return codes(*reply);
  }
  static std::vector<errc> codes(const copy_reply& reply) {
    std::vector<errc> out;
    for (const auto code : reply.results)
      out.push_back(static_cast<errc>(code));
    return out;
  }

  std::span<std::byte> bytes() { return arenas->memory()->bytes(); }
  std::byte* frame(std::uint64_t n) { return bytes().data() + n * slot_bytes; }

  bool holds(std::uint32_t block, std::uint64_t key_number) const {
    return !memory.verify(block, key(key_number), rank).has_value();
  }
  void poison_all() {
    for (std::uint32_t i = 0; i < blocks; ++i)
      memory.poison(i);
  }

  replay::device_memory memory;
  std::shared_ptr<test::known_arenas> arenas = std::make_shared<test::known_arenas>();
  /// Two extents.
  arena_info arena = arenas->add(blocks * slot_bytes, blocks / 2 * slot_bytes);
  copy_engine_state state;
};

} // namespace

TEST_CASE("copy engine: gathered bytes are restored by a scatter in other blocks, and nothing else is touched",
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

TEST_CASE("copy engine: a gathered page is sealed and contains nothing of the earlier frame contents",
          "[copy_engine_state]") {
  device d;
  std::fill(d.bytes().begin(), d.bytes().end(), std::byte{0xee});
  CHECK(d.gather({d.item(1, 2, 1)}) == std::vector{errc::ok});
  const std::span page(d.frame(2), device::slot_bytes);
  CHECK(io::verify_page(page, {ns, key(1), rank, {41, 3}, device::page_bytes}) == errc::ok);
  CHECK(std::all_of(page.begin() + static_cast<std::ptrdiff_t>(io::page_header_bytes + device::page_bytes), page.end(),
                    [](std::byte b) { return b == std::byte{0}; }));
  CHECK(*d.frame(1) == std::byte{0xee});
  CHECK(*d.frame(3) == std::byte{0xee});
}

TEST_CASE("copy engine: an unexpected page is not scattered and fails alone", "[copy_engine_state]") {
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
  SECTION("the page of another item") {
    wanted[1].frame_offset = wanted[0].frame_offset;
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
    const std::span page(d.frame(1), device::slot_bytes);
    const auto wanted = io::identity_of(page);
    REQUIRE(wanted);
    auto other = *wanted;
    change.make(other);
    // The page is sealed again, with a valid header and the right checksum: only the identity differs.
    io::seal_page(page, other,
                  {page_encoding::raw, other.payload_bytes,
                   io::checksum_of(page.subspan(io::page_header_bytes, device::page_bytes))});
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
  copy_engine_state other({other_rank ? ns : namespace_id{5, 7}, other_rank ? rank + 1 : rank, 64, d.arenas},
                          *make_host_page_mover(d.memory.view()));
  REQUIRE(other.bind(owner, d.arena));
  const auto reply = other.scatter({owner, {{d.item(0, 0, 0)}}});
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
    d.frame(1)[io::page_header_bytes + device::page_bytes - 1] ^= std::byte{0x10};
  }
  SECTION("a flipped bit in the header") {
    d.frame(1)[8] ^= std::byte{1};
  }
  SECTION("cut short") {
    std::memset(d.frame(1) + io::page_header_bytes + 512, 0, device::page_bytes - 512);
  }
  SECTION("zeroes") {
    std::memset(d.frame(1), 0, device::slot_bytes);
  }
  CHECK(d.scatter(items) == std::vector{errc::ok, errc::corrupt});
  CHECK(d.holds(0, 0));
  CHECK(d.memory.is_poisoned(1));
}

TEST_CASE("copy engine: a nonexistent block or frame fails alone", "[copy_engine_state]") {
  device d;
  constexpr std::uint64_t huge = ~std::uint64_t{0};
  std::vector items{d.item(0, 0, 0), d.item(1, 1, 1), d.item(2, 2, 2)};
  SECTION("block") {
    items[1].block = GENERATE(std::uint32_t{blocks}, 0xfffffffeU);
  }
  SECTION("frame") {
    // The third to last would end in the next extent.
    items[1].frame_offset = GENERATE_COPY(blocks * device::slot_bytes, (blocks - 1) * device::slot_bytes + 4096, 100,
                                          (blocks / 2 - 1) * device::slot_bytes + 4096, huge, huge - 4095);
  }
  CHECK(d.gather(items) == std::vector{errc::ok, errc::out_of_range, errc::ok});

  // The same order is a scatter of valid pages.
  REQUIRE(d.gather({d.item(1, 1, 1)}) == std::vector{errc::ok});
  d.poison_all();
  CHECK(d.scatter(items) == std::vector{errc::ok, errc::out_of_range, errc::ok});
  CHECK(d.holds(0, 0));
  CHECK(d.memory.is_poisoned(1));
  CHECK(d.holds(2, 2));
}

TEST_CASE("copy engine: a page with a block missing is not stored, and an unwanted block is not written",
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

TEST_CASE("copy engine: an order of another attachment or beyond the length limit is refused as a whole",
          "[copy_engine_state]") {
  device d(4);
  const auto refused = [&](owner_id by, std::size_t items) {
    const copy_order order{by, std::vector<copy_item>(items, d.item(0, 0, 0))};
    const auto gathered = d.state.gather(order);
    const auto scattered = d.state.scatter(order);
    REQUIRE_FALSE(gathered);
    REQUIRE_FALSE(scattered);
    CHECK(gathered.error().code == scattered.error().code);
    CHECK_FALSE(scattered.error().text.empty());
    return scattered.error().code;
  };
  CHECK(refused(owner + 1, 1) == errc::expired);
  CHECK(refused(0, 1) == errc::expired);
  CHECK(refused(owner, 5) == errc::limit_exceeded);

  SECTION("after a reconnect") {
    const bool same_arena = GENERATE(false, true);
    const auto next = same_arena ? d.arena : d.arenas->add(device::slot_bytes, device::slot_bytes);
    REQUIRE(d.state.bind(owner + 1, next));
    CHECK(refused(owner, 1) == errc::expired);
    CHECK(d.state.gather({owner + 1, {{d.item(0, 0, 0)}}}));
    d.state.end(owner); // already ended: changes nothing
    CHECK(d.state.gather({owner + 1, {{d.item(0, 0, 0)}}}));
  }
  SECTION("after its end") {
    d.state.end(owner + 1); // belongs to another attachment
    CHECK(d.state.gather({owner, {{d.item(0, 0, 0)}}}));
    d.state.end(owner);
    CHECK(refused(owner, 1) == errc::expired);
    CHECK(refused(0, 1) == errc::expired);
    d.state.wait_for_quiesce(owner);
  }
  copy_engine_state unbound({ns, rank, 4, d.arenas}, *make_host_page_mover(d.memory.view()));
  CHECK(unbound.gather({0, {}}).error().code == errc::expired);
  CHECK(unbound.gather({owner, {}}).error().code == errc::expired);
}

TEST_CASE("copy engine: a two-step gather keeps its attachment and frames in use until it has ended",
          "[copy_engine_state]") {
  device d;
  auto state = std::make_shared<copy_engine_state>(copy_engine_options{ns, rank, 4, d.arenas},
                                                   *make_host_page_mover(d.memory.view()));
  REQUIRE(state->bind(owner, d.arena));
  CHECK(copy_engine_state::begin_gather(state, {owner + 1, {{d.item(0, 0, 0)}}}).error().code == errc::expired);
  CHECK(copy_engine_state::begin_gather(state, {owner, std::vector(5, d.item(0, 0, 0))}).error().code ==
        errc::limit_exceeded);
  // Only the sender of the bytes uses the number of the event.
  const copy_order order{owner, {{d.item(0, 0, 0), d.item(1, 99, 1), d.item(2, 2, 2), d.item(3, 3, 3)}}, {}, 12};
  std::atomic<bool> quiesced = false;
  std::thread waits;
  {
    auto open = copy_engine_state::begin_gather(state, order);
    REQUIRE(open);
    REQUIRE(open->moves().size() == 3);
    CHECK(std::ranges::equal(open->positions(), std::vector<std::size_t>{0, 2, 3}));
    state->end(owner);
    waits = std::thread([&quiesced, &it = *state] {
      it.wait_for_quiesce(owner);
      quiesced = true;
    });
    // One page is there, one is missing, and one was sealed for another identity.
    std::vector<std::byte> page(device::page_bytes, std::byte{5});
    std::memcpy(open->moves()[0].page, page.data(), page.size());
    open->moves()[0].checksum = io::checksum_of(page);
    open->moves()[1].verdict = errc::timeout;
    CHECK(device::codes(state->end_gather(*open, order)) ==
          std::vector{errc::ok, errc::out_of_range, errc::timeout, errc::ok});
    const auto verify = [&](std::uint64_t n) {
      return io::verify_page(std::span(d.frame(n), device::slot_bytes),
                             {ns, key(n), rank, {static_cast<slot_number>(40 + n), 3}, device::page_bytes});
    };
    CHECK(verify(0) == errc::ok);
    CHECK(verify(2) != errc::ok);
    CHECK(verify(3) != errc::ok);
    CHECK_FALSE(quiesced);
  }
  waits.join();
  CHECK(quiesced);
}

TEST_CASE("copy engine: an invalid arena is refused, and the bound one stays", "[copy_engine_state]") {
  device d;
  auto bad = d.arena;
  auto by = owner + 1;
  auto expected = errc::invalid_argument;
  SECTION("empty") {
    bad.bytes = 0;
  }
  SECTION("extents of zero bytes") {
    bad.extent_bytes = 0;
  }
  SECTION("extents in which frames cannot be aligned") {
    bad.extent_bytes += 512;
  }
  SECTION("without an owner") {
    by = 0;
  }
  SECTION("not found") {
    bad = d.arenas->add(device::slot_bytes, device::slot_bytes);
    d.arenas->lose(1);
    expected = errc::unreachable;
  }
  const auto refused = d.state.bind(by, bad);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == expected);
  CHECK_FALSE(refused.error().text.empty());
  CHECK(d.gather({d.item(0, 0, 0)}) == std::vector{errc::ok});
}

TEST_CASE("copy engine: an empty order has an empty answer", "[copy_engine_state]") {
  device d;
  CHECK(d.gather({}).empty());
  CHECK(d.scatter({}).empty());
}

} // namespace copy_engine_state_test
