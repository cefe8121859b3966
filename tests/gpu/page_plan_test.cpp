#include "gpu/cuda/fast_divisor.hpp"
#include "gpu/cuda/page_kernels.hpp"
#include "gpu/kv_layout.hpp"
#include "tests/catch.hpp"

#include <cstdint>
#include <random>
#include <vector>

namespace page_plan_test {

/// The plan that the host computes for the kernels; needs no GPU.

namespace {

using namespace troupe;
using namespace troupe::cuda;

/// A view of tensors at addresses that are never touched.
kv_cache_view view_of(kv_layout layout, const kv_geometry& g, std::uint32_t blocks_per_page = 1,
                      std::uint64_t shift = 0) {
  constexpr std::uint32_t blocks = 9;
  auto at = std::uint64_t{1} << 40U;
  std::vector<std::span<std::byte>> tensors;
  const auto sizes = all_layer_bytes(g, blocks).value();
  for (const auto bytes : sizes) {
    tensors.emplace_back(reinterpret_cast<std::byte*>(at + shift), bytes);
    at += (bytes + 4095) / 4096 * 4096 + 4096;
  }
  return make_kv_cache_view(layout, g, blocks, tensors, blocks_per_page).value();
}

/// The place of each word of a page in its tensor, and its block within the page, by the strides of the view.
struct place {
  std::uint32_t layer;
  std::uint32_t block;
  std::uint64_t offset;
  bool operator==(const place&) const = default;
};

std::vector<place> places_of(const kv_cache_view& view) {
  std::vector<place> out;
  const auto shapes = view.geometry.shapes();
  for (std::uint32_t layer = 0; layer < shapes.size(); ++layer)
    for (std::uint32_t p = 0; p < shapes[layer].parts; ++p)
      for (std::uint32_t h = 0; h < shapes[layer].heads; ++h)
        for (std::uint32_t b = 0; b < view.blocks_per_page; ++b)
          for (std::uint32_t t = 0; t < view.tokens_per_block(); ++t)
            for (std::uint64_t c = 0; c < shapes[layer].content_bytes(); c += 16) {
              const auto& x = view.layers[layer];
              out.push_back({layer, b, p * x.part_stride + h * x.head_stride + t * x.token_stride + c});
            }
  return out;
}

/// The same as the kernels read it out of the plan.
std::vector<place> places_of(const page_plan& plan) {
  std::vector<place> out(plan.page_bytes / 16, place{~0U, 0, 0});
  for (const auto& t : plan.tiles) {
    const auto& layer = plan.layers[t.layer];
    REQUIRE(t.words > 0);
    REQUIRE(t.words <= tile_words);
    for (std::uint32_t w = 0; w < t.words; ++w) {
      const auto in_runs = t.run_word + w;
      const auto run = layer.run_words.divide(in_runs);
      auto& here = out.at(t.page_word + w);
      REQUIRE(here.layer == ~0U); // no word belongs to two tiles
      here = {t.layer, t.block,
              t.offset + run * layer.token_stride + std::uint64_t{in_runs - run * layer.run_words.value()} * 16};
    }
  }
  return out;
}

} // namespace

TEST_CASE("page plan: division by a multiplication is exact", "[plan]") {
  std::mt19937 random(1);
  const auto check = [](std::uint32_t divisor, std::uint32_t dividend) {
    if (fast_divisor(divisor).divide(dividend) != dividend / divisor)
      FAIL(dividend << " / " << divisor);
  };
  constexpr std::uint32_t largest = 0x7fff'ffff;
  std::vector<std::uint32_t> divisors{largest, largest - 1, 1U << 30U, (1U << 30U) + 1};
  for (std::uint32_t divisor = 1; divisor < 3000; ++divisor)
    divisors.push_back(divisor);
  for (int i = 0; i < 3000; ++i)
    divisors.push_back(static_cast<std::uint32_t>(1 + random() % largest));
  for (const auto divisor : divisors) {
    for (const auto edge : {0U, 1U, divisor - 1, divisor, largest, largest / divisor * divisor})
      check(divisor, edge);
    check(divisor, largest / divisor * divisor - 1);
    for (int i = 0; i < 200; ++i)
      check(divisor, static_cast<std::uint32_t>(random() & largest));
  }
}

TEST_CASE("page plan: tiles cover each word of a page once, at the address that the strides give", "[plan]") {
  kv_geometry mixed{2, 2, 8, 128, 2, 16};
  mixed.further = {{2, {1, 1, 576, 2}}, {1, {1, 1, 128, 1}}};
  const std::vector<kv_geometry> geometries{{2, 2, 8, 128, 2, 16},
                                            {3, 2, 1, 128, 2, 16},
                                            {2, 1, 1, 576, 2, 64},
                                            {2, 2, 3, 48, 1, 32},
                                            {1, 2, 5, 16, 1, 4},
                                            {2, 2, 2, 1024, 4, 32},
                                            mixed};
  for (const auto layout : {kv_layout::split, kv_layout::blocks_first, kv_layout::head_major, kv_layout::packed})
    for (const auto& g : geometries)
      for (const std::uint32_t blocks_per_page : {1U, 2U, 4U}) {
        INFO(to_string(layout) << ", heads " << g.heads << ", head size " << g.head_size << ", blocks per page "
                               << blocks_per_page);
        const auto view = view_of(layout, g, blocks_per_page);
        const auto plan = make_page_plan(view).value();
        REQUIRE(plan.unit == 16);
        CHECK(plan.general.empty());
        CHECK(places_of(plan) == places_of(view));
      }
}

TEST_CASE("page plan: tiles are those of the encoding where all of them are whole", "[plan]") {
  const auto are_codec_tiles = [](kv_layout layout, const kv_geometry& g, std::uint32_t blocks_per_page = 1,
                                  std::uint64_t shift = 0) {
    return make_page_plan(view_of(layout, g, blocks_per_page, shift)).value().codec_tiles;
  };
  kv_geometry mixed{2, 2, 8, 128, 2, 16};
  mixed.further = {{2, {1, 1, 576, 2}}};
  for (const auto layout : {kv_layout::split, kv_layout::blocks_first, kv_layout::head_major, kv_layout::packed}) {
    CHECK(are_codec_tiles(layout, {2, 2, 8, 128, 2, 16}));
    CHECK(are_codec_tiles(layout, {2, 2, 8, 64, 2, 16}));
    CHECK(are_codec_tiles(layout, {2, 2, 8, 128, 2, 64}, 4));
    CHECK(are_codec_tiles(layout, {2, 1, 1, 576, 2, 64}));
    CHECK(are_codec_tiles(layout, mixed));
  }
  // Heads one behind the other make whole tiles.
  CHECK(are_codec_tiles(kv_layout::head_major, {2, 2, 8, 64, 2, 8}));
  // A head of a block has half a tile, one and a half, or other parts; or its address is no whole word.
  CHECK_FALSE(are_codec_tiles(kv_layout::split, {2, 2, 8, 64, 2, 8}));
  CHECK_FALSE(are_codec_tiles(kv_layout::split, {2, 2, 8, 96, 2, 16}));
  CHECK_FALSE(are_codec_tiles(kv_layout::split, {2, 2, 8, 128, 2, 32}, 8));
  CHECK_FALSE(are_codec_tiles(kv_layout::split, {2, 2, 3, 48, 1, 32}));
  CHECK_FALSE(are_codec_tiles(kv_layout::split, {2, 2, 8, 128, 2, 16}, 1, 8));
}

TEST_CASE("page plan: the unit is the widest that fits every address and pages that no kernel supports are refused",
          "[plan]") {
  const kv_geometry g{2, 2, 4, 64, 2, 16};
  for (const std::uint32_t shift : {1U, 2U, 4U, 8U}) {
    const auto plan = make_page_plan(view_of(kv_layout::split, g, 1, shift)).value();
    CHECK(plan.unit == shift);
    CHECK(plan.tiles.empty());
    CHECK(plan.general.size() == 2);
  }
  CHECK(make_page_plan(view_of(kv_layout::split, {2, 2, 4, 66, 2, 16})).value().unit == 4);
  CHECK(make_page_plan(view_of(kv_layout::split, {2, 2, 4, 33, 1, 16})).value().unit == 1);
  CHECK(make_page_plan(view_of(kv_layout::split, {1, 2, 1, 8, 2, 4096}, 4096)).error().code == errc::unsupported);
  CHECK(make_page_plan(view_of(kv_layout::split, {4, 2, 1024, 1024, 2, 4096})).error().code == errc::unsupported);
}

} // namespace page_plan_test
