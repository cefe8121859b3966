#include "tests/gpu/gpu_cache.hpp"

#include <algorithm>
#include <thread>

namespace page_mover_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using c = cache_shape;

/// Every layout with every element size, block size and some shapes.
std::vector<cache_shape> shapes() {
  std::vector<cache_shape> out;
  struct {
    const char* name;
    std::vector<c::axis> order;
    std::uint64_t gap;
  } const layouts[] = {
      {"split", {c::part, c::block, c::token, c::head}, 0},
      {"blocks-first", {c::block, c::part, c::token, c::head}, 0},
      {"head-major", {c::block, c::part, c::head, c::token}, 0},
      {"packed", {c::block, c::head, c::token, c::part}, 0},
      {"tokens outside", {c::token, c::block, c::part, c::head}, 0},
      {"head-major, gaps of 48", {c::block, c::part, c::head, c::token}, 48},
      {"split, gaps of 8", {c::part, c::block, c::token, c::head}, 8},
      {"split, gaps of 4", {c::part, c::block, c::token, c::head}, 4},
  };
  const kv_layer_shape models[] = {{2, 8, 128, 2}, {2, 1, 128, 2}, {2, 3, 64, 2}, {1, 1, 576, 2}, {2, 2, 20, 2}};
  for (const auto& layout : layouts)
    for (const auto& model : models)
      for (const std::uint32_t element : {1U, 2U, 4U})
        for (const std::uint32_t tokens : {16U, 32U, 64U}) {
          const kv_geometry g{3, model.parts, model.heads, model.head_size, element, tokens};
          out.push_back({std::string(layout.name) + ", " + std::to_string(model.heads) + " heads of " +
                             std::to_string(model.head_size) + " x " + std::to_string(element) + " bytes, " +
                             std::to_string(tokens) + " tokens",
                         g, layout.order, layout.gap});
        }
  const kv_geometry llama{4, 2, 8, 128, 2, 16};
  out.push_back({"cross-layer", llama, {c::block, c::part, c::token, c::head}, 0, true});
  out.push_back({"cross-layer, head-major", llama, {c::block, c::part, c::head, c::token}, 0, true});
  out.push_back({"pages of 4 blocks", {4, 2, 8, 128, 2, 64}, {c::part, c::block, c::token, c::head}, 0, false, 4});
  out.push_back(
      {"pages of 8 blocks, head-major", {2, 2, 4, 64, 2, 64}, {c::block, c::part, c::head, c::token}, 0, false, 8});
  out.push_back(
      {"pages of 16 tokens, each a block", {2, 2, 4, 64, 2, 16}, {c::part, c::block, c::token, c::head}, 0, false, 16});
  out.push_back({"pages of 4 odd blocks", {2, 2, 3, 10, 2, 12}, {c::part, c::block, c::token, c::head}, 0, false, 4});
  auto mixed = llama;
  mixed.further = {{2, {1, 1, 576, 2}}, {1, {1, 1, 128, 1}}};
  out.push_back({"layers of three shapes", mixed, {c::block, c::part, c::token, c::head}});
  mixed.further.push_back({2, {1, 1, 132, 1}});
  out.push_back({"layers of four shapes, one of 132 bytes", mixed, {c::block, c::part, c::token, c::head}});
  out.push_back({"pages of no whole words", {3, 1, 1, 7, 1, 3}, {c::block, c::part, c::token, c::head}});
  for (const std::uint64_t shift : {1U, 2U, 4U, 8U})
    out.push_back({"tensors shifted by " + std::to_string(shift),
                   llama,
                   {c::part, c::block, c::token, c::head},
                   0,
                   false,
                   1,
                   shift});
  return out;
}

std::unique_ptr<page_mover> gpu_mover(const gpu_cache& cache, cuda_mover_options options = {}) {
  auto mover = make_cuda_page_mover(cache.device_view(), options);
  INFO((mover ? std::string() : to_string(mover.error())));
  REQUIRE(mover.has_value());
  return std::move(*mover);
}

std::unique_ptr<page_mover> host_mover(const gpu_cache& cache) {
  return make_host_page_mover(cache.host_view()).value();
}

} // namespace

