#include "gpu/host_page_mover.hpp"
#include "gpu/page_mover.hpp"
#include "tests/catch.hpp"
#include "tests/unit/corrupted_page.hpp"
#include "workload/kv_values/kv_values.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace gpu_page_mover_test {

/// The mover is compared with the plainest possible model: one element at a time, addressed by the index formula of the
/// layout's array shape instead of strides.

namespace {

using namespace troupe;
using bytes = std::vector<std::byte>;

constexpr std::byte poison{0xa5};

/// A layout as a shape with an order of its axes, padding included; its own tensors.
struct model_cache {
  /// Axes block, part, token, head, outermost first.
  enum axis : std::size_t { block_axis, part_axis, token_axis, head_axis };

  model_cache(const kv_geometry& geometry, std::uint32_t blocks, std::array<axis, 4> axes, std::uint64_t padding)
      : g(geometry), order(axes), view{geometry, blocks, {}} {
    const std::array<std::uint64_t, 4> counts{blocks, g.parts, g.block_tokens, g.heads};
    content = std::uint64_t{g.head_size} * g.element_bytes;
    auto size = content;
    for (auto i = order.size(); i-- > 0;) {
      // Padding behind the innermost axis and behind each block.
      if (i == order.size() - 1 || order[i] == block_axis)
        size += padding;
      stride[order[i]] = size;
      size *= counts[order[i]];
    }
    tensors.resize(g.layers, bytes(size + 2 * guard, poison));
    for (auto& tensor : tensors)
      view.layers.push_back(
          {tensor.data() + guard, size, stride[block_axis], stride[part_axis], stride[token_axis], stride[head_axis]});
  }

  std::byte& at(std::uint64_t layer, std::uint64_t block, std::uint64_t part, std::uint64_t token, std::uint64_t head,
                std::uint64_t byte) {
    const std::array<std::uint64_t, 4> index{block, part, token, head};
    std::uint64_t offset = guard + byte;
    for (std::size_t i = 0; i < 4; ++i)
      offset += index[i] * stride[i];
    return tensors[layer].at(offset);
  }

  /// Calls visit(byte of the cache, offset in the page) for every byte of a block.
  template <class Visit>
  void for_each_byte(std::uint32_t block, Visit visit) {
    std::uint64_t offset = 0;
    for (std::uint32_t layer = 0; layer < g.layers; ++layer)
      for (std::uint32_t part = 0; part < g.parts; ++part)
        for (std::uint32_t head = 0; head < g.heads; ++head)
          for (std::uint32_t token = 0; token < g.block_tokens; ++token)
            for (std::uint64_t byte = 0; byte < content; ++byte, ++offset)
              visit(at(layer, block, part, token, head, byte), offset);
  }

  static constexpr std::uint64_t guard = 64;

