#include "gpu/host_page_mover.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace gpu_page_shapes_test {

/// The mover for host memory with layers of several shapes, pages of several blocks, missing blocks, and checksums. It
/// is compared with a model that finds each byte of a page by its indexes.

namespace {

using namespace troupe;
using bytes = std::vector<std::byte>;

constexpr std::byte poison{0xa5};

enum axis : std::size_t { block_axis, part_axis, token_axis, head_axis };
using axes = std::array<axis, 4>;

struct named_layout {
  const char* name;
  axes order;
  /// Behind each content and each block.
  std::uint64_t padding;
};

const std::vector<named_layout> layouts{
    {"split", {part_axis, block_axis, token_axis, head_axis}, 0},
    {"blocks-first", {block_axis, part_axis, token_axis, head_axis}, 0},
    {"head-major", {block_axis, part_axis, head_axis, token_axis}, 0},
    {"packed", {block_axis, head_axis, token_axis, part_axis}, 0},
    {"tokens outside", {token_axis, block_axis, part_axis, head_axis}, 0},
    {"head-major, padded", {block_axis, part_axis, head_axis, token_axis}, 24},
};

struct model_cache {
  model_cache(const kv_geometry& geometry, std::uint32_t blocks, std::uint32_t blocks_per_page, const named_layout& how)
      : view{geometry, blocks, {}, blocks_per_page}, shapes(geometry.shapes()) {
    for (const auto& shape : shapes) {
      const std::array<std::uint64_t, 4> counts{blocks, shape.parts, tokens(), shape.heads};
      auto& stride = strides.emplace_back();
      auto size = shape.content_bytes();
      for (auto i = how.order.size(); i-- > 0;) {
        if (i == how.order.size() - 1 || how.order[i] == block_axis)
          size += how.padding;
        stride[how.order[i]] = size;
        size *= counts[how.order[i]];
      }
      auto& tensor = tensors.emplace_back(size + 2 * guard, poison);
      view.layers.push_back(
          {tensor.data() + guard, size, stride[block_axis], stride[part_axis], stride[token_axis], stride[head_axis]});
    }
  }

  model_cache(const model_cache&) = delete;
  model_cache& operator=(const model_cache&) = delete;

  std::uint32_t tokens() const { return view.geometry.block_tokens / view.blocks_per_page; }

  void fill(std::mt19937_64& random) {
    for (auto& tensor : tensors)
      std::generate(tensor.begin(), tensor.end(), [&] { return static_cast<std::byte>(random()); });
  }

  /// Calls visit(byte of the cache or null, offset in the page) for every byte of a page.
  template <class Visit>
  void for_each_byte(std::vector<bytes>& from, const std::vector<std::uint32_t>& blocks, Visit visit) const {
    std::uint64_t offset = 0;
    for (std::size_t layer = 0; layer < shapes.size(); ++layer)
      for (std::uint32_t part = 0; part < shapes[layer].parts; ++part)
        for (std::uint32_t head = 0; head < shapes[layer].heads; ++head)
          for (std::uint32_t token = 0; token < view.geometry.block_tokens; ++token) {
            const auto block = blocks[token / tokens()];
            const auto& stride = strides[layer];
            const auto at = guard + block * stride[block_axis] + part * stride[part_axis] +
                            token % tokens() * stride[token_axis] + head * stride[head_axis];
            for (std::uint64_t i = 0; i < shapes[layer].content_bytes(); ++i, ++offset)
              visit(block == null_block ? nullptr : &from[layer].at(at + i), offset);
          }
    REQUIRE(offset == view.geometry.page_bytes());
  }

  /// The expected result of a gather.
  bytes page_of(const std::vector<std::uint32_t>& blocks) {
    bytes out(view.geometry.page_bytes());
    for_each_byte(tensors, blocks,
                  [&](const std::byte* b, std::uint64_t offset) { out[offset] = b ? *b : std::byte{}; });
    return out;
  }

