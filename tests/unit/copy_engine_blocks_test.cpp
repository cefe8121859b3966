#include "actors/client/copy_engine/copy_engine_state.hpp"
#include "gpu/host_page_mover.hpp"
#include "tests/catch.hpp"
#include "tests/unit/known_arenas.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

namespace copy_engine_blocks_test {

/// Orders for pages of several blocks, and orders that wait for an event.

namespace {

using namespace troupe;

constexpr std::uint32_t blocks = 12;
constexpr std::uint32_t blocks_per_page = 3;
constexpr owner_id owner = 21;
constexpr rank_number rank = 2;
constexpr namespace_id ns{5, 6};
constexpr kv_geometry geometry{
    .layers = 1, .parts = 2, .heads = 1, .head_size = 8, .element_bytes = 2, .block_tokens = 6};
constexpr std::byte poison{0xee};

/// A mover that only records its calls.
class noting_mover final : public page_mover {
public:
  struct notes {
    std::vector<void*> ready;
    std::vector<std::size_t> moves;
  };

  explicit noting_mover(std::shared_ptr<notes> to) : notes_(std::move(to)) {
    view_.geometry = geometry;
    view_.blocks = blocks;
  }

  const kv_cache_view& cache() const noexcept override { return view_; }
  result<void> prepare(std::span<std::byte>) override { return {}; }
  void forget(std::span<std::byte>) override {
    // nop
  }
  std::optional<error> failure() const override { return std::nullopt; }

private:
  result<void> do_gather(std::span<block_move> moves, const device_events& events) override {
    return note(moves, events);
  }
  result<void> do_scatter(std::span<block_move> moves, const device_events& events) override {
    return note(moves, events);
  }
  result<void> note(std::span<block_move> moves, const device_events& events) {
    notes_->ready.push_back(events.ready);
    notes_->moves.push_back(moves.size());
    if (auto ok = validate(view_, moves); !ok)
      return ok;
    for (auto& move : moves)
      move.checksum = io::checksum_of({move.page, move.page_bytes});
    return {};
  }

  kv_cache_view view_;
  std::shared_ptr<notes> notes_;
};

struct device {
  device() {
    std::iota(tensor.begin(), tensor.end(), 1); // no two bytes of a block alike, and blocks differ
    for (std::size_t i = 0; i < tensor.size(); ++i)
      tensor[i] += static_cast<std::uint8_t>(i / 256);
    REQUIRE(state.bind(owner, arena));
  }

  static inline const std::uint64_t slot_bytes = io::slot_bytes(geometry.page_bytes());
  /// The size of one part of one block.
  static constexpr std::size_t part_bytes = std::size_t{2} * 8 * 2;

  std::vector<std::uint8_t> tensor = std::vector<std::uint8_t>(2 * blocks * part_bytes);
  std::span<std::byte> tensor_bytes = std::as_writable_bytes(std::span(tensor));
  std::shared_ptr<test::known_arenas> arenas = std::make_shared<test::known_arenas>();
  arena_info arena = arenas->add(8 * slot_bytes, 8 * slot_bytes);
  copy_engine_state state{{ns, rank, 8, arenas},
                          *make_host_page_mover(*make_kv_cache_view(kv_layout::split, geometry, blocks,
                                                                    {&tensor_bytes, 1}, blocks_per_page))};

  std::vector<std::uint8_t> block(std::uint32_t number) const {
    std::vector<std::uint8_t> out;
    for (std::size_t part = 0; part < 2; ++part) {
      const auto* from = tensor.data() + (part * blocks + number) * part_bytes;
      out.insert(out.end(), from, from + part_bytes);
    }
    return out;
  }
  void poison_all() { std::fill(tensor_bytes.begin(), tensor_bytes.end(), poison); }
  bool is_poisoned(std::uint32_t number) const {
    const auto bytes = block(number);
    return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t x) { return std::byte{x} == poison; });
  }

