#include "tests/gpu/gpu_cache.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

namespace shared_ways_test {

/// Several movers of one process for one device, as an engine has them that attaches once for each pool of its cache.

using namespace troupe;
using namespace troupe::test;
using workload::value_kind;

namespace {

using c = cache_shape;
using std::chrono::steady_clock;

std::uint64_t free_bytes() {
  std::size_t free = 0;
  std::size_t all = 0;
  must(cudaMemGetInfo(&free, &all));
  return free;
}

std::unique_ptr<page_mover> mover_of(const gpu_cache& cache) {
  auto made = make_cuda_page_mover(cache.device_view());
  INFO((made ? std::string() : to_string(made.error())));
  REQUIRE(made.has_value());
  return std::move(*made);
}

/// A cache with a mover, and pages that it is to gather and scatter again.
struct attachment {
  attachment(const cache_shape& shape, std::uint32_t blocks, page_encoding wanted, std::uint64_t seed)
      : random(seed), cache(shape, blocks), pages(cache.page_bytes(), blocks), encoding(wanted) {
    cache.fill(value_kind::normal, random);
    // Threads make attachments, too, so no REQUIRE.
    mover = make_cuda_page_mover(cache.device_view()).value();
    must(mover->prepare(pages.all()));
    names = random_pages(cache.device_view(), blocks, false, random);
  }
  ~attachment() {
    if (mover)
      mover->forget(pages.all());
  }

  /// Whether all pages had the right verdict. Blocks are others' while it runs.
  bool there_and_back() {
    auto moves = moves_of(names, pages, cache.page_bytes());
    for (auto& x : moves)
      x.encoding = encoding;
    bool well = mover->gather(moves).has_value();
    for (auto& x : moves)
      well = well && x.verdict == errc::ok && x.encoding == encoding;
    well = well && mover->scatter(moves).has_value();
    for (const auto& x : moves)
      well = well && x.verdict == errc::ok;
    return well;
  }

  std::mt19937_64 random;
  gpu_cache cache;
  page_memory pages;
  page_encoding encoding;
  std::unique_ptr<page_mover> mover;
  std::vector<std::vector<std::uint32_t>> names;
};

/// Pages of very different sizes: 8 KiB, 64 KiB, 1 MiB, 8 MiB.
std::vector<cache_shape> shapes() {
  return {{"tiny", {1, 2, 1, 128, 2, 16}},
          {"small", {2, 2, 4, 128, 2, 16}},
          {"some layers", {4, 2, 8, 128, 2, 64}},
          {"all layers", {32, 2, 8, 128, 2, 64}}};
}

} // namespace

TEST_CASE("gpu: further movers of a process take no staging memory", "[gpu]") {
  TROUPE_NEEDS_GPU();
  const gpu_cache cache({"", {4, 2, 8, 128, 2, 64}}, 16);
  const auto before = free_bytes();
  auto first = mover_of(cache);
  const auto with_one = free_bytes();
  CHECK(before - with_one > (std::uint64_t{256} << 20U));
  std::vector<std::unique_ptr<page_mover>> others;
  for (int i = 0; i < 7; ++i)
    others.push_back(mover_of(cache));
  CHECK(with_one - free_bytes() <= (std::uint64_t{8} << 20U));
  first.reset();
  others.clear();
  CHECK(free_bytes() + (std::uint64_t{8} << 20U) >= before);
}

TEST_CASE("gpu: movers of pages of all sizes and encodings share staging memory, one after the other", "[gpu]") {
  TROUPE_NEEDS_GPU();
  std::vector<std::unique_ptr<attachment>> all;
  for (const auto& shape : shapes())
    for (const auto encoding : {page_encoding::bf16, page_encoding::raw})
      all.push_back(std::make_unique<attachment>(shape, 8, encoding, all.size()));
  // What one leaves in the memory must not be read by the next one.
  for (int round = 0; round < 3; ++round)
    for (const auto& each : all) {
      INFO(each->cache.page_bytes());
      CHECK(each->there_and_back());
    }
  for (const auto& each : all)
    CHECK(each->cache.equal());
}

TEST_CASE("gpu: movers that come and end do not disturb calls of the others", "[gpu]") {
  TROUPE_NEEDS_GPU();
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      const auto until = steady_clock::now() + std::chrono::seconds(3);
      const auto encoding = t % 2 == 0 ? page_encoding::bf16 : page_encoding::raw;
      for (std::uint64_t seed = t; steady_clock::now() < until; seed += 8) {
        attachment own(shapes()[seed % shapes().size()], 6, encoding, seed);
        for (int i = 0; i < 5; ++i)
          if (!own.there_and_back())
            ++failures;
        if (!own.cache.equal())
          ++failures;
      }
    });
  // Pages that need more staging memory than the others, again and again.
  threads.emplace_back([&] {
    for (int i = 0; i < 3; ++i) {
      attachment own({"large", {80, 2, 8, 128, 2, 128}}, 1, page_encoding::bf16, 99);
      if (!own.there_and_back() || !own.cache.equal())
        ++failures;
    }
  });
  for (auto& x : threads)
    x.join();
  CHECK(failures == 0);
}

