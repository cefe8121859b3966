#include "gpu/kv_layout.hpp"
#include "tests/catch.hpp"

#include <array>
#include <limits>
#include <string>
#include <vector>

namespace gpu_kv_layout_test {

namespace {

using namespace troupe;

constexpr kv_geometry small{2, 2, 3, 4, 2, 5};
constexpr std::uint32_t blocks = 7;

/// A valid view over memory that is never touched.
struct fixture {
  fixture() {
    const auto bytes = all_layer_bytes(small, blocks).value().front();
    memory.resize(bytes * small.layers);
    for (std::size_t layer = 0; layer < small.layers; ++layer)
      tensors.emplace_back(memory.data() + layer * bytes, bytes);
    view = make_kv_cache_view(kv_layout::split, small, blocks, tensors).value();
  }

  errc refusal() const {
    const auto ok = validate(view);
    if (ok)
      return errc::ok;
    INFO(ok.error().text);
    CHECK(!ok.error().text.empty());
    return ok.error().code;
  }

  std::vector<std::byte> memory;
  std::vector<std::span<std::byte>> tensors;
  kv_cache_view view;
};

} // namespace

TEST_CASE("gpu kv layout: a geometry beyond the common bounds is refused", "[gpu]") {
  CHECK(all_layer_bytes(small, blocks).has_value());
  for (auto field : {&kv_geometry::layers, &kv_geometry::parts, &kv_geometry::heads, &kv_geometry::head_size,
                     &kv_geometry::element_bytes, &kv_geometry::block_tokens})
    for (const auto value : {0U, std::numeric_limits<std::uint32_t>::max()}) {
      fixture f;
      f.view.geometry.*field = value;
      CHECK(f.refusal() == errc::invalid_argument);
      CHECK(all_layer_bytes(f.view.geometry, blocks).error().code == errc::invalid_argument);
    }
}

TEST_CASE("gpu kv layout: bytes of a layer are computed in 64 bits and overflow is refused", "[gpu]") {
  CHECK(all_layer_bytes(small, blocks).value().front() == 2U * 3 * 4 * 2 * 5 * 7);
  // More than 4 GiB in one layer: 2^32 elements of 2 bytes.
  CHECK(all_layer_bytes({1, 2, 8, 128, 2, 16}, 1U << 17U).value().front() == std::uint64_t{1} << 33U);
  CHECK(all_layer_bytes({1, 2, 1024, 16384, 4, 4096}, std::numeric_limits<std::uint32_t>::max()).error().code ==
        errc::invalid_argument);
}

TEST_CASE("gpu kv layout: a view is accepted only with every address inside its tensor", "[gpu]") {
  fixture f;
  REQUIRE(f.refusal() == errc::ok);
  const auto layer = GENERATE(std::size_t{0}, std::size_t{1});
  auto& t = f.view.layers[layer];

  SECTION("exactly the bytes needed are enough, one fewer is not") {
    t.bytes -= 1;
    CHECK(f.refusal() == errc::out_of_range);
  }
  SECTION("one block more than there is room for") {
    f.view.blocks += 1;
    CHECK(f.refusal() != errc::ok);
  }
  SECTION("a stride that reaches behind the tensor") {
    t.part_stride += 1;
    CHECK(f.refusal() == errc::out_of_range);
  }
  SECTION("strides whose sum wraps around") {
    t.part_stride = std::numeric_limits<std::uint64_t>::max() - 8;
    CHECK(f.refusal() == errc::out_of_range);
    t.bytes = std::numeric_limits<std::uint64_t>::max();
    CHECK(f.refusal() == errc::out_of_range);
  }
  SECTION("a product that wraps around to something small") {
    t.block_stride = (std::uint64_t{1} << 63U);
    f.view.blocks = 3;
    t.bytes = std::numeric_limits<std::uint64_t>::max();
    CHECK(f.refusal() == errc::out_of_range);
  }
  SECTION("no memory") {
    t.base = nullptr;
    CHECK(f.refusal() == errc::invalid_argument);
  }
  SECTION("a layer too few or too many") {
    f.view.layers.pop_back();
    CHECK(f.refusal() == errc::invalid_argument);
    f.view.layers.resize(3, f.view.layers.front());
    CHECK(f.refusal() == errc::invalid_argument);
  }
  SECTION("no blocks") {
    f.view.blocks = 0;
    CHECK(f.refusal() == errc::invalid_argument);
  }
}

TEST_CASE("gpu kv layout: strides that lay elements over each other are refused", "[gpu]") {
  fixture f;
  auto& t = f.view.layers[1];
  SECTION("zero strides") {
    const auto stride = GENERATE(&tensor_view::block_stride, &tensor_view::part_stride, &tensor_view::token_stride,
                                 &tensor_view::head_stride);
    t.*stride = 0;
    CHECK(f.refusal() == errc::invalid_argument);
  }
  SECTION("one byte too short") {
    const auto stride = GENERATE(&tensor_view::block_stride, &tensor_view::part_stride, &tensor_view::token_stride,
                                 &tensor_view::head_stride);
    t.*stride -= 1;
    CHECK(f.refusal() == errc::invalid_argument);
  }
  SECTION("the stride of an axis with one entry does not matter") {
    kv_geometry g = small;
    g.parts = 1;
    f.view.geometry = g;
    for (auto& layer : f.view.layers)
      layer.part_stride = 0;
    CHECK(f.refusal() == errc::ok);
  }
}

TEST_CASE("gpu kv layout: contiguous layouts need exactly their bytes, and MLA has one part and one head", "[gpu]") {
  fixture f;
  for (auto layout : {kv_layout::split, kv_layout::blocks_first, kv_layout::head_major, kv_layout::packed}) {
    INFO(to_string(layout));
    CHECK(make_kv_cache_view(layout, small, blocks, f.tensors).has_value());
    auto short_tensors = f.tensors;
    short_tensors[1] = short_tensors[1].first(short_tensors[1].size() - 1);
    REQUIRE(!make_kv_cache_view(layout, small, blocks, short_tensors).has_value());
    CHECK(make_kv_cache_view(layout, small, blocks, short_tensors).error().code == errc::out_of_range);
  }
  CHECK(make_kv_cache_view(kv_layout::mla, small, blocks, f.tensors).error().code == errc::invalid_argument);
  CHECK(make_kv_cache_view(kv_layout::mla, {2, 1, 1, 4, 2, 5}, blocks, f.tensors).has_value());
  CHECK(make_kv_cache_view(kv_layout::mla, {2, 1, 2, 4, 2, 5}, blocks, f.tensors).error().code ==
        errc::invalid_argument);
}

TEST_CASE("gpu kv layout: each layer's tensor has the bytes of its own shape", "[gpu]") {
  kv_geometry g{2, 2, 3, 4, 2, 6};
  g.further = {{1, {1, 1, 132, 1}}, {1, {2, 1, 8, 4}}};
  const auto sizes = all_layer_bytes(g, 10).value();
  CHECK(sizes == std::vector<std::uint64_t>{60U * 48, 60U * 48, 60U * 132, 60U * 64});
  CHECK(all_layer_bytes(g, 10).value().front() == 60U * 48);
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::span<std::byte>> tensors;
  for (const auto size : sizes)
    tensors.emplace_back(memory.emplace_back(size));
  for (const auto layout : {kv_layout::split, kv_layout::blocks_first, kv_layout::head_major, kv_layout::packed})
    for (const std::uint32_t per_page : {1U, 2U, 3U, 6U}) {
      INFO(to_string(layout) << ", " << per_page << " blocks a page");
      // The same memory has more blocks where these are smaller.
      const auto made = make_kv_cache_view(layout, g, 10 * per_page, tensors, per_page);
      REQUIRE(made.has_value());
      CHECK(made->tokens_per_block() == 6 / per_page);
      CHECK(make_kv_cache_view(layout, g, 10 * per_page + 1, tensors, per_page).error().code == errc::out_of_range);
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        auto shorter = tensors;
        shorter[i] = shorter[i].first(shorter[i].size() - 1);
        CHECK(make_kv_cache_view(layout, g, 10 * per_page, shorter, per_page).error().code == errc::out_of_range);
      }
    }
  // Tensors of another layer's size do not pass in its place.
  std::swap(tensors[1], tensors[3]);
  CHECK(make_kv_cache_view(kv_layout::split, g, 10, tensors).has_value() == false);
  tensors.pop_back();
  CHECK(make_kv_cache_view(kv_layout::split, g, 10, tensors).error().code == errc::invalid_argument);
}

