#include "base/layouts.hpp"
#include "gpu/host_page_mover.hpp"
#include "gpu/kv_tensors.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace gpu_kv_tensors_test {

namespace {

using namespace troupe;

struct sizes {
  std::uint32_t layers = 3;
  std::uint32_t blocks = 5;
  std::uint32_t heads = 2;
  std::uint32_t tokens = 4;
  std::uint32_t content = 6;
};
constexpr std::uint32_t element_bytes = 2;
using element = std::uint16_t;

/// All layers in one piece of memory, whose axes follow each other as `order` says: L, B, H and N; C is innermost.
/// Every element contains its own position.
class storage {
public:
  storage(std::string_view order, const sizes& s) : s_(s) {
    std::uint64_t stride = s.content * element_bytes;
    for (auto i = order.size(); i-- > 0;) {
      strides_[order[i]] = stride;
      stride *= count(order[i]);
    }
    memory_.resize(stride / element_bytes);
    for (std::uint32_t l = 0; l < s.layers; ++l)
      for (std::uint32_t b = 0; b < s.blocks; ++b)
        for (std::uint32_t h = 0; h < s.heads; ++h)
          for (std::uint32_t n = 0; n < s.tokens; ++n)
            for (std::uint32_t c = 0; c < s.content; ++c)
              at(l, b, h, n, c) = value(l, b, h, n, c);
  }

  static element value(std::uint32_t l, std::uint32_t b, std::uint32_t h, std::uint32_t n, std::uint32_t c) {
    return static_cast<element>((((l * 5 + b) * 2 + h) * 4 + n) * 6 + c + 1);
  }

  element& at(std::uint32_t l, std::uint32_t b, std::uint32_t h, std::uint32_t n, std::uint32_t c) {
    const auto offset = l * strides_['L'] + b * strides_['B'] + h * strides_['H'] + n * strides_['N'];
    return memory_.at(offset / element_bytes + c);
  }

  std::vector<kv_tensor> tensors() {
    std::vector<kv_tensor> out;
    for (std::uint32_t l = 0; l < s_.layers; ++l) {
      auto& x = out.emplace_back();
      x.base = reinterpret_cast<std::byte*>(memory_.data()) + l * strides_['L'];
      x.bytes = memory_.size() * element_bytes - l * strides_['L'];
      x.blocks = s_.blocks;
      x.heads = s_.heads;
      x.tokens = s_.tokens;
      x.content = s_.content;
      x.element_bytes = element_bytes;
      x.block_stride = strides_['B'];
      x.head_stride = strides_['H'];
      x.token_stride = strides_['N'];
      x.content_stride = element_bytes;
    }
    return out;
  }

  void forget(std::uint32_t block) {
    for (std::uint32_t l = 0; l < s_.layers; ++l)
      for (std::uint32_t h = 0; h < s_.heads; ++h)
        for (std::uint32_t n = 0; n < s_.tokens; ++n)
          for (std::uint32_t c = 0; c < s_.content; ++c)
            at(l, block, h, n, c) = 0;
  }

  const std::vector<element>& memory() const { return memory_; }

private:
  std::uint64_t count(char axis) const {
    return axis == 'L' ? s_.layers : axis == 'B' ? s_.blocks : axis == 'H' ? s_.heads : s_.tokens;
  }

  sizes s_;
  std::array<std::uint64_t, 128> strides_{};
  std::vector<element> memory_;
};

/// The page of these blocks in the order of the format.
std::vector<element> page_of(const std::vector<std::uint32_t>& blocks, std::uint32_t parts, const sizes& s = {}) {
  std::vector<element> out;
  for (std::uint32_t l = 0; l < s.layers; ++l)
    for (std::uint32_t p = 0; p < parts; ++p)
      for (std::uint32_t h = 0; h < s.heads; ++h)
        for (const auto b : blocks)
          for (std::uint32_t n = 0; n < s.tokens; ++n)
            for (std::uint32_t c = p * s.content / parts; c < (p + 1) * s.content / parts; ++c)
              out.push_back(storage::value(l, b, h, n, c));
  return out;
}

constexpr std::array<std::string_view, 6> orders{"LBHN", "LBNH", "LHBN", "BLHN", "BLNH", "BHLN"};

block_move move_of(std::vector<element>& page, const std::vector<std::uint32_t>& blocks) {
  block_move out;
  out.block = blocks.front();
  out.further_blocks = std::span(blocks).subspan(1);
  out.page = reinterpret_cast<std::byte*>(page.data());
  out.page_bytes = page.size() * element_bytes;
  return out;
}

} // namespace

TEST_CASE("gpu kv tensors: in each of the six orders a block is the same page and is restored to its place", "[gpu]") {
  const auto order = GENERATE(from_range(orders));
  const auto content = GENERATE(kv_content::joined, kv_content::parted);
  const std::vector<std::uint32_t> blocks = GENERATE(std::vector<std::uint32_t>{3}, std::vector<std::uint32_t>{4, 1});
  CAPTURE(order, to_string(content), blocks);
  storage cache(order, {});
  const auto before = cache.memory();
  const auto view = make_kv_cache_view(cache.tensors(), content, static_cast<std::uint32_t>(blocks.size()));
  REQUIRE(view);
  CHECK_FALSE(view->opaque_blocks);
  const auto mover = make_host_page_mover(*view).value();
  std::vector<element> page(view->geometry.page_bytes() / element_bytes);
  auto move = move_of(page, blocks);
  REQUIRE(mover->gather({&move, 1}));
  CHECK(page == page_of(blocks, content == kv_content::parted ? 2 : 1));
  for (const auto b : blocks)
    cache.forget(b);
  CHECK(cache.memory() != before);
  REQUIRE(mover->scatter({&move, 1}));
  CHECK(cache.memory() == before);
}

