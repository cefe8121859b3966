#include "codec/page_codec.hpp"
#include "tests/gpu/gpu_cache.hpp"
#include "workload/kv_values/kv_values.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <thread>
#include <utility>

namespace encoded_pages_test {

using namespace troupe;
using namespace troupe::test;
using workload::value_kind;

namespace {

using c = cache_shape;

/// A cache on the GPU and its twin, with mover options, and pages as in frames: with headers in front of them.
struct scene {
  scene(const cache_shape& shape, std::uint32_t blocks, const cuda_mover_options& options) : cache(shape, blocks) {
    auto made = make_cuda_page_mover(cache.device_view(), options);
    INFO((made ? std::string() : to_string(made.error())));
    REQUIRE(made.has_value());
    mover = std::move(*made);
    distance = (cache.page_bytes() + 2 * 4096 - 1) / 4096 * 4096;
  }

  std::unique_ptr<page_mover> host() const { return make_host_page_mover(cache.host_view()).value(); }
  page_memory pages(std::size_t count) const { return page_memory(cache.page_bytes(), count, distance); }

  gpu_cache cache;
  std::unique_ptr<page_mover> mover;
  std::uint64_t distance = 0;
};

void want(std::vector<block_move>& moves, page_encoding encoding, std::size_t every = 1) {
  for (std::size_t i = 0; i < moves.size(); i += every)
    moves[i].encoding = encoding;
}

/// One that is encoded while it is gathered, and one that is encoded in a step of its own, since a head has no whole
/// tiles of the encoding.
std::vector<cache_shape> shapes_of_both_kinds() {
  return {{"whole tiles", {3, 2, 4, 128, 2, 16}}, {"other tiles", {3, 2, 3, 40, 2, 32}}};
}

std::vector<cache_shape> shapes() {
  const kv_geometry llama{4, 2, 8, 128, 2, 16};
  auto mixed = llama;
  mixed.further = {{2, {1, 1, 576, 2}}, {1, {1, 1, 128, 1}}};
  return {
      {"split", llama, {c::part, c::block, c::token, c::head}},
      {"head-major", llama, {c::block, c::part, c::head, c::token}},
      {"packed", llama, {c::block, c::head, c::token, c::part}},
      {"head-major, gaps of 48", llama, {c::block, c::part, c::head, c::token}, 48},
      {"split, other tiles", {4, 2, 8, 96, 2, 16}, {c::part, c::block, c::token, c::head}},
      {"split, gaps of 4", {3, 2, 3, 20, 2, 32}, {c::part, c::block, c::token, c::head}, 4},
      {"MLA", {6, 1, 1, 576, 2, 64}, {c::part, c::block, c::token, c::head}},
      {"cross-layer", llama, {c::block, c::part, c::token, c::head}, 0, true},
      {"pages of 4 blocks", {4, 2, 8, 128, 2, 64}, {c::part, c::block, c::token, c::head}, 0, false, 4},
      {"layers of three shapes", mixed, {c::block, c::part, c::token, c::head}},
  };
}

/// Each shape with copies by the GPU's copy engines, and with kernels that access the frames.
std::vector<std::pair<cache_shape, std::uint64_t>> with_and_without_copies(const std::vector<cache_shape>& shapes) {
  std::vector<std::pair<cache_shape, std::uint64_t>> out;
  for (const auto& shape : shapes)
    for (const std::uint64_t direct : {std::uint64_t{0}, std::uint64_t{1} << 40U})
      out.emplace_back(shape, direct);
  return out;
}

} // namespace

TEST_CASE("gpu: encoded pages match the host mover bit for bit in every layout", "[gpu][encoding]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(20261129);
  std::size_t count = 0;
  for (const auto& shape : shapes())
    for (const auto kind :
         {value_kind::normal, value_kind::spread_2, value_kind::infinities, value_kind::half_zeroes}) {
      INFO(shape.name << ", " << workload::to_string(kind));
      const std::uint64_t page = gpu_cache(shape, 1 * shape.blocks_per_page).page_bytes();
      // Small parts, so that a list is several of them; and with direct copies every other time.
      scene s(shape, 48, {.part_bytes = 3 * page, .direct_bytes = count++ % 2 == 0 ? 0 : std::uint64_t{1} << 40U});
      s.cache.fill(kind, random);
      const auto blocks =
          random_pages(s.cache.device_view(), 1 + random() % (48 / shape.blocks_per_page), true, random);
      const auto pages = s.pages(blocks.size());
      const auto expected = s.pages(blocks.size());
      must(s.mover->prepare(pages.all()));
      auto moves = moves_of(blocks, pages, page);
      auto model = moves_of(blocks, expected, page);
      // All of them, or some of them among others.
      const std::size_t every = 1 + random() % 3;
      want(moves, page_encoding::bf16, every);
      want(model, page_encoding::bf16, every);
      must(s.mover->gather(moves));
      must(s.host()->gather(model));
      for (std::size_t i = 0; i < moves.size(); ++i) {
        REQUIRE(moves[i].encoding == model[i].encoding);
        REQUIRE(moves[i].checksum == model[i].checksum);
        REQUIRE(std::memcmp(moves[i].page, model[i].page, moves[i].stored_bytes()) == 0);
      }
      REQUIRE(s.cache.equal());
      s.cache.poison_all();
      must(s.mover->scatter(moves));
      must(s.host()->scatter(model));
      for (const auto& move : moves)
        REQUIRE(move.verdict == errc::ok);
      REQUIRE(s.cache.equal());
      s.mover->forget(pages.all());
    }
}

TEST_CASE("gpu: pages without an encoding are stored as they are, among others", "[gpu][encoding]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(4);
  const cache_shape shape{"", {4, 2, 8, 128, 2, 16}, {c::block, c::part, c::token, c::head}, 0, true};
  for (const std::uint64_t direct : {std::uint64_t{0}, std::uint64_t{1} << 40U}) {
    scene s(shape, 32, {.part_bytes = std::uint64_t{1} << 20U, .direct_bytes = direct});
    s.cache.fill(value_kind::normal, random);
    s.cache.randomize({3, 7, 8, 30}, random);
    std::vector<std::vector<std::uint32_t>> blocks;
    for (std::uint32_t i = 0; i < 32; ++i)
      blocks.push_back({i});
    const auto pages = s.pages(32);
    must(s.mover->prepare(pages.all()));
    auto moves = moves_of(blocks, pages, s.cache.page_bytes());
    want(moves, page_encoding::bf16);
    must(s.mover->gather(moves));
    for (std::uint32_t i = 0; i < 32; ++i) {
      const bool random_bits = i == 3 || i == 7 || i == 8 || i == 30;
      CHECK((moves[i].encoding == page_encoding::raw) == random_bits);
      CHECK(moves[i].checksum == io::checksum_of({moves[i].page, moves[i].stored_bytes()}));
    }
    s.cache.poison_all();
    must(s.mover->scatter(moves));
    auto model = moves;
    must(s.host()->scatter(model));
    CHECK(s.cache.equal());
    s.mover->forget(pages.all());
  }
}

TEST_CASE("gpu: pages with room for their encoding only leave everything behind it unchanged", "[gpu][encoding]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(41);
  const cache_shape shape{"", {4, 2, 8, 128, 2, 16}, {c::block, c::part, c::token, c::head}, 0, true};
  for (const std::uint64_t direct : {std::uint64_t{0}, std::uint64_t{1} << 40U}) {
    scene s(shape, 32, {.part_bytes = std::uint64_t{1} << 20U, .direct_bytes = direct});
    s.cache.fill(value_kind::normal, random);
    s.cache.randomize({3, 7, 8, 31}, random);
    std::vector<std::vector<std::uint32_t>> blocks;
    for (std::uint32_t i = 0; i < 32; ++i)
      blocks.push_back({i});
    const auto stored = codec::stored_bytes(page_encoding::bf16, s.cache.page_bytes());
    // One frame right behind the other, and the last one at the very end of the locked memory.
    const page_memory pages(stored, 32, (stored + 4096 - 1) / 4096 * 4096);
    must(s.mover->prepare(pages.all()));
    std::ranges::fill(pages.all(), poison);
    auto moves = moves_of(blocks, pages, s.cache.page_bytes());
    want(moves, page_encoding::bf16);
    for (auto& move : moves)
      move.only_encoded = true;
    must(s.mover->gather(moves));
    const bytes after(pages.all().begin(), pages.all().end());
    std::vector<block_move> kept;
    for (std::uint32_t i = 0; i < 32; ++i) {
      const bool random_bits = i == 3 || i == 7 || i == 8 || i == 31;
      CHECK(moves[i].verdict == (random_bits ? errc::unsupported : errc::ok));
      if (random_bits)
        continue;
      CHECK(moves[i].checksum == io::checksum_of({moves[i].page, stored}));
      kept.push_back(moves[i]);
      const auto* const end = moves[i].page + stored;
      const auto* const next = i + 1 < 32 ? moves[i + 1].page : pages.all().data() + pages.all().size();
      CHECK(std::all_of(end, next, [](std::byte x) { return x == poison; }));
    }
    s.cache.poison_all();
    must(s.mover->scatter(kept));
    auto model = kept;
    must(s.host()->scatter(model));
    CHECK(s.cache.equal());
    s.mover->forget(pages.all());
  }
}

TEST_CASE("gpu: only the corrupt encoded page fails and its block is not written", "[gpu][encoding]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(6);
  for (const auto& [shape, direct] : with_and_without_copies(shapes_of_both_kinds())) {
    INFO(shape.name << ", direct " << direct);
    scene s(shape, 32, {.direct_bytes = direct});
    s.cache.fill(value_kind::normal, random);
    const auto blocks = random_pages(s.cache.device_view(), 20, false, random);
    const auto pages = s.pages(20);
    must(s.mover->prepare(pages.all()));
    auto moves = moves_of(blocks, pages, s.cache.page_bytes());
    want(moves, page_encoding::bf16);
    must(s.mover->gather(moves));
    const auto stored = moves[0].stored_bytes();
    s.cache.poison_all();
    // Damaged; or no encoded page although its checksum is right, or is not looked at.
    moves[0].page[random() % stored] ^= std::byte{1};
    moves[7].page[random() % stored] ^= std::byte{0x80};
    moves[9].page[0] ^= std::byte{1};
    moves[9].checksum = io::checksum_of({moves[9].page, stored});
    std::ranges::copy(random_bytes(stored, random), moves[19].page);
    moves[19].checksum.reset();
    auto model = moves;
    must(s.mover->scatter(moves));
    must(s.host()->scatter(model));
    for (std::size_t i = 0; i < moves.size(); ++i) {
      CHECK(moves[i].verdict == model[i].verdict);
      CHECK((moves[i].verdict == errc::corrupt) == (i == 0 || i == 7 || i == 9 || i == 19));
    }
    CHECK(s.cache.equal());
    // A call that comes after it begins with a clean slate.
    moves[9].page[0] ^= std::byte{1};
    moves[9].checksum = io::checksum_of({moves[9].page, stored});
    must(s.mover->scatter(std::span(moves).subspan(9, 1)));
    CHECK(moves[9].verdict == errc::ok);
    s.mover->forget(pages.all());
  }
}

TEST_CASE("gpu: a page that no encoder wrote fails although its checksum is right and its block is not written",
          "[gpu][encoding]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(7);
  for (const auto& [shape, direct] : with_and_without_copies(shapes_of_both_kinds())) {
    INFO(shape.name << ", direct " << direct);
    scene s(shape, 32, {.direct_bytes = direct});
    s.cache.fill(value_kind::infinities, random);
    const auto layout = codec::layout_of(s.cache.page_bytes());
    const auto blocks = random_pages(s.cache.device_view(), 8, false, random);
    const auto pages = s.pages(8);
    must(s.mover->prepare(pages.all()));
    auto moves = moves_of(blocks, pages, s.cache.page_bytes());
    want(moves, page_encoding::bf16);
    must(s.mover->gather(moves));
    s.cache.poison_all();
    const auto record = [&](std::size_t page, std::uint64_t tile) {
      return reinterpret_cast<std::uint32_t*>(moves[page].page + layout.records) + tile;
    };
    // One code is an escape that the list does not have; one escape is no code; two tiles have each other's escape; the
    // list ends before it begins, or behind its room; the header counts another number.
    auto* const code = moves[0].page + layout.codes + random() % (layout.tiles * codec::tile_code_bytes);
    *code = (*code & std::byte{0x0f}) == std::byte{0x0f} ? *code ^ std::byte{1} : *code | std::byte{0x0f};
    *record(2, layout.tiles - 1) += 1U << 9U;
    *record(3, 0) += 1U << 9U;
    *record(4, layout.tiles / 2) = 0;
    *record(5, layout.tiles - 1) |= ~0U << 9U;
    moves[6].page[offsetof(codec::page_header, escapes)] ^= std::byte{1};
    for (auto& move : moves)
      move.checksum = io::checksum_of({move.page, move.stored_bytes()});
    auto model = moves;
    must(s.mover->scatter(moves));
    must(s.host()->scatter(model));
    for (std::size_t i = 0; i < moves.size(); ++i) {
      CHECK(moves[i].verdict == model[i].verdict);
      CHECK((moves[i].verdict == errc::ok) == (i == 1 || i == 7));
    }
    CHECK(s.cache.equal());
    s.mover->forget(pages.all());
  }
}

TEST_CASE("gpu: a few small pages are encoded and decoded", "[gpu][encoding][small]") {
  TROUPE_NEEDS_GPU();
  // A small size for checkers that make every access a hundred times slower.
  std::mt19937_64 random(8);
  const std::vector<cache_shape> small{{"whole tiles", {2, 2, 2, 64, 2, 16}}, {"other tiles", {2, 2, 2, 48, 2, 16}}};
  for (const auto& [shape, direct] : with_and_without_copies(small)) {
    scene s(shape, 8, {.part_bytes = std::uint64_t{64} << 10U, .direct_bytes = direct});
    s.cache.fill(value_kind::normal, random);
    const auto blocks = random_pages(s.cache.device_view(), 8, false, random);
    const auto pages = s.pages(8);
    must(s.mover->prepare(pages.all()));
    auto moves = moves_of(blocks, pages, s.cache.page_bytes());
    want(moves, page_encoding::bf16);
    // Lists of any length, one after the other.
    for (const std::size_t count : {1U, 8U, 2U, 5U, 8U}) {
      const auto some = std::span(moves).first(count);
      must(s.mover->gather(some));
      must(s.mover->scatter(some));
      for (const auto& move : some) {
        CHECK(move.encoding == page_encoding::bf16);
        CHECK(move.verdict == errc::ok);
      }
    }
    CHECK(s.cache.equal());
    s.mover->forget(pages.all());
  }
}

TEST_CASE("gpu: pages in memory that was locked in several pieces, or not at all, are moved", "[gpu][encoding]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(12);
  scene s({"", {4, 2, 8, 128, 2, 16}}, 64, {.direct_bytes = 0});
  s.cache.fill(value_kind::normal, random);
  const auto blocks = random_pages(s.cache.device_view(), 32, false, random);
  const auto pages = s.pages(32);
  // Two pieces side by side, a gap, and another one.
  const auto piece = [&](std::size_t first, std::size_t count) {
    return pages.all().subspan(first * s.distance, count * s.distance);
  };
  for (const auto& memory : {piece(0, 8), piece(8, 8), piece(24, 8)})
    must(s.mover->prepare(memory));
  const auto all = moves_of(blocks, pages, s.cache.page_bytes());
  const std::vector<std::vector<std::size_t>> lists{
      {7, 8},       {0, 24},         {15, 16},
      {20, 21, 22}, {4, 12, 20, 28}, {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27}};
  for (const auto encoding : {page_encoding::raw, page_encoding::bf16})
    for (const auto& list : lists) {
      std::vector<block_move> moves;
      for (const auto i : list)
        moves.push_back(all[i]);
      want(moves, encoding);
      must(s.mover->gather(moves));
      for (const auto& move : moves)
        CHECK(move.checksum == io::checksum_of({move.page, move.stored_bytes()}));
      must(s.mover->scatter(moves));
      for (const auto& move : moves)
        CHECK(move.verdict == errc::ok);
      CHECK(s.cache.equal());
    }
  for (const auto& memory : {piece(0, 8), piece(8, 8), piece(24, 8)})
    s.mover->forget(memory);
}

TEST_CASE("gpu: encoded pages wait for the engine's event", "[gpu][encoding]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(9);
  scene s({"", {4, 2, 8, 128, 2, 16}}, 64, {.part_bytes = std::uint64_t{1} << 20U});
  s.cache.fill(value_kind::random_bits, random);
  const auto blocks = random_pages(s.cache.device_view(), 32, false, random);
  const auto pages = s.pages(32);
  auto moves = moves_of(blocks, pages, s.cache.page_bytes());
  want(moves, page_encoding::bf16);
  auto engine = cuda::make_stream(cuda::priority::low).value();
  auto ready = cuda::make_event(cuda::awaited_by::threads).value();
  // The engine's stream is delayed, and only then writes blocks that have an encoding.
  must(cudaLaunchHostFunc(
      engine.get(), [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }, nullptr));
  for (const auto& layer : s.cache.device_view().layers)
    must(cudaMemsetAsync(layer.base, 0x42, layer.bytes, engine.get()));
  must(cudaEventRecord(ready.get(), engine.get()));
  must(s.mover->gather(moves, {ready.get()}));
  for (const auto& move : moves) {
    REQUIRE(move.encoding == page_encoding::bf16);
    bytes decoded(move.page_bytes);
    REQUIRE(codec::decode({move.page, move.stored_bytes()}, decoded));
    CHECK(std::ranges::all_of(decoded, [](std::byte b) { return b == std::byte{0x42}; }));
  }
}

TEST_CASE("gpu: a mover that does not encode stores pages as they are, and reads encoded ones", "[gpu][encoding]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(10);
  const cache_shape shape{"", {4, 2, 8, 128, 2, 16}};
  scene s(shape, 16, {});
  s.cache.fill(value_kind::normal, random);
  const auto plain = make_cuda_page_mover(s.cache.device_view(), {.encodes = false}).value();
  const auto blocks = random_pages(s.cache.device_view(), 16, false, random);
  const auto pages = s.pages(16);
  auto moves = moves_of(blocks, pages, s.cache.page_bytes());
  want(moves, page_encoding::bf16);
  must(plain->gather(moves));
  for (const auto& move : moves)
    CHECK(move.encoding == page_encoding::raw);
  want(moves, page_encoding::bf16);
  must(s.mover->gather(moves));
  must(plain->scatter(moves));
  for (const auto& move : moves)
    CHECK(move.verdict == errc::ok);
  CHECK(s.cache.equal());
}

TEST_CASE("gpu: concurrent calls with and without encoding do not interfere", "[gpu][encoding]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(5);
  // Whole tiles of the encoding, and others.
  const auto tokens = GENERATE(32U, 24U);
  scene s({"", {8, 2, 8, 96, 2, tokens}}, 64, {});
  s.cache.fill(value_kind::spread_1, random);
  const auto blocks = random_pages(s.cache.device_view(), 64, false, random);
  const auto pages = s.pages(64);
  must(s.mover->prepare(pages.all()));
  auto moves = moves_of(blocks, pages, s.cache.page_bytes());
  std::atomic<int> failures{0};
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 8; ++t)
      threads.emplace_back([&, t, own = std::span(moves).subspan(t * 8, 8)] {
        for (int round = 0; round < 20; ++round) {
          for (auto& move : own)
            move.encoding = (t + static_cast<std::size_t>(round)) % 3 == 0 ? page_encoding::raw : page_encoding::bf16;
          if (!s.mover->gather(own) || !s.mover->scatter(own))
            ++failures;
          failures += std::ranges::any_of(own, [](const auto& x) { return x.verdict != errc::ok; }) ? 1 : 0;
        }
      });
  }
  CHECK(failures == 0);
  CHECK(s.cache.equal());
}

} // namespace encoded_pages_test