  kv_geometry g;
  std::array<axis, 4> order;
  kv_cache_view view;
  std::array<std::uint64_t, 4> stride{};
  std::uint64_t content = 0;
  std::vector<bytes> tensors;
};

using axes = std::array<model_cache::axis, 4>;

struct named_layout {
  const char* name;
  axes order;
  std::uint64_t padding;
};

const std::vector<named_layout>& layouts() {
  using m = model_cache;
  static const std::vector<named_layout> all{
      {"split", {m::part_axis, m::block_axis, m::token_axis, m::head_axis}, 0},
      {"blocks-first", {m::block_axis, m::part_axis, m::token_axis, m::head_axis}, 0},
      {"head-major", {m::block_axis, m::part_axis, m::head_axis, m::token_axis}, 0},
      {"packed", {m::block_axis, m::head_axis, m::token_axis, m::part_axis}, 0},
      {"tokens outside", {m::token_axis, m::block_axis, m::part_axis, m::head_axis}, 0},
      {"heads outside", {m::head_axis, m::part_axis, m::token_axis, m::block_axis}, 0},
      {"split, padded", {m::part_axis, m::block_axis, m::token_axis, m::head_axis}, 24},
      {"head-major, padded", {m::block_axis, m::part_axis, m::head_axis, m::token_axis}, 40},
  };
  return all;
}

const std::vector<kv_geometry>& geometries() {
  static const std::vector<kv_geometry> all{
      {3, 2, 4, 16, 2, 16},  // pieces of 32 bytes
      {2, 2, 2, 128, 2, 16}, // of 256
      {2, 2, 2, 64, 1, 32},  // of 64, fp8
      {2, 2, 3, 32, 4, 16},  // of 128, fp32, odd heads
      {1, 2, 5, 7, 2, 3},    // nothing is a power of two
      {4, 1, 1, 72, 2, 64},  // MLA
      {2, 1, 1, 576, 1, 16}, // MLA, fp8
      {1, 1, 1, 1, 1, 1},    {2, 2, 1, 128, 2, 1},
  };
  return all;
}

std::unique_ptr<page_mover> mover_of(const kv_cache_view& view) {
  auto mover = make_host_page_mover(view);
  REQUIRE(mover.has_value());
  return std::move(*mover);
}

bytes random_bytes(std::size_t n, std::mt19937_64& random) {
  bytes out(n);
  std::generate(out.begin(), out.end(), [&] { return static_cast<std::byte>(random()); });
  return out;
}

/// `count` different blocks in random order.
std::vector<std::uint32_t> random_blocks(std::uint32_t blocks, std::size_t count, std::mt19937_64& random) {
  std::vector<std::uint32_t> all(blocks);
  std::iota(all.begin(), all.end(), 0U);
  std::shuffle(all.begin(), all.end(), random);
  all.resize(count);
  return all;
}

std::vector<block_move> moves_of(const std::vector<std::uint32_t>& blocks, std::vector<bytes>& pages) {
  std::vector<block_move> moves;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    moves.push_back({blocks[i], pages[i].data(), pages[i].size()});
  return moves;
}

} // namespace

TEST_CASE("gpu page mover: gather matches an element-wise reference in every layout", "[gpu]") {
  const auto seed = GENERATE(range(1, 4));
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  for (const auto& layout : layouts()) {
    for (const auto& g : geometries()) {
      INFO("seed " << seed << ", " << layout.name << ", layers " << g.layers << ", head size " << g.head_size);
      model_cache cache(g, 11, layout.order, layout.padding);
      for (auto& tensor : cache.tensors)
        tensor = random_bytes(tensor.size(), random);
      // The view still points to the vectors' memory: assignment of equal size may have moved it.
      for (std::size_t layer = 0; layer < g.layers; ++layer)
        cache.view.layers[layer].base = cache.tensors[layer].data() + model_cache::guard;
      const auto before = cache.tensors;
      const auto blocks = random_blocks(11, 1 + random() % 11, random);
      std::vector<bytes> pages(blocks.size(), bytes(g.page_bytes(), poison));
      auto moves = moves_of(blocks, pages);
      REQUIRE(mover_of(cache.view)->gather(moves).has_value());
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        bytes expected(g.page_bytes());
        cache.for_each_byte(blocks[i], [&](std::byte& b, std::uint64_t offset) { expected[offset] = b; });
        CHECK(pages[i] == expected);
      }
      CHECK(cache.tensors == before);
    }
  }
}

TEST_CASE("gpu page mover: scatter writes its blocks and touches nothing else", "[gpu]") {
  const auto seed = GENERATE(range(1, 4));
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  for (const auto& layout : layouts()) {
    for (const auto& g : geometries()) {
      INFO("seed " << seed << ", " << layout.name << ", layers " << g.layers << ", head size " << g.head_size);
      model_cache cache(g, 9, layout.order, layout.padding);
      auto expected = cache;
      const auto blocks = random_blocks(9, 1 + random() % 9, random);
      std::vector<bytes> pages;
      for (std::size_t i = 0; i < blocks.size(); ++i)
        pages.push_back(random_bytes(g.page_bytes(), random));
      const auto pages_before = pages;
      auto moves = moves_of(blocks, pages);
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        expected.for_each_byte(blocks[i], [&](std::byte& b, std::uint64_t offset) { b = pages[i][offset]; });
      }
      REQUIRE(mover_of(cache.view)->scatter(moves).has_value());
      // Guards, padding and the other blocks are poison in both.
      CHECK(cache.tensors == expected.tensors);
      CHECK(pages == pages_before);
    }
  }
}