  /// Page `i` of the order is in frame and slot `i`.
  static copy_order order(const std::vector<std::vector<std::uint32_t>>& pages) {
    copy_order out;
    out.owner = owner;
    for (std::uint32_t i = 0; i < pages.size(); ++i) {
      out.items.items.push_back({{i, 1}, {i, 3}, i * slot_bytes, pages[i].front()});
      out.further_blocks.items.insert(out.further_blocks.items.end(), pages[i].begin() + 1, pages[i].end());
    }
    return out;
  }
  static std::vector<errc> codes(const result<copy_reply>& reply) {
    REQUIRE(reply);
    std::vector<errc> out;
    for (const auto code : reply->results)
      out.push_back(static_cast<errc>(code));
    return out;
  }
};

} // namespace

TEST_CASE("copy engine: a page of several blocks is restored into other blocks", "[copy_engine_state]") {
  device d;
  std::vector<std::vector<std::uint8_t>> before;
  for (std::uint32_t i = 0; i < blocks; ++i)
    before.push_back(d.block(i));
  CHECK(device::codes(d.state.gather(device::order({{0, 1, 2}, {9, 4, 11}}))) == std::vector(2, errc::ok));
  d.poison_all();
  CHECK(device::codes(d.state.scatter(device::order({{5, 7, 3}, {6, 8, 0}}))) == std::vector(2, errc::ok));
  CHECK(d.block(5) == before[0]);
  CHECK(d.block(7) == before[1]);
  CHECK(d.block(3) == before[2]);
  CHECK(d.block(6) == before[9]);
  CHECK(d.block(8) == before[4]);
  CHECK(d.block(0) == before[11]);
  for (const std::uint32_t i : {1, 2, 4, 9, 10, 11})
    CHECK(d.is_poisoned(i));
}

TEST_CASE("copy engine: bytes of missing blocks in a page are checked and not written", "[copy_engine_state]") {
  device d;
  const auto third = d.block(2);
  REQUIRE(device::codes(d.state.gather(device::order({{0, 1, 2}, {3, 4, 5}}))) == std::vector(2, errc::ok));
  d.poison_all();
  const auto wanted = device::order({{null_block, null_block, 8}, {null_block, null_block, null_block}});
  SECTION("valid pages") {
    CHECK(device::codes(d.state.scatter(wanted)) == std::vector(2, errc::ok));
    CHECK(d.block(8) == third);
  }
  SECTION("invalid pages") {
    // The damage is in bytes that would not be written.
    for (std::size_t i = 0; i < 2; ++i)
      d.arenas->memory()->bytes()[i * device::slot_bytes + io::page_header_bytes] ^= std::byte{1};
    CHECK(device::codes(d.state.scatter(wanted)) == std::vector(2, errc::corrupt));
    CHECK(d.is_poisoned(8));
  }
  for (std::uint32_t i = 0; i < blocks; ++i)
    CHECK((i == 8 || d.is_poisoned(i)));
}

TEST_CASE("copy engine: a page with a block missing or out of range is refused alone", "[copy_engine_state]") {
  device d;
  const auto where = GENERATE(0U, 1U, 2U);
  const auto bad = GENERATE(12U, 0xfffffffeU, 0xffffffffU);
  std::vector<std::vector<std::uint32_t>> pages{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}};
  const auto sound = pages;
  pages[1][where] = bad;
  CHECK(device::codes(d.state.gather(device::order(pages))) == std::vector{errc::ok, errc::out_of_range, errc::ok});
  if (bad == null_block)
    return; // which a scatter may name

  const auto before = d.block(7);
  REQUIRE(device::codes(d.state.gather(device::order(sound))) == std::vector(3, errc::ok));
  d.poison_all();
  CHECK(device::codes(d.state.scatter(device::order(pages))) == std::vector{errc::ok, errc::out_of_range, errc::ok});
  CHECK(d.block(7) == before);
  for (const std::uint32_t i : {3, 4, 5})
    CHECK(d.is_poisoned(i));
}