TEST_CASE("gpu kv tensors: a geometry is derived from the tensors", "[gpu]") {
  storage cache("LBHN", {});
  CHECK(make_kv_cache_view(cache.tensors(), kv_content::joined)->geometry == kv_geometry{3, 1, 2, 6, 2, 4});
  CHECK(make_kv_cache_view(cache.tensors(), kv_content::parted)->geometry == kv_geometry{3, 2, 2, 3, 2, 4});
  CHECK(make_kv_cache_view(cache.tensors(), kv_content::opaque)->geometry == kv_geometry{3, 1, 2, 6, 2, 4});
  CHECK(make_kv_cache_view(cache.tensors(), kv_content::joined, 3)->geometry.block_tokens == 12);
  CHECK(page_layout(kv_content::joined) == page_layout(kv_content::parted));
  CHECK(page_layout(kv_content::joined) == namespace_spec{}.layout);
  CHECK(page_layout(kv_content::opaque) != page_layout(kv_content::joined));

  // The cache of an indexer between others of one shape.
  auto mixed = cache.tensors();
  mixed[1].heads = 1;
  mixed[1].head_stride = 0;
  mixed[1].content = 4;
  const auto view = make_kv_cache_view(mixed, kv_content::joined).value();
  CHECK(view.geometry.layers == 1);
  REQUIRE(view.geometry.further.size() == 2);
  CHECK(view.geometry.further[0] == kv_layer_group{1, {1, 1, 4, 2}});
  CHECK(view.geometry.further[1] == kv_layer_group{1, {1, 2, 6, 2}});
}

TEST_CASE("gpu kv tensors: opaque blocks are moved unchanged", "[gpu]") {
  for (const auto order : {"LBHN", "LBNH"}) {
    storage cache(order, {});
    const auto before = cache.memory();
    const auto view = make_kv_cache_view(cache.tensors(), kv_content::opaque).value();
    CHECK(view.opaque_blocks);
    const auto mover = make_host_page_mover(view).value();
    std::vector<element> page(view.geometry.page_bytes() / element_bytes);
    const std::vector<std::uint32_t> block{2};
    auto move = move_of(page, block);
    REQUIRE(mover->gather({&move, 1}));
    const std::size_t share = page.size() / 3;
    for (std::size_t l = 0; l < 3; ++l)
      CHECK(std::equal(page.begin() + static_cast<std::ptrdiff_t>(l * share),
                       page.begin() + static_cast<std::ptrdiff_t>((l + 1) * share),
                       before.begin() + static_cast<std::ptrdiff_t>((l * 5 + 2) * share)));
    cache.forget(2);
    REQUIRE(mover->scatter({&move, 1}));
    CHECK(cache.memory() == before);
  }
  // Pieces of other blocks, or of other layers, lie between the heads of a block.
  for (const auto order : {"LHBN", "BHLN"}) {
    storage cache(order, {});
    const auto refused = make_kv_cache_view(cache.tensors(), kv_content::opaque);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::invalid_argument);
    CHECK(refused.error().text.find("one piece") != std::string::npos);
  }
  for (const auto order : {"BLHN", "BLNH"}) {
    storage cache(order, {});
    CHECK(make_kv_cache_view(cache.tensors(), kv_content::opaque).has_value());
  }
}

TEST_CASE("gpu kv tensors: tensors that are not a KV cache are refused with a reason", "[gpu]") {
  const auto refusal = [](auto change, kv_content content = kv_content::joined, std::uint32_t blocks_per_page = 1) {
    storage cache("LBHN", {});
    auto tensors = cache.tensors();
    change(tensors);
    const auto view = make_kv_cache_view(tensors, content, blocks_per_page);
    if (view)
      return errc::ok;
    CHECK_FALSE(view.error().text.empty());
    return view.error().code;
  };
  CHECK(refusal([](auto&) {}) == errc::ok);
  CHECK(refusal([](auto& x) { x.clear(); }) == errc::invalid_argument);
  CHECK(refusal([](auto& x) { x[1].base = nullptr; }) == errc::invalid_argument);
  CHECK(refusal([](auto& x) { x[1].blocks = 4; }) == errc::invalid_argument);
  CHECK(refusal([](auto& x) { x[2].tokens = 2; }) == errc::invalid_argument);
  CHECK(refusal([](auto& x) { x[0].tokens = 0; }) == errc::invalid_argument);
  CHECK(refusal([](auto& x) { x[0].content_stride = 4; }) == errc::invalid_argument);
  CHECK(refusal([](auto& x) { x[2].bytes = 10; }) == errc::out_of_range);
  CHECK(refusal([](auto& x) { x[2].block_stride = ~std::uint64_t{0}; }) == errc::out_of_range);
  CHECK(refusal([](auto& x) { x[2].token_stride = 2; }) == errc::invalid_argument);
  CHECK(refusal([](auto&) {}, kv_content::joined, 0) == errc::invalid_argument);
  CHECK(refusal([](auto&) {}, kv_content::joined, ~0U) == errc::invalid_argument);
  CHECK(refusal([](auto&) {}, kv_content::opaque, 2) == errc::invalid_argument);
  const auto odd = [](auto& all) {
    for (auto& x : all)
      x.content = 5;
  };
  CHECK(refusal(odd, kv_content::parted) == errc::invalid_argument);
  // The rest of the row is a gap, which only whole blocks mind.
  CHECK(refusal(odd, kv_content::joined) == errc::ok);
  CHECK(refusal(odd, kv_content::opaque) == errc::invalid_argument);
}

} // namespace gpu_kv_tensors_test