TEST_CASE("gpu: gather and scatter match the host mover bit for bit in every layout", "[gpu]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(20261121);
  std::size_t count = 0;
  for (const auto& shape : shapes()) {
    INFO(shape.name);
    gpu_cache cache(shape, 40);
    cache.fill(random);
    // Small parts, so that a list is more than two of them; and without direct gathers every other time.
    const auto mover = gpu_mover(
        cache, {.part_bytes = 3 * cache.page_bytes(), .direct_bytes = count++ % 2 == 0 ? 0 : std::uint64_t{1} << 40U});
    const auto host = host_mover(cache);
    const auto most = 40 / shape.blocks_per_page;
    const auto blocks = random_pages(cache.device_view(), 1 + random() % most, true, random);
    // Pages with headers in front of them, as in page buffers.
    const auto distance = (cache.page_bytes() + 2 * 4096 - 1) / 4096 * 4096;
    const page_memory pages(cache.page_bytes(), blocks.size(), distance);
    const page_memory expected(cache.page_bytes(), blocks.size(), distance);
    must(mover->prepare(pages.all()));
    auto moves = moves_of(blocks, pages, cache.page_bytes());
    auto model = moves_of(blocks, expected, cache.page_bytes());
    must(mover->gather(moves));
    must(host->gather(model));
    REQUIRE(pages == expected);
    for (std::size_t i = 0; i < moves.size(); ++i)
      REQUIRE(moves[i].checksum == model[i].checksum);
    REQUIRE(cache.equal());

    cache.poison_all();
    must(mover->scatter(moves));
    must(host->scatter(model));
    REQUIRE(cache.equal());
    for (const auto& move : moves)
      REQUIRE(move.verdict == errc::ok);
    REQUIRE(pages == expected);
    mover->forget(pages.all());
  }
}

TEST_CASE("gpu: only the corrupt page fails and its block is not written", "[gpu]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(3);
  for (const std::uint32_t head_size : {128U, 10U}) {
    const cache_shape shape{"", {3, 2, 4, head_size, 2, 16}};
    gpu_cache cache(shape, 32);
    cache.fill(random);
    const auto mover = gpu_mover(cache);
    const auto host = host_mover(cache);
    const auto blocks = random_pages(cache.device_view(), 20, false, random);
    const page_memory pages(cache.page_bytes(), blocks.size());
    auto moves = moves_of(blocks, pages, cache.page_bytes());
    must(mover->gather(moves));
    cache.poison_all();
    for (const std::size_t bad : {std::size_t{0}, std::size_t{7}, std::size_t{19}})
      moves[bad].page[random() % cache.page_bytes()] ^= std::byte{1};
    // Its page is not verified, so it is written as it is.
    moves[4].page[5] ^= std::byte{1};
    moves[4].checksum.reset();
    auto model = moves;
    must(mover->scatter(moves));
    must(host->scatter(model));
    for (std::size_t i = 0; i < moves.size(); ++i) {
      CHECK(moves[i].verdict == model[i].verdict);
      CHECK((moves[i].verdict == errc::corrupt) == (i == 0 || i == 7 || i == 19));
    }
    CHECK(cache.equal());
  }
}

TEST_CASE("gpu: each kind of kernel moves the pages of a small cache", "[gpu][small]") {
  TROUPE_NEEDS_GPU();
  // A small size for checkers that make every access a hundred times slower.
  std::mt19937_64 random(8);
  for (const std::uint32_t head_size : {64U, 20U, 10U, 5U}) {
    INFO(head_size);
    const cache_shape shape{"", {2, 2, 2, head_size, 1, 16}};
    gpu_cache cache(shape, 12);
    cache.fill(random);
    const auto mover = gpu_mover(cache, {.part_bytes = 4 * cache.page_bytes()});
    const auto blocks = random_pages(cache.device_view(), 12, true, random);
    const page_memory pages(cache.page_bytes(), blocks.size());
    const page_memory expected(cache.page_bytes(), blocks.size());
    auto moves = moves_of(blocks, pages, cache.page_bytes());
    auto model = moves_of(blocks, expected, cache.page_bytes());
    must(mover->gather(moves));
    must(host_mover(cache)->gather(model));
    CHECK(pages == expected);
    cache.poison_all();
    must(mover->scatter(moves));
    must(host_mover(cache)->scatter(model));
    CHECK(cache.equal());
  }
}