  static constexpr std::uint64_t guard = 64;

  kv_cache_view view;
  std::vector<kv_layer_shape> shapes;
  std::vector<std::array<std::uint64_t, 4>> strides;
  std::vector<bytes> tensors;
};

struct named_model {
  const char* name;
  kv_geometry geometry;
  std::uint32_t blocks_per_page;
};

kv_geometry with_further(kv_geometry g, std::vector<kv_layer_group> further) {
  g.further = std::move(further);
  return g;
}

const std::vector<named_model>& models() {
  static const std::vector<named_model> all{
      {"one shape", {2, 2, 2, 16, 2, 8}, 1},
      {"MLA with an indexer", with_further({2, 1, 1, 72, 2, 8}, {{2, {1, 1, 132, 1}}}), 1},
      {"with a draft model", with_further({2, 2, 4, 16, 2, 4}, {{1, {2, 2, 8, 2}}, {1, {1, 1, 3, 4}}}), 1},
      {"parts, then none, then parts", with_further({1, 2, 1, 8, 1, 4}, {{1, {1, 3, 5, 1}}, {2, {2, 1, 8, 1}}}), 1},
      {"pages of 2 blocks", {2, 2, 2, 16, 2, 8}, 2},
      {"pages of 4 blocks", {1, 2, 3, 7, 2, 12}, 4},
      {"pages of blocks of one token", {1, 2, 2, 8, 2, 4}, 4},
      {"several shapes, pages of 4 blocks",
       with_further({2, 2, 4, 16, 2, 16}, {{1, {1, 1, 132, 1}}, {1, {1, 2, 8, 4}}}), 4},
      {"several shapes of odd bytes, pages of 3 blocks",
       with_further({1, 1, 3, 5, 1, 9}, {{2, {2, 1, 7, 1}}, {1, {1, 1, 1, 1}}}), 3},
  };
  return all;
}

std::unique_ptr<page_mover> mover_of(const kv_cache_view& view) {
  auto mover = make_host_page_mover(view);
  REQUIRE(mover.has_value());
  return std::move(*mover);
}

/// The blocks of each page, without duplicates; some do not exist.
std::vector<std::vector<std::uint32_t>> random_pages(const model_cache& cache, std::size_t count,
                                                     std::mt19937_64& random) {
  std::vector<std::uint32_t> all(cache.view.blocks);
  for (std::uint32_t i = 0; i < all.size(); ++i)
    all[i] = i;
  std::shuffle(all.begin(), all.end(), random);
  std::vector<std::vector<std::uint32_t>> out(count);
  for (auto& page : out)
    for (std::uint32_t i = 0; i < cache.view.blocks_per_page; ++i) {
      page.push_back(random() % 4 == 0 ? null_block : all.back());
      all.pop_back();
    }
  return out;
}

struct page_list {
  page_list(const model_cache& cache, std::size_t count, std::mt19937_64& random)
      : blocks(random_pages(cache, count, random)),
        memory(count, bytes(cache.view.geometry.page_bytes() + 2 * guard, poison)) {
    for (std::size_t i = 0; i < count; ++i) {
      block_move move{blocks[i].front(), memory[i].data() + guard, cache.view.geometry.page_bytes()};
      move.further_blocks = std::span(blocks[i]).subspan(1);
      moves.push_back(move);
    }
  }

  std::span<std::byte> page(std::size_t i) { return {moves[i].page, moves[i].page_bytes}; }

  static constexpr std::size_t guard = 32;

  std::vector<std::vector<std::uint32_t>> blocks;
  std::vector<bytes> memory;
  std::vector<block_move> moves;
};

template <class Visit>
void for_each_case(Visit visit) {
  for (const auto& layout : layouts)
    for (const auto& model : models()) {
      INFO(model.name << ", " << layout.name);
      model_cache cache(model.geometry, 6 * model.blocks_per_page, model.blocks_per_page, layout);
      visit(cache);
    }
}

} // namespace