TEST_CASE("gpu page mover: engines of different layouts exchange pages", "[gpu]") {
  std::mt19937_64 random(7);
  const kv_geometry g{3, 2, 4, 16, 2, 8};
  for (const auto& from_layout : layouts()) {
    for (const auto& to_layout : layouts()) {
      INFO(from_layout.name << " to " << to_layout.name);
      model_cache from(g, 5, from_layout.order, from_layout.padding);
      model_cache to(g, 6, to_layout.order, to_layout.padding);
      from.for_each_byte(3, [&](std::byte& b, std::uint64_t) { b = static_cast<std::byte>(random()); });
      bytes page(g.page_bytes());
      block_move out{3, page.data(), page.size()};
      block_move in{5, page.data(), page.size()};
      REQUIRE(mover_of(from.view)->gather({&out, 1}).has_value());
      REQUIRE(mover_of(to.view)->scatter({&in, 1}).has_value());
      std::size_t wrong = 0;
      from.for_each_byte(3, [&](std::byte& b, std::uint64_t offset) { wrong += b != page[offset]; });
      to.for_each_byte(5, [&](std::byte& b, std::uint64_t offset) { wrong += b != page[offset]; });
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("gpu page mover: the builders return the strides of the layouts they name", "[gpu]") {
  const kv_geometry g{1, 2, 3, 8, 2, 4};
  const std::vector<std::pair<kv_layout, axes>> named{
      {kv_layout::split, layouts()[0].order},
      {kv_layout::blocks_first, layouts()[1].order},
      {kv_layout::head_major, layouts()[2].order},
      {kv_layout::packed, layouts()[3].order},
  };
  for (const auto& [layout, order] : named) {
    INFO(to_string(layout));
    model_cache cache(g, 5, order, 0);
    const std::span<std::byte> tensor(cache.view.layers[0].base, cache.view.layers[0].bytes);
    CHECK(make_kv_cache_view(layout, g, 5, {&tensor, 1}).value() == cache.view);
  }
  model_cache mla({1, 1, 1, 72, 2, 16}, 5, layouts()[1].order, 0);
  const std::span<std::byte> tensor(mla.view.layers[0].base, mla.view.layers[0].bytes);
  const auto built = make_kv_cache_view(kv_layout::mla, mla.g, 5, {&tensor, 1}).value();
  CHECK(built.layers[0].block_stride == mla.view.layers[0].block_stride);
  CHECK(built.layers[0].token_stride == mla.view.layers[0].token_stride);
}

TEST_CASE("gpu page mover: layers of one cross-layer tensor are moved correctly, adjacent or not", "[gpu]") {
  // (NB, L, 2, BS, H, D), with and without a gap between layers.
  const kv_geometry g{4, 2, 2, 8, 2, 4};
  const std::uint64_t layer_part = g.page_bytes() / g.layers;
  const auto gap = GENERATE(std::uint64_t{0}, std::uint64_t{16});
  const auto block_stride = (layer_part + gap) * g.layers;
  std::mt19937_64 random(3);
  auto memory = random_bytes(block_stride * 6, random);
  kv_cache_view view{g, 6, {}};
  for (std::uint64_t layer = 0; layer < g.layers; ++layer)
    view.layers.push_back({memory.data() + layer * (layer_part + gap), memory.size() - layer * (layer_part + gap),
                           block_stride, layer_part / 2, 16, 64});
  bytes page(g.page_bytes());
  block_move move{4, page.data(), page.size()};
  const auto mover = mover_of(view);
  REQUIRE(mover->gather({&move, 1}).has_value());
  for (std::uint64_t layer = 0; layer < g.layers; ++layer)
    CHECK(std::equal(page.begin() + static_cast<std::ptrdiff_t>(layer * layer_part),
                     page.begin() + static_cast<std::ptrdiff_t>((layer + 1) * layer_part),
                     memory.begin() + static_cast<std::ptrdiff_t>(4 * block_stride + layer * (layer_part + gap))));
  auto expected = memory;
  auto other = random_bytes(page.size(), random);
  for (std::uint64_t layer = 0; layer < g.layers; ++layer)
    std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(layer * layer_part), layer_part,
                expected.begin() + static_cast<std::ptrdiff_t>(block_stride + layer * (layer_part + gap)));
  block_move back{1, other.data(), other.size()};
  REQUIRE(mover->scatter({&back, 1}).has_value());
  CHECK(memory == expected);
}

TEST_CASE("gpu page mover: layers that are adjacent in block 0 only are not merged", "[gpu]") {
  // Pieces of one memory: layer 0 has the even ones, layer 1 every second of the odd ones.
  const kv_geometry g{2, 2, 2, 8, 2, 4};
  const std::uint64_t piece = g.page_bytes() / g.layers;
  std::mt19937_64 random(5);
  auto memory = random_bytes(piece * 10, random);
  kv_cache_view view{g, 3, {}};
  view.layers.push_back({memory.data(), 5 * piece, 2 * piece, piece / 2, 16, 64});
  view.layers.push_back({memory.data() + piece, 9 * piece, 4 * piece, piece / 2, 16, 64});
  bytes page(g.page_bytes());
  block_move move{2, page.data(), page.size()};
  REQUIRE(mover_of(view)->gather({&move, 1}).has_value());
  const auto at = [&](std::uint64_t n) { return memory.begin() + static_cast<std::ptrdiff_t>(n * piece); };
  const auto half = page.begin() + static_cast<std::ptrdiff_t>(piece);
  CHECK(std::equal(page.begin(), half, at(4)));
  CHECK(std::equal(half, page.end(), at(9)));
}

TEST_CASE("gpu page mover: an invalid entry anywhere in the list is refused before anything moves", "[gpu]") {
  const kv_geometry g{2, 2, 2, 8, 2, 4};
  model_cache cache(g, 4, layouts()[0].order, 0);
  const auto mover = mover_of(cache.view);
  const auto cache_before = cache.tensors;
  std::vector<bytes> pages(3, bytes(g.page_bytes(), std::byte{1}));
  const auto pages_before = pages;
  const auto position = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{2});
  auto moves = moves_of({0, 1, 2}, pages);
  auto& bad = moves[position];
  auto expected = errc::invalid_argument;
  SECTION("block out of range") {
    bad.block = GENERATE(4U, 5U, 0x80000000U, 0xfffffffeU);
    expected = errc::out_of_range;
  }
  SECTION("page too small") {
    bad.page_bytes -= 1;
  }
  SECTION("page too large") {
    bad.page_bytes += 1;
  }
  SECTION("no page") {
    bad.page = nullptr;
  }
  const auto scattered = mover->scatter(moves);
  REQUIRE(!scattered.has_value());
  CHECK(scattered.error().code == expected);
  CHECK(scattered.error().text.find("entry " + std::to_string(position)) != std::string::npos);
  const auto gathered = mover->gather(moves);
  REQUIRE(!gathered.has_value());
  CHECK(gathered.error().code == expected);
  CHECK(cache.tensors == cache_before);
  CHECK(pages == pages_before);
}

TEST_CASE("gpu page mover: an empty list is accepted, and an invalid view makes no mover", "[gpu]") {
  const kv_geometry g{1, 2, 2, 8, 2, 4};
  model_cache cache(g, 4, layouts()[0].order, 0);
  const auto mover = mover_of(cache.view);
  CHECK(mover->gather({}).has_value());
  CHECK(mover->scatter({}).has_value());
  cache.view.layers[0].bytes -= 1;
  CHECK(make_host_page_mover(cache.view).error().code == errc::out_of_range);
}

TEST_CASE("gpu page mover: a page that is overwritten during a copy is whole or corrupt, in both directions", "[gpu]") {
  const kv_geometry geometry{8, 2, 4, 64, 2, 16}; // 128 KiB
  model_cache cache(geometry, 2, layouts().front().order, 0);
  const auto mover = mover_of(cache.view);
  std::mt19937_64 random(7);
  const auto right = random_bytes(geometry.page_bytes(), random);
  cache.for_each_byte(0, [&](std::byte& at, std::size_t offset) { at = right[offset]; });
  test::check_while_corrupted_on(*mover, right, [&] {
    std::size_t wrong = 0;
    cache.for_each_byte(1, [&](std::byte& at, std::size_t offset) { wrong += at == right[offset] ? 0 : 1; });
    return wrong == 0;
  });
}

/// Whole blocks, with a multiple of a word of the checksum in each layer.
kv_cache_view opaque_view(std::vector<bytes>& tensors, std::uint32_t blocks, std::uint32_t block_bytes) {
  constexpr std::uint32_t heads = 8;
  const auto head_bytes = block_bytes / heads;
  const kv_geometry g{static_cast<std::uint32_t>(tensors.size()), 1, heads, head_bytes, 1, 1};
  kv_cache_view view{g, blocks, {}, 1, true};
  for (auto& tensor : tensors) {
    tensor.resize(std::size_t{blocks} * block_bytes);
    view.layers.push_back({tensor.data(), tensor.size(), block_bytes, block_bytes, head_bytes, head_bytes});
  }
  return view;
}

TEST_CASE("gpu page mover: a mover that verifies while it copies moves the same bytes, and reports every changed one",
          "[gpu]") {
  const auto block_bytes = GENERATE(4096U, 131072U, 1000U);
  std::mt19937_64 random(block_bytes);
  std::vector<bytes> tensors(2);
  const auto view = opaque_view(tensors, 3, block_bytes);
  for (auto& tensor : tensors)
    tensor = random_bytes(tensor.size(), random);
  auto quick_view = view;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    quick_view.layers[i].base = tensors[i].data();
  const auto quick = make_host_page_mover(quick_view, {.verify_while_copying = true, .calls_at_once = 3}).value();
  CHECK(quick->calls_at_once(move_direction::scatter) == 3);
  const auto plain = mover_of(quick_view);
  std::vector<bytes> pages(2, bytes(view.geometry.page_bytes(), poison));
  auto one = moves_of({1}, pages);
  REQUIRE(quick->gather(one));
  std::vector<bytes> other(1, bytes(view.geometry.page_bytes(), poison));
  auto same = moves_of({1}, other);
  REQUIRE(plain->gather(same));
  CHECK(pages[0] == other[0]);
  CHECK(one[0].checksum == io::checksum_of(pages[0]));
  one[0].block = 2;
  REQUIRE(quick->scatter(one));
  CHECK(one[0].verdict == errc::ok);
  for (const auto& tensor : tensors)
    CHECK(std::equal(tensor.begin() + block_bytes, tensor.begin() + 2 * block_bytes, tensor.begin() + 2 * block_bytes));
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{block_bytes} - 1, std::size_t{block_bytes}, pages[0].size() - 1}) {
    pages[0][at] ^= std::byte{4};
    const auto first_block = bytes(tensors[0].begin(), tensors[0].begin() + block_bytes);
    REQUIRE(quick->scatter(one));
    CHECK(one[0].verdict == errc::corrupt);
    CHECK(bytes(tensors[0].begin(), tensors[0].begin() + block_bytes) == first_block); // not another block's
    pages[0][at] ^= std::byte{4};
  }
}