TEST_CASE("gpu: an invalid entry in the list is refused before any copy", "[gpu]") {
  TROUPE_NEEDS_GPU();
  const cache_shape shape{"", {2, 2, 2, 64, 2, 16}};
  gpu_cache cache(shape, 8);
  const auto mover = gpu_mover(cache);
  const std::vector<std::vector<std::uint32_t>> blocks{{0}, {1}, {2}};
  const page_memory pages(cache.page_bytes(), 3);
  const page_memory before(cache.page_bytes(), 3);
  for (std::size_t at = 0; at < 3; ++at) {
    auto moves = moves_of(blocks, pages, cache.page_bytes());
    moves[at].block = 8;
    CHECK(mover->gather(moves).error().code == errc::out_of_range);
    CHECK(mover->scatter(moves).error().code == errc::out_of_range);
    moves[at].block = 0;
    moves[at].page_bytes += 1;
    CHECK(mover->scatter(moves).error().code == errc::invalid_argument);
  }
  CHECK(mover->gather({}).has_value());
  CHECK(mover->scatter({}).has_value());
  CHECK(pages == before);
  CHECK(cache.equal());
}

TEST_CASE("gpu: a mover for tensors outside of GPU memory is refused", "[gpu]") {
  TROUPE_NEEDS_GPU();
  gpu_cache cache({"", {2, 2, 2, 64, 2, 16}}, 8);
  CHECK(make_cuda_page_mover(cache.host_view()).error().code == errc::invalid_argument);
  CHECK(make_cuda_page_mover(cache.device_view(), {.device = 4711}).error().code == errc::unsupported);
  auto view = cache.device_view();
  view.layers[1].bytes -= 1;
  CHECK(make_cuda_page_mover(view).error().code == errc::out_of_range);
}

TEST_CASE("gpu: concurrent calls in both directions do not interfere", "[gpu]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(5);
  gpu_cache cache({"", {8, 2, 8, 128, 2, 16}}, 64);
  cache.fill(random);
  const auto mover = gpu_mover(cache);
  // Each thread has blocks of its own, gathers them and scatters them back again.
  const auto blocks = random_pages(cache.device_view(), 64, false, random);
  const page_memory pages(cache.page_bytes(), 64);
  must(mover->prepare(pages.all()));
  auto moves = moves_of(blocks, pages, cache.page_bytes());
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (std::size_t t = 0; t < 8; ++t)
    threads.emplace_back([&, own = std::span(moves).subspan(t * 8, 8)] {
      for (int round = 0; round < 20; ++round)
        if (!mover->gather(own) || !mover->scatter(own))
          ++failures;
    });
  for (auto& x : threads)
    x.join();
  CHECK(failures == 0);
  for (const auto& move : moves)
    CHECK(move.verdict == errc::ok);
  CHECK(cache.equal());
}

TEST_CASE("gpu: offsets beyond 4 GiB inside one layer are exact", "[gpu]") {
  TROUPE_NEEDS_GPU();
  // 6 GiB in one layer; two blocks at its ends are looked at.
  const kv_geometry g{1, 2, 8, 128, 2, 16};
  constexpr std::uint32_t blocks = 100'000;
  const auto size = all_layer_bytes(g, blocks).value().front();
  REQUIRE(size > (std::uint64_t{6} << 30U));
  auto memory = cuda::allocate_device<std::byte>(size);
  REQUIRE(memory.has_value());
  const std::span<std::byte> tensor(memory->get(), size);
  std::mt19937_64 random(1);
  for (const auto layout : {kv_layout::split, kv_layout::head_major}) {
    auto mover = make_cuda_page_mover(make_kv_cache_view(layout, g, blocks, {&tensor, 1}).value());
    REQUIRE(mover.has_value());
    auto page = random_bytes(g.page_bytes(), random);
    bytes back(page.size());
    block_move in{blocks - 1, page.data(), page.size()};
    block_move out{blocks - 1, back.data(), back.size()};
    must((*mover)->scatter({&in, 1}));
    must((*mover)->gather({&out, 1}));
    CHECK(back == page);
    // The last head of the last token of V ends both tensor and page in these layouts.
    bytes last(256);
    must(cudaMemcpy(last.data(), memory->get() + size - 256, 256, cudaMemcpyDeviceToHost));
    CHECK(std::equal(page.end() - 256, page.end(), last.begin()));
  }
}