TEST_CASE("gpu kv layout: an MLA cache has one part and one head in all its layers", "[gpu]") {
  kv_geometry g{1, 1, 1, 576, 2, 4};
  std::vector<std::byte> memory(100'000);
  const std::vector<std::span<std::byte>> tensors(2, memory);
  g.further = {{1, {1, 1, 132, 1}}};
  CHECK(make_kv_cache_view(kv_layout::mla, g, 2, tensors).has_value());
  g.further = {{1, {2, 1, 132, 1}}};
  CHECK(make_kv_cache_view(kv_layout::mla, g, 2, tensors).error().code == errc::invalid_argument);
  g.further = {{1, {1, 2, 132, 1}}};
  CHECK(make_kv_cache_view(kv_layout::mla, g, 2, tensors).error().code == errc::invalid_argument);
}

TEST_CASE("gpu kv layout: the blocks of a page share its tokens equally", "[gpu]") {
  fixture f; // pages of 5 tokens
  for (const std::uint32_t per_page : {0U, 2U, 3U, 4U, 6U, 10U}) {
    INFO(per_page);
    CHECK(make_kv_cache_view(kv_layout::split, small, blocks, f.tensors, per_page).error().code ==
          errc::invalid_argument);
    f.view.blocks_per_page = per_page;
    CHECK(f.refusal() == errc::invalid_argument);
  }
  CHECK(make_kv_cache_view(kv_layout::split, small, blocks, f.tensors, 5).has_value());
}

} // namespace gpu_kv_layout_test