TEST_CASE("gpu page shapes: a page has all layers in their shapes, all tokens, and zeroes for missing blocks",
          "[gpu]") {
  const auto seed = GENERATE(range(1U, 4U));
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for_each_case([&](model_cache& cache) {
    cache.fill(random);
    const auto before = cache.tensors;
    page_list list(cache, 6, random);
    for (auto& move : list.moves)
      move.verdict = errc::internal;
    REQUIRE(mover_of(cache.view)->gather(list.moves).has_value());
    for (std::size_t i = 0; i < list.moves.size(); ++i) {
      bytes expected(page_list::guard, poison);
      const auto page = cache.page_of(list.blocks[i]);
      expected.insert(expected.end(), page.begin(), page.end());
      expected.resize(expected.size() + page_list::guard, poison);
      CHECK(list.memory[i] == expected);
      CHECK(list.moves[i].checksum == io::checksum_of(page));
      CHECK(list.moves[i].verdict == errc::ok);
    }
    CHECK(cache.tensors == before);
  });
}

TEST_CASE("gpu page shapes: a scatter writes only the blocks that exist", "[gpu]") {
  const auto seed = GENERATE(range(1U, 4U));
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for_each_case([&](model_cache& cache) {
    page_list list(cache, 6, random);
    auto expected = cache.tensors;
    for (std::size_t i = 0; i < list.moves.size(); ++i) {
      auto& move = list.moves[i];
      const auto page = list.page(i);
      std::generate(page.begin(), page.end(), [&] { return static_cast<std::byte>(random()); });
      if (i % 2 == 0)
        move.checksum = io::checksum_of(page);
      cache.for_each_byte(expected, list.blocks[i], [&](std::byte* b, std::uint64_t offset) {
        if (b != nullptr)
          *b = page[offset];
      });
    }
    const auto pages = list.memory;
    REQUIRE(mover_of(cache.view)->scatter(list.moves).has_value());
    CHECK(cache.tensors == expected);
    CHECK(list.memory == pages);
    for (const auto& move : list.moves)
      CHECK(move.verdict == errc::ok);
  });
}

TEST_CASE("gpu page shapes: a page with a wrong checksum is not written, and the others are", "[gpu]") {
  std::mt19937_64 random(2);
  for_each_case([&](model_cache& cache) {
    page_list list(cache, 6, random);
    auto expected = cache.tensors;
    for (std::size_t i = 0; i < list.moves.size(); ++i) {
      auto& move = list.moves[i];
      const auto page = list.page(i);
      std::generate(page.begin(), page.end(), [&] { return static_cast<std::byte>(random()); });
      move.checksum = io::checksum_of(page);
      move.verdict = errc::internal;
      if (i == 1)
        move.checksum->low ^= 1;
      if (i == 2)
        move.checksum->high ^= std::uint64_t{1} << 63U;
      if (i >= 3 && i < 5)
        page[random() % page.size()] ^= std::byte{0x10};
      if (i == 0 || i == 5)
        cache.for_each_byte(expected, list.blocks[i], [&](std::byte* b, std::uint64_t offset) {
          if (b != nullptr)
            *b = page[offset];
        });
    }
    REQUIRE(mover_of(cache.view)->scatter(list.moves).has_value());
    CHECK(cache.tensors == expected);
    for (std::size_t i = 0; i < list.moves.size(); ++i)
      CHECK(list.moves[i].verdict == (i == 0 || i == 5 ? errc::ok : errc::corrupt));
  });
}