TEST_CASE("gpu page mover: a page that is overwritten while it is verified and copied is whole or corrupt", "[gpu]") {
  constexpr std::uint32_t block_bytes = 131072;
  std::vector<bytes> tensors(2);
  const auto view = opaque_view(tensors, 2, block_bytes);
  const auto mover = make_host_page_mover(view, {.verify_while_copying = true}).value();
  std::mt19937_64 random(8);
  const auto right = random_bytes(view.geometry.page_bytes(), random);
  for (std::size_t i = 0; i < 2; ++i)
    std::copy_n(right.data() + i * block_bytes, block_bytes, tensors[i].data());
  test::check_while_corrupted_on(*mover, right, [&] {
    return std::equal(tensors[0].begin() + block_bytes, tensors[0].end(), right.begin()) &&
           std::equal(tensors[1].begin() + block_bytes, tensors[1].end(), right.begin() + block_bytes);
  });
}

TEST_CASE("gpu page mover: the last entry wins where one block is scattered twice", "[gpu]") {
  const kv_geometry g{2, 2, 2, 8, 2, 4};
  model_cache cache(g, 4, layouts()[2].order, 0);
  std::vector<bytes> pages{bytes(g.page_bytes(), std::byte{1}), bytes(g.page_bytes(), std::byte{2})};
  auto moves = moves_of({3, 3}, pages);
  REQUIRE(mover_of(cache.view)->scatter(moves).has_value());
  std::size_t wrong = 0;
  cache.for_each_byte(3, [&](std::byte& b, std::uint64_t) { wrong += b != std::byte{2}; });
  CHECK(wrong == 0);
}