TEST_CASE("gpu: the engine's event is waited for", "[gpu]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(9);
  gpu_cache cache({"", {4, 2, 8, 128, 2, 16}}, 16);
  cache.fill(random);
  const auto mover = gpu_mover(cache);
  const auto blocks = random_pages(cache.device_view(), 4, false, random);
  const page_memory pages(cache.page_bytes(), 4);
  auto moves = moves_of(blocks, pages, cache.page_bytes());
  auto engine = cuda::make_stream(cuda::priority::low).value();
  auto ready = cuda::make_event(cuda::awaited_by::threads).value();
  // The engine's stream is delayed, and only then writes the blocks to be gathered.
  must(cudaLaunchHostFunc(
      engine.get(), [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }, nullptr));
  for (const auto& layer : cache.device_view().layers)
    must(cudaMemsetAsync(layer.base, 0x42, layer.bytes, engine.get()));
  must(cudaEventRecord(ready.get(), engine.get()));
  must(mover->gather(moves, {ready.get()}));
  for (const auto& move : moves)
    CHECK(std::all_of(move.page, move.page + move.page_bytes, [](std::byte b) { return b == std::byte{0x42}; }));
}

TEST_CASE("gpu: memory registration and copies work while an engine captures a graph", "[gpu]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(10);
  gpu_cache cache({"", {4, 2, 8, 128, 2, 16}}, 16);
  cache.fill(random);
  const auto blocks = random_pages(cache.device_view(), 4, false, random);
  const page_memory pages(cache.page_bytes(), 4);
  auto moves = moves_of(blocks, pages, cache.page_bytes());
  auto own = cuda::allocate_device<std::byte>(4096).value();
  auto engine = cuda::make_stream(cuda::priority::low).value();
  must(cudaStreamBeginCapture(engine.get(), cudaStreamCaptureModeGlobal));
  must(cudaMemsetAsync(own.get(), 0x17, 4096, engine.get()));
  std::thread lane([&] {
    const auto mover = gpu_mover(cache);
    must(mover->prepare(pages.all()));
    must(mover->gather(moves));
    must(mover->scatter(moves));
    mover->forget(pages.all());
  });
  lane.join();
  cudaGraph_t graph = nullptr;
  must(cudaStreamEndCapture(engine.get(), &graph));
  REQUIRE(graph != nullptr);
  must(cudaGraphDestroy(graph));
  CHECK(cache.equal());
}

// In a process of its own: after the fault, the process cannot use the GPU any more.
TEST_CASE("gpu: a GPU fault fails the mover with its text and every later call", "[.fault]") {
  TROUPE_NEEDS_GPU();
  auto cache = std::make_unique<gpu_cache>(cache_shape{"", {8, 2, 8, 128, 2, 16}}, 512);
  const auto mover = gpu_mover(*cache);
  const auto bytes = cache->page_bytes();
  const page_memory pages(bytes, 2);
  auto moves = moves_of({{1}, {2}}, pages, bytes);
  must(mover->gather(moves));
  CHECK_FALSE(mover->failure().has_value());
  // The engine frees its KV cache under the mover.
  cache.reset();
  const auto broken = mover->gather(moves);
  REQUIRE_FALSE(broken.has_value());
  CHECK(broken.error().code == errc::device_error);
  CHECK(broken.error().text.find("cudaError") != std::string::npos);
  REQUIRE(mover->failure().has_value());
  CHECK(mover->failure()->text == broken.error().text);
  CHECK(mover->scatter(moves).error().code == errc::device_error);
}

} // namespace page_mover_test