TEST_CASE("gpu page shapes: a page of several blocks is identical to one of a single block", "[gpu]") {
  std::mt19937_64 random(3);
  const auto g = with_further({2, 2, 4, 16, 2, 16}, {{1, {1, 1, 132, 1}}});
  for (const auto& from_layout : layouts)
    for (const auto& to_layout : layouts)
      for (const std::uint32_t from_blocks : {1U, 2U, 4U, 16U}) {
        INFO(from_layout.name << " with " << from_blocks << " blocks to " << to_layout.name << " with 8");
        model_cache from(g, 3 * from_blocks, from_blocks, from_layout);
        model_cache to(g, 32, 8, to_layout);
        from.fill(random);
        page_list out(from, 3, random);
        page_list in(to, 3, random);
        REQUIRE(mover_of(from.view)->gather(out.moves).has_value());
        for (std::size_t i = 0; i < 3; ++i) {
          in.blocks[i] = {static_cast<std::uint32_t>(i), 10, 20, 31, 8, 9, 5, 6};
          in.moves[i].block = in.blocks[i][0];
          in.moves[i].further_blocks = std::span(in.blocks[i]).subspan(1);
          std::ranges::copy(out.page(i), in.page(i).begin());
          in.moves[i].checksum = out.moves[i].checksum;
          REQUIRE(mover_of(to.view)->scatter({&in.moves[i], 1}).has_value());
          REQUIRE(in.moves[i].verdict == errc::ok);
          CHECK(to.page_of(in.blocks[i]) == from.page_of(out.blocks[i]));
        }
      }
}

TEST_CASE("gpu page shapes: a page needs the right number of blocks, each valid or absent", "[gpu]") {
  model_cache cache({2, 2, 2, 8, 2, 8}, 8, 4, layouts[0]);
  const auto mover = mover_of(cache.view);
  const auto cache_before = cache.tensors;
  bytes page(cache.view.geometry.page_bytes(), std::byte{1});
  const auto page_before = page;
  std::vector<std::uint32_t> further{1, 2, 3};
  block_move move{0, page.data(), page.size(), further};
  auto expected = errc::invalid_argument;
  SECTION("too few") {
    move.further_blocks = std::span(further).first(2);
  }
  SECTION("none but the first") {
    move.further_blocks = {};
  }
  SECTION("too many") {
    further.push_back(4);
    move.further_blocks = further;
  }
  SECTION("one that is out of range") {
    further[GENERATE(0U, 1U, 2U)] = GENERATE(8U, 0x80000000U, 0xfffffffeU);
    expected = errc::out_of_range;
  }
  for (const bool scatters : {true, false}) {
    const auto refused = scatters ? mover->scatter({&move, 1}) : mover->gather({&move, 1});
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == expected);
    CHECK(refused.error().text.find("nothing was moved") != std::string::npos);
  }
  CHECK(cache.tensors == cache_before);
  CHECK(page == page_before);
}

TEST_CASE("gpu page shapes: a page without any block is zeroes, and is written nowhere", "[gpu]") {
  for_each_case([](model_cache& cache) {
    const auto before = cache.tensors;
    const std::vector<std::uint32_t> none(cache.view.blocks_per_page, null_block);
    bytes page(cache.view.geometry.page_bytes(), poison);
    block_move move{null_block, page.data(), page.size(), std::span(none).subspan(1)};
    REQUIRE(mover_of(cache.view)->gather({&move, 1}).has_value());
    CHECK(page == bytes(page.size()));
    CHECK(move.checksum == io::checksum_of(page));
    page.assign(page.size(), poison);
    move.checksum.reset();
    REQUIRE(mover_of(cache.view)->scatter({&move, 1}).has_value());
    CHECK(cache.tensors == before);
  });
}

TEST_CASE("gpu page shapes: a mover for host memory ignores device events", "[gpu]") {
  model_cache cache({1, 2, 2, 8, 2, 8}, 4, 1, layouts[0]);
  const auto mover = mover_of(cache.view);
  int some = 0;
  CHECK(mover->gather({}, {&some}).error().code == errc::unsupported);
  CHECK(mover->scatter({}, {&some}).error().code == errc::unsupported);
  bytes memory(4096);
  CHECK(mover->prepare(memory).has_value());
  mover->forget(memory);
  CHECK_FALSE(mover->failure().has_value());
}

} // namespace gpu_page_shapes_test