TEST_CASE("gpu page mover: offsets beyond 4 GiB inside one layer are exact", "[gpu]") {
  // Only the pages of memory that are touched exist.
  const kv_geometry g{1, 2, 8, 128, 2, 16};
  constexpr std::uint32_t blocks = 100'000;
  const auto size = all_layer_bytes(g, blocks).value().front();
  REQUIRE(size > (std::uint64_t{6} << 30U));
  auto* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  const std::span<std::byte> tensor(static_cast<std::byte*>(memory), size);
  const auto layout = GENERATE(kv_layout::split, kv_layout::head_major);
  const auto mover = mover_of(make_kv_cache_view(layout, g, blocks, {&tensor, 1}).value());
  std::mt19937_64 random(1);
  auto page = random_bytes(g.page_bytes(), random);
  bytes back(page.size());
  block_move in{blocks - 1, page.data(), page.size()};
  block_move out{blocks - 1, back.data(), back.size()};
  REQUIRE(mover->scatter({&in, 1}).has_value());
  REQUIRE(mover->gather({&out, 1}).has_value());
  CHECK(back == page);
  // The last head of the last token of V ends both tensor and page in these layouts.
  CHECK(std::equal(page.end() - 256, page.end(), tensor.end() - 256));
  ::munmap(memory, size);
}