TEST_CASE("copy engine: an order with a wrong number of blocks is refused as a whole", "[copy_engine_state]") {
  device d;
  const auto refused = [&](const copy_order& order) {
    for (const auto& got : {d.state.gather(order), d.state.scatter(order)}) {
      REQUIRE_FALSE(got);
      CHECK(got.error().code == errc::invalid_argument);
      CHECK_FALSE(got.error().text.empty());
    }
  };
  auto order = device::order({{0, 1, 2}, {3, 4, 5}});
  order.further_blocks.items.pop_back();
  refused(order);
  order.further_blocks.items.clear();
  refused(order);
  refused(device::order({{0, 1, 2, 3}, {4, 5, 6, 7}}));
  refused(device::order({{0}}));
  copy_order empty{owner, {}, std::vector<std::uint32_t>{1}};
  refused(empty);
  empty.further_blocks.items.clear();
  CHECK(device::codes(d.state.gather(empty)).empty());
}

TEST_CASE("copy engine: an order waits for the event with its number", "[copy_engine_state][events]") {
  const auto notes = std::make_shared<noting_mover::notes>();
  const auto table = std::make_shared<device_event_table>();
  const auto arenas = std::make_shared<test::known_arenas>();
  copy_engine_state state({ns, rank, 8, arenas}, std::make_shared<noting_mover>(notes), table);
  REQUIRE(state.bind(owner, arenas->add(8 * device::slot_bytes, 8 * device::slot_bytes)));
  int happened = 0;
  const auto event = table->add(&happened);
  auto order = device::order({{0}, {1}});
  CHECK(device::codes(state.gather(order)) == std::vector(2, errc::ok));
  order.ready_event = event;
  CHECK(device::codes(state.gather(order)) == std::vector(2, errc::ok));
  CHECK(device::codes(state.scatter(order)) == std::vector(2, errc::ok));
  CHECK(notes->ready == std::vector<void*>{nullptr, &happened, &happened});

  // Where one page is refused, the others still wait.
  notes->ready.clear();
  auto bad = order;
  bad.items[0].block = blocks;
  CHECK(device::codes(state.gather(bad)) == std::vector{errc::out_of_range, errc::ok});
  CHECK(notes->ready == std::vector<void*>(3, &happened));

  // A number that means nothing moves nothing.
  notes->ready.clear();
  const auto refused = [&](std::uint64_t number, copy_engine_state& by) {
    order.ready_event = number;
    for (const auto& got : {by.gather(order), by.scatter(order)}) {
      REQUIRE_FALSE(got);
      CHECK(got.error().code == errc::invalid_argument);
      CHECK_FALSE(got.error().text.empty());
    }
  };
  refused(event + 1, state);
  refused(reinterpret_cast<std::uint64_t>(&happened), state);
  table->remove(event);
  refused(event, state);
  copy_engine_state without({ns, rank, 8, arenas}, std::make_shared<noting_mover>(notes));
  REQUIRE(without.bind(owner, arenas->add(8 * device::slot_bytes, 8 * device::slot_bytes)));
  refused(event, without);
  CHECK(notes->ready.empty());
}

TEST_CASE("copy engine: a mover for host memory refuses events", "[copy_engine_state][events]") {
  device d;
  const auto table = std::make_shared<device_event_table>();
  copy_engine_state state({ns, rank, 8, d.arenas},
                          *make_host_page_mover(*make_kv_cache_view(kv_layout::split, geometry, blocks,
                                                                    {&d.tensor_bytes, 1}, blocks_per_page)),
                          table);
  REQUIRE(state.bind(owner, d.arena));
  int happened = 0;
  auto order = device::order({{0, 1, 2}});
  order.ready_event = table->add(&happened);
  const auto gathered = state.gather(order);
  REQUIRE_FALSE(gathered);
  CHECK(gathered.error().code == errc::unsupported);
  order.ready_event = 0;
  REQUIRE(device::codes(state.gather(order)) == std::vector{errc::ok});
  d.poison_all();
  order.ready_event = table->add(&happened);
  const auto scattered = state.scatter(order);
  REQUIRE_FALSE(scattered);
  CHECK(scattered.error().code == errc::unsupported);
  CHECK(d.is_poisoned(0));
}

} // namespace copy_engine_blocks_test
