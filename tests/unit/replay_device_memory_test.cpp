#include "base/geometry_bounds.hpp"
#include "base/page_limits.hpp"
#include "gpu/host_page_mover.hpp"
#include "tests/catch.hpp"
#include "workload/replay/device_memory.hpp"

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace replay_device_memory_test {

namespace {

using namespace troupe;
using namespace troupe::replay;
using bytes = std::vector<std::byte>;

constexpr kv_geometry small{3, 2, 2, 8, 2, 4};
constexpr kv_geometry small_mla{3, 1, 1, 24, 2, 4};

device_memory make(kv_layout layout, std::uint32_t blocks = 12) {
  auto memory = device_memory::create(layout == kv_layout::mla ? small_mla : small, blocks, {layout, 1});
  REQUIRE(memory.has_value());
  return std::move(*memory);
}

bytes page_of(const kv_geometry& g, const key_digest& key, rank_number rank) {
  bytes page(g.page_bytes());
  page_pattern(key, rank).fill(page, 0);
  return page;
}

void move(device_memory& memory, std::uint32_t block, bytes& page, move_direction direction) {
  const auto mover = make_host_page_mover(memory.view());
  REQUIRE(mover.has_value());
  block_move one{block, page.data(), page.size()};
  const auto ok = direction == move_direction::gather ? (*mover)->gather({&one, 1}) : (*mover)->scatter({&one, 1});
  REQUIRE(ok.has_value());
}

const auto all_layouts = {kv_layout::split, kv_layout::blocks_first, kv_layout::head_major, kv_layout::packed,
                          kv_layout::mla};

} // namespace

TEST_CASE("replay device memory: the model holds the bytes that the mover gathers, in every layout", "[replay]") {
  for (const auto layout : all_layouts) {
    INFO(to_string(layout));
    auto memory = make(layout);
    const auto& g = memory.view().geometry;
    memory.fill(7, {3, 4}, 1);
    bytes page(g.page_bytes());
    move(memory, 7, page, move_direction::gather);
    CHECK(page == page_of(g, {3, 4}, 1));
    CHECK(!memory.verify(7, {3, 4}, 1).has_value());
    for (std::uint32_t block = 0; block < 12; ++block)
      CHECK(memory.is_poisoned(block) == (block != 7));
  }
}

TEST_CASE("replay device memory: a load into the wrong block, of the wrong page, or of nothing does not pass",
          "[replay]") {
  for (const auto layout : all_layouts) {
    INFO(to_string(layout));
    auto memory = make(layout);
    const auto& g = memory.view().geometry;
    CHECK(memory.verify(5, {3, 4}, 1).has_value());
    auto page = page_of(g, {3, 4}, 1);
    move(memory, 5, page, move_direction::scatter);
    CHECK(!memory.verify(5, {3, 4}, 1).has_value());
    CHECK(memory.verify(6, {3, 4}, 1).has_value());
    CHECK(memory.verify(5, {3, 4}, 0).has_value());
    CHECK(memory.verify(5, {4, 3}, 1).has_value());
    CHECK(!memory.is_poisoned(5));
    memory.poison(5);
    CHECK(memory.is_poisoned(5));
    CHECK(memory.verify(5, {3, 4}, 1).has_value());
  }
}

TEST_CASE("replay device memory: every single flipped byte of a block is found and named", "[replay]") {
  for (const auto layout : all_layouts) {
    INFO(to_string(layout));
    auto memory = make(layout);
    const auto g = memory.view().geometry;
    const auto right = page_of(g, {9, 9}, 2);
    for (std::size_t at = 0; at < right.size(); ++at) {
      auto page = right;
      page[at] ^= std::byte{0x10};
      move(memory, 3, page, move_direction::scatter);
      const auto wrong = memory.verify(3, {9, 9}, 2);
      REQUIRE(wrong.has_value());
      REQUIRE(wrong->page_offset == at);
      REQUIRE(wrong->expected == right[at]);
      REQUIRE(wrong->found == page[at]);
      const auto content = std::uint64_t{g.head_size} * g.element_bytes;
      const auto index =
          ((std::uint64_t{wrong->layer} * g.parts + wrong->part) * g.heads + wrong->head) * g.block_tokens +
          wrong->token;
      REQUIRE(index * content + wrong->content_offset == at);
    }
  }
  CHECK(to_string(wrong_byte{3, 1, 7, 0, 12, 4108, std::byte{0x80}, std::byte{0x3f}}) ==
        "layer 3, V, token 7, head 0, byte 12 (page offset 4108): 0x3f, must be 0x80");
}

TEST_CASE("replay device memory: layers of several shapes hold what the mover moves, and every flipped byte is named",
          "[replay]") {
  kv_geometry mixed{2, 2, 2, 8, 2, 4};
  mixed.further = {{2, {1, 1, 33, 1}}, {1, {2, 3, 4, 4}}};
  auto mixed_mla = small_mla;
  mixed_mla.further = {{2, {1, 1, 132, 1}}};
  for (const auto layout : all_layouts) {
    INFO(to_string(layout));
    const auto& g = layout == kv_layout::mla ? mixed_mla : mixed;
    auto memory = device_memory::create(g, 6, {layout, 1}).value();
    memory.fill(2, {3, 4}, 1);
    bytes gathered(g.page_bytes());
    move(memory, 2, gathered, move_direction::gather);
    CHECK(gathered == page_of(g, {3, 4}, 1));
    CHECK(!memory.verify(2, {3, 4}, 1).has_value());
    for (std::uint32_t block = 0; block < 6; ++block)
      CHECK(memory.is_poisoned(block) == (block != 2));
    const auto shapes = g.shapes();
    const auto right = page_of(g, {9, 9}, 2);
    for (std::size_t at = 0; at < right.size(); ++at) {
      auto page = right;
      page[at] ^= std::byte{0x10};
      move(memory, 3, page, move_direction::scatter);
      const auto wrong = memory.verify(3, {9, 9}, 2);
      REQUIRE(wrong.has_value());
      REQUIRE(wrong->page_offset == at);
      REQUIRE(wrong->found == page[at]);
      std::uint64_t offset = 0;
      for (std::uint32_t layer = 0; layer < wrong->layer; ++layer)
        offset += shapes[layer].token_bytes() * g.block_tokens;
      const auto& shape = shapes[wrong->layer];
      const auto index = (wrong->part * shape.heads + wrong->head) * g.block_tokens + wrong->token;
      REQUIRE(wrong->token < g.block_tokens);
      REQUIRE(wrong->head < shape.heads);
      REQUIRE(wrong->part < shape.parts);
      REQUIRE(offset + index * shape.content_bytes() + wrong->content_offset == at);
    }
  }
  CHECK(device_memory::create(mixed, 4, {kv_layout::mla, 1}).error().code == errc::invalid_argument);
}

TEST_CASE("replay device memory: blocks are handed out once each, scattered, and equal for equal seeds", "[replay]") {
  auto memory = make(kv_layout::split, 200);
  CHECK(memory.free_blocks() == 200);
  const auto first = memory.take(50).value();
  const auto second = memory.take(150).value();
  CHECK(memory.free_blocks() == 0);
  CHECK(memory.take(1).error().code == errc::full);
  CHECK(memory.take(0).value().empty());
  std::set<std::uint32_t> all(first.begin(), first.end());
  all.insert(second.begin(), second.end());
  CHECK(all.size() == 200);
  CHECK(*all.rbegin() == 199);
  std::size_t neighbours = 0;
  for (std::size_t i = 1; i < second.size(); ++i)
    neighbours += second[i] == second[i - 1] + 1 || second[i] + 1 == second[i - 1] ? 1 : 0;
  CHECK(neighbours < 20);
  CHECK(make(kv_layout::split, 200).take(50).value() == first);
  CHECK(device_memory::create(small, 200, {kv_layout::split, 2})->take(50).value() != first);
}

TEST_CASE("replay device memory: an invalid model is refused", "[replay]") {
  CHECK(device_memory::create({0, 2, 2, 8, 2, 4}, 4, {}).error().code == errc::invalid_argument);
  CHECK(device_memory::create(small, 0, {}).error().code == errc::invalid_argument);
  CHECK(device_memory::create(small, 4, {kv_layout::mla, 1}).error().code == errc::invalid_argument);
  const auto huge = device_memory::create({1, 2, 1024, 1024, 4, 1024}, 1U << 20U, {});
  REQUIRE(!huge.has_value());
  CHECK(huge.error().code == errc::limit_exceeded);
}

TEST_CASE("replay device memory: a moved model stays valid", "[replay]") {
  auto memory = make(kv_layout::head_major);
  memory.fill(1, {1, 1}, 1);
  auto other = std::move(memory);
  CHECK(!other.verify(1, {1, 1}, 1).has_value());
  bytes page(small.page_bytes());
  move(other, 1, page, move_direction::gather);
  CHECK(page == page_of(small, {1, 1}, 1));
}

TEST_CASE("replay device memory: there is a geometry for every page size that is a multiple of 4 KiB, exactly",
          "[replay]") {
  const auto check = [](std::uint64_t bytes) {
    INFO(bytes);
    const auto g = geometry_for_page_bytes(bytes);
    REQUIRE(g.has_value());
    CHECK(g->page_bytes() == bytes);
    CHECK(check_geometry(*g).has_value());
    CHECK(g->parts == 2);
    CHECK(g->heads <= 8);
    return *g;
  };
  CHECK(check(std::uint64_t{64} << 10U) == kv_geometry{4, 2, 2, 128, 2, 16});
  CHECK(check(std::uint64_t{2} << 20U) == kv_geometry{32, 2, 8, 128, 2, 16});
  for (std::uint64_t k = 1; k <= 600; ++k)
    check(k * 4096);
  // They are primes, which no model has as its number of layers: the largest possible ones.
  for (const std::uint64_t k : {1021U, 1031U, 4093U, 16381U})
    check(k * 4096);
  for (unsigned shift = 12; shift <= 26; ++shift)
    CHECK(check(std::uint64_t{1} << shift).layers <= 128);
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i)
    check((1 + random() % 16384) * 4096);
  for (const std::uint64_t bad : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4095}, std::uint64_t{4097},
                                  max_page_bytes + 4096, ~std::uint64_t{0}, ~std::uint64_t{4095}}) {
    const auto refused = geometry_for_page_bytes(bad);
    REQUIRE(!refused.has_value());
    CHECK(refused.error().code == errc::invalid_argument);
    CHECK(refused.error().text.find("multiple of 4 KiB") != std::string::npos);
  }
}

} // namespace replay_device_memory_test