namespace {

/// A cache whose blocks have values of this kind.
model_cache cache_of(workload::value_kind kind, const named_layout& layout, std::mt19937_64& random) {
  model_cache out({3, 2, 4, 32, 2, 16}, 6, layout.order, layout.padding);
  for (std::uint32_t block = 0; block < 6; ++block) {
    const auto values = workload::make_values(kind, out.g.page_bytes() / 2, random);
    out.for_each_byte(block, [&](std::byte& b, std::uint64_t offset) { b = values[offset]; });
  }
  return out;
}

bytes page_of(model_cache& cache, std::uint32_t block) {
  bytes out(cache.g.page_bytes());
  cache.for_each_byte(block, [&](const std::byte& b, std::uint64_t offset) { out[offset] = b; });
  return out;
}

} // namespace

TEST_CASE("gpu page mover: encoded pages hold the same bytes in every layout, and are read like others",
          "[gpu][encoding]") {
  std::mt19937_64 random(17);
  const auto& layout = GENERATE(from_range(layouts()));
  INFO(layout.name);
  const auto kind =
      GENERATE(workload::value_kind::normal, workload::value_kind::spread_1, workload::value_kind::half_zeroes);
  auto cache = cache_of(kind, layout, random);
  const auto mover = mover_of(cache.view);
  const auto size = cache.g.page_bytes();
  std::vector<bytes> pages(2, bytes(size, poison));
  auto moves = moves_of({4, 1}, pages);
  moves[0].encoding = page_encoding::bf16; // the other one is stored as it is
  REQUIRE(mover->gather(moves));
  REQUIRE(moves[0].encoding == page_encoding::bf16);
  CHECK(moves[1].encoding == page_encoding::raw);
  CHECK(pages[1] == page_of(cache, 1));
  const auto stored = moves[0].stored_bytes();
  CHECK(stored < size);
  CHECK(std::all_of(pages[0].begin() + static_cast<std::ptrdiff_t>(stored), pages[0].end(),
                    [](std::byte b) { return b == poison; }));
  CHECK(moves[0].checksum == io::checksum_of(std::span(pages[0]).first(stored)));
  const auto payload = page_of(cache, 4);
  bytes decoded(size);
  REQUIRE(codec::decode(std::span(pages[0]).first(stored), decoded));
  CHECK(decoded == payload);
  // To other blocks.
  moves[0].block = 2;
  moves[1].block = 5;
  REQUIRE(mover->scatter(moves));
  CHECK(moves[0].verdict == errc::ok);
  CHECK(moves[1].verdict == errc::ok);
  CHECK(page_of(cache, 2) == payload);
  CHECK(page_of(cache, 5) == pages[1]);
}