TEST_CASE("gpu: staging memory that a later mover brings is enough for the pages of an earlier one", "[gpu]") {
  TROUPE_NEEDS_GPU();
  // Movers with one call at a time have one piece of it, and two together; pages of 20 MiB, in parts of one page.
  const cache_shape large{"", {40, 2, 8, 128, 2, 128}};
  std::mt19937_64 random(7);
  gpu_cache cache(large, 4);
  cache.fill(random);
  const auto bytes = cache.page_bytes();
  auto first = make_cuda_page_mover(cache.device_view(), {.calls_at_once = 1, .part_bytes = 1 << 20}).value();
  const gpu_cache small({"", {1, 2, 1, 128, 2, 16}}, 4);
  const auto second = make_cuda_page_mover(small.device_view(), {.calls_at_once = 1, .part_bytes = 1 << 20}).value();
  const page_memory pages(bytes, 4);
  must(first->prepare(pages.all()));
  auto moves = moves_of({{0}, {1}, {2}, {3}}, pages, bytes);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i)
        if (!first->gather(std::span(moves).subspan(t, 1)) || !first->scatter(std::span(moves).subspan(t, 1)))
          ++failures;
    });
  for (auto& x : threads)
    x.join();
  CHECK(failures == 0);
  CHECK(cache.equal());
  first->forget(pages.all());
}

TEST_CASE("gpu: calls that wait for an engine keep no staging memory from others", "[gpu]") {
  TROUPE_NEEDS_GPU();
  attachment waits({"", {4, 2, 8, 128, 2, 16}}, 32, page_encoding::raw, 1);
  attachment other({"", {4, 2, 8, 128, 2, 16}}, 32, page_encoding::raw, 2);
  auto engine = cuda::make_stream(cuda::priority::low).value();
  auto ready = cuda::make_event(cuda::awaited_by::threads).value();
  std::promise<void> go;
  auto gate = go.get_future();
  must(cudaLaunchHostFunc(
      engine.get(), [](void* x) { static_cast<std::future<void>*>(x)->wait_for(std::chrono::seconds(20)); }, &gate));
  must(cudaEventRecord(ready.get(), engine.get()));
  std::atomic<int> ended{0};
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      auto moves = moves_of(waits.names, waits.pages, waits.cache.page_bytes());
      if (!waits.mover->gather(std::span(moves).subspan(t * 8, 8), {ready.get()}))
        ++failures;
      ++ended;
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto began = steady_clock::now();
  CHECK(other.there_and_back());
  CHECK(steady_clock::now() - began < std::chrono::seconds(5));
  CHECK(ended == 0);
  go.set_value();
  for (auto& x : threads)
    x.join();
  CHECK(failures == 0);
  CHECK(waits.cache.equal());
  CHECK(other.cache.equal());
}

TEST_CASE("gpu: a mover for which memory is short is refused, and the others go on", "[gpu]") {
  TROUPE_NEEDS_GPU();
  attachment small({"", {4, 2, 8, 128, 2, 16}}, 32, page_encoding::bf16, 3);
  // Its parts would take more than the GPU has.
  const auto made = make_cuda_page_mover(small.cache.device_view(), {.part_bytes = std::uint64_t{1} << 40U});
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code == errc::limit_exceeded);
  CHECK(small.there_and_back());
  CHECK(small.cache.equal());
}

} // namespace shared_ways_test