TEST_CASE("gpu page mover: a page whose bytes have no encoding is stored as it is", "[gpu][encoding]") {
  std::mt19937_64 random(18);
  auto cache = cache_of(workload::value_kind::random_bits, layouts().front(), random);
  const auto mover = mover_of(cache.view);
  std::vector<bytes> pages(1, bytes(cache.g.page_bytes()));
  auto moves = moves_of({3}, pages);
  moves[0].encoding = page_encoding::bf16;
  REQUIRE(mover->gather(moves));
  CHECK(moves[0].encoding == page_encoding::raw);
  CHECK(pages[0] == page_of(cache, 3));
  CHECK(moves[0].checksum == io::checksum_of(pages[0]));
}

TEST_CASE("gpu page mover: a page whose bytes have no encoding is not stored where there is no room for it",
          "[gpu][encoding]") {
  std::mt19937_64 random(20);
  auto cache = cache_of(workload::value_kind::random_bits, layouts().front(), random);
  const auto mover = mover_of(cache.view);
  std::vector<bytes> pages(1, bytes(cache.g.page_bytes(), std::byte{7}));
  auto moves = moves_of({3}, pages);
  moves[0].only_encoded = true;
  CHECK(mover->gather(moves).error().code == errc::invalid_argument);
  moves[0].encoding = page_encoding::bf16;
  REQUIRE(mover->gather(moves));
  CHECK(moves[0].verdict == errc::unsupported);
  CHECK(pages[0] == bytes(cache.g.page_bytes(), std::byte{7}));
  // Where there is an encoding, nothing behind it is written.
  auto other = cache_of(workload::value_kind::normal, layouts().front(), random);
  moves[0].encoding = page_encoding::bf16;
  REQUIRE(mover_of(other.view)->gather(moves));
  CHECK(moves[0].verdict == errc::ok);
  const auto stored = moves[0].stored_bytes();
  REQUIRE(stored < pages[0].size());
  CHECK(moves[0].checksum == io::checksum_of({pages[0].data(), stored}));
  CHECK(std::all_of(pages[0].begin() + static_cast<std::ptrdiff_t>(stored), pages[0].end(),
                    [](std::byte x) { return x == std::byte{7}; }));
}

TEST_CASE("gpu page mover: an encoded page that is not the expected one leaves its block unchanged",
          "[gpu][encoding]") {
  std::mt19937_64 random(19);
  auto cache = cache_of(workload::value_kind::normal, layouts().front(), random);
  const auto mover = mover_of(cache.view);
  std::vector<bytes> pages(1, bytes(cache.g.page_bytes()));
  auto moves = moves_of({3}, pages);
  moves[0].encoding = page_encoding::bf16;
  REQUIRE(mover->gather(moves));
  const auto before = page_of(cache, 0);
  moves[0].block = 0;
  SECTION("damaged") {
    pages[0][moves[0].stored_bytes() - 1] ^= std::byte{4};
  }
  SECTION("not encoded at all, with the right checksum") {
    std::ranges::fill(pages[0], std::byte{7});
    moves[0].checksum = io::checksum_of(std::span(pages[0]).first(moves[0].stored_bytes()));
  }
  SECTION("not encoded at all, and not verified") {
    std::ranges::fill(pages[0], std::byte{7});
    moves[0].checksum.reset();
  }
  REQUIRE(mover->scatter(moves));
  CHECK(moves[0].verdict == errc::corrupt);
  CHECK(page_of(cache, 0) == before);
}

TEST_CASE("gpu page mover: an encoding that pages of this size cannot have is refused", "[gpu][encoding]") {
  model_cache cache({1, 2, 5, 7, 1, 3}, 4, layouts().front().order, 0); // 210 bytes
  const auto mover = mover_of(cache.view);
  std::vector<bytes> pages(2, bytes(cache.g.page_bytes(), poison));
  auto moves = moves_of({0, 1}, pages);
  moves[1].encoding = page_encoding::bf16;
  CHECK(mover->gather(moves).error().code == errc::invalid_argument);
  CHECK(mover->scatter(moves).error().code == errc::invalid_argument);
  CHECK(pages[0] == bytes(cache.g.page_bytes(), poison));
}

} // namespace gpu_page_mover_test
