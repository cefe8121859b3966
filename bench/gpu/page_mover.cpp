// The speed of moving pages between a GPU and the host compared to PCIe bandwidth: the page mover, the plain copy of
// locked memory, and the naive way, a copy for every piece.

#include "bench/gpu/measured.hpp"
#include "gpu/cuda/cuda_handles.hpp"
#include "gpu/cuda/page_kernels.hpp"
#include "gpu/cuda/resident_plan.hpp"
#include "gpu/cuda_page_mover.hpp"
#include "gpu/plain_copy.hpp"
#include "io/memory/arena.hpp"
#include "io/memory/arena_pool.hpp"
#include "io/page.hpp"
#include "workload/replay/text_table.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::bench;
using namespace troupe::replay;

constexpr int rounds = 15;

/// The median of some rounds, in seconds; the first is not counted.
double seconds_of(const std::function<void()>& work) {
  std::vector<double> all;
  work();
  for (int i = 0; i < rounds; ++i)
    all.push_back(seconds_once(work));
  return middle(std::move(all));
}

double gigabytes(std::uint64_t bytes, double seconds) {
  return static_cast<double>(bytes) / 1e9 / seconds;
}

struct subject {
  const char* name;
  kv_geometry geometry;
  kv_layout layout;
  std::uint32_t pages;
  /// Contiguous bytes of a block in the KV cache.
  std::uint64_t piece;
};

const std::vector<subject>& subjects() {
  static const std::vector<subject> all{
      {"64 x 32 KiB, token-major", {32, 2, 8, 128, 2, 16}, kv_layout::split, 256, 32768},
      {"64 x 32 KiB, head-major", {32, 2, 8, 128, 2, 16}, kv_layout::head_major, 256, 32768},
      {"64 x 4 KiB (1 head)", {32, 2, 1, 128, 2, 16}, kv_layout::split, 256, 4096},
      {"61 x 18 KiB (MLA)", {61, 1, 1, 576, 2, 16}, kv_layout::mla, 256, 18432},
      {"160 x 8 KiB, token-major", {80, 2, 2, 128, 2, 16}, kv_layout::split, 256, 8192},
      {"160 x 8 KiB, head-major", {80, 2, 2, 128, 2, 16}, kv_layout::head_major, 256, 8192},
      {"64 x 32 KiB, packed", {32, 2, 8, 128, 2, 16}, kv_layout::packed, 256, 65536},
  };
  return all;
}

/// A KV cache on the GPU, and pages in locked memory, with headers between them as in page buffers.
struct world {
  /// `headers`: pages are in page buffers, with room for headers between them; otherwise they are contiguous.
  explicit world(const subject& s, bool headers = true, const cuda_mover_options& options = {}, std::uint32_t spare = 2)
      : page(s.geometry.page_bytes()), slot(headers ? io::slot_bytes(page) : page), blocks(s.pages * spare) {
    std::vector<std::span<std::byte>> spans;
    for (const auto size : must(all_layer_bytes(s.geometry, blocks))) {
      tensors.push_back(must(cuda::allocate_device<std::byte>(size)));
      spans.emplace_back(tensors.back().get(), size);
    }
    view = must(make_kv_cache_view(s.layout, s.geometry, blocks, spans));
    mover = must(make_cuda_page_mover(view, options));
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(4096, slot * s.pages)));
    std::fill_n(memory.get(), slot * s.pages, std::byte{1});
    must(mover->prepare({memory.get(), slot * s.pages}));
    std::vector<std::uint32_t> order(blocks);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    for (std::uint32_t i = 0; i < s.pages; ++i) {
      auto& move = moves.emplace_back();
      move.block = order[i];
      move.page = memory.get() + i * slot + (slot - page);
      move.page_bytes = page;
      move.spare_before = slot - page;
    }
  }

  struct release {
    void operator()(std::byte* p) const noexcept { std::free(p); }
  };

  std::uint64_t page;
  std::uint64_t slot;
  std::uint32_t blocks;
  std::vector<cuda::device_memory<std::byte>> tensors;
  kv_cache_view view;
  std::unique_ptr<std::byte, release> memory;
  std::unique_ptr<page_mover> mover;
  std::vector<block_move> moves;
};

/// One plain copy of locked memory, of as many bytes as the pages have.
class plain_copy {
public:
  plain_copy(std::uint64_t bytes, cudaMemcpyKind kind)
      : bytes_(bytes), kind_(kind), host_(must(cuda::allocate_pinned<std::byte>(bytes))),
        device_(must(cuda::allocate_device<std::byte>(bytes))), stream_(must(cuda::make_stream(cuda::priority::high))) {
  }

  void operator()() const {
    const bool to_host = kind_ == cudaMemcpyDeviceToHost;
    must(cudaMemcpyAsync(to_host ? host_.get() : device_.get(), to_host ? device_.get() : host_.get(), bytes_, kind_,
                         stream_.get()));
    must(cudaStreamSynchronize(stream_.get()));
  }

private:
  std::uint64_t bytes_;
  cudaMemcpyKind kind_;
  cuda::pinned_memory<std::byte> host_;
  cuda::device_memory<std::byte> device_;
  cuda::stream stream_;
};

/// A transfer and the plain copy of as many bytes, one after the other in each round, since the PCIe bandwidth of a
/// shared machine varies. The result has the medians of both, and of the rounds' ratios.
struct beside_copy {
  double seconds = 0;
  double copy_seconds = 0;
  double ratio = 0;
};

beside_copy measure_beside(const plain_copy& copy, const std::function<void()>& work) {
  std::vector<double> ours;
  std::vector<double> copies;
  std::vector<double> ratios;
  copy();
  work();
  for (int i = 0; i < 2 * rounds; ++i) {
    copies.push_back(seconds_once([&] { copy(); }));
    ours.push_back(seconds_once(work));
    ratios.push_back(copies.back() / ours.back());
  }
  return {middle(ours), middle(copies), middle(ratios)};
}

/// The naive way.
double copy_per_piece(world& w, std::uint64_t piece) {
  auto stream = must(cuda::make_stream(cuda::priority::high));
  const auto pages = std::min<std::size_t>(w.moves.size(), 32);
  return gigabytes(pages * w.page, seconds_of([&] {
                     for (std::size_t i = 0; i < pages; ++i)
                       for (std::uint64_t at = 0; at < w.page; at += piece)
                         must(cudaMemcpyAsync(w.moves[i].page + at,
                                              w.view.layers[at / piece % w.view.layers.size()].base +
                                                  w.moves[i].block * w.view.layers[0].block_stride,
                                              piece, cudaMemcpyDeviceToHost, stream.get()));
                     must(cudaStreamSynchronize(stream.get()));
                   }));
}

std::string with_ratio(double value, double ratio) {
  return fmt::format("{:.1f} ({:.3f})", value, ratio);
}

void bench_bus() {
  std::vector<std::pair<subject, bool>> cases;
  for (const bool headers : {false, true})
    for (const auto& s : subjects())
      cases.emplace_back(s, headers);
  text_table table({"pages over the bus, GB/s", "headers", "all bytes", "copy to host", "gather", "copy to device",
                    "scatter", "a copy per piece"});
  for (const auto& [s, headers] : cases) {
    world w(s, headers);
    const auto bytes = w.page * s.pages;
    const auto gather =
        measure_beside(plain_copy(bytes, cudaMemcpyDeviceToHost), [&] { must(w.mover->gather(w.moves)); });
    const auto scatter =
        measure_beside(plain_copy(bytes, cudaMemcpyHostToDevice), [&] { must(w.mover->scatter(w.moves)); });
    for (const auto& move : w.moves)
      if (move.verdict != errc::ok) {
        std::printf("a page does not have the checksum it was gathered with; the numbers are not valid\n");
        std::exit(1);
      }
    const auto pace = [&](double seconds) { return gigabytes(bytes, seconds); };
    table.row({s.name, headers ? "between" : "none", human_bytes(bytes),
               fmt::format("{:.1f}", pace(gather.copy_seconds)), with_ratio(pace(gather.seconds), gather.ratio),
               fmt::format("{:.1f}", pace(scatter.copy_seconds)), with_ratio(pace(scatter.seconds), scatter.ratio),
               fmt::format("{:.1f}", copy_per_piece(w, s.piece))});
  }
  std::printf("%s\n", table.str().c_str());
}

/// Measures the kernels alone, from device memory to device memory.
void bench_device() {
  text_table table({"in device memory, GB/s read and written", "copy", "gather", "check and scatter"});
  for (const auto& s : subjects()) {
    auto large = s;
    large.pages = static_cast<std::uint32_t>((std::uint64_t{2} << 30U) / s.geometry.page_bytes());
    world w(large, true, {}, 1);
    const auto plan = must(cuda::resident_plan::create(must(cuda::make_page_plan(w.view))));
    const auto bytes = w.page * large.pages;
    auto pages = must(cuda::allocate_device<std::byte>(bytes));
    auto copy = must(cuda::allocate_device<std::byte>(bytes));
    // Two streams in turn, as in the mover: the end of one launch overlaps with the beginning of the next.
    struct half {
      cuda::device_memory<cuda::page_progress> progress =
          must(cuda::allocate_device<cuda::page_progress>(cuda::launch::most_pages));
      cuda::device_memory<std::uint32_t> verdicts =
          must(cuda::allocate_device<std::uint32_t>(cuda::launch::most_pages));
      cuda::pinned_memory<io::page_checksum> sums =
          must(cuda::allocate_pinned<io::page_checksum>(cuda::launch::most_pages));
      cuda::stream stream = must(cuda::make_stream(cuda::priority::high));
    };
    std::array<half, 2> halves;
    auto& stream = halves[0].stream;
    const auto all = [&](bool gather) {
      std::size_t turn = 0;
      for (std::uint32_t first = 0; first < large.pages; first += cuda::launch::most_pages) {
        auto& with = halves[turn++ % halves.size()];
        cuda::launch what;
        what.plan = plan.view();
        what.progress = with.progress.get();
        what.verdicts = with.verdicts.get();
        what.sums = with.sums.get();
        what.pages = std::min<std::uint32_t>(cuda::launch::most_pages, large.pages - first);
        std::vector<cuda::page_job> jobs(what.pages);
        std::vector<std::uint32_t> blocks;
        for (std::uint32_t i = 0; i < what.pages; ++i) {
          jobs[i].page = pages.get() + (first + i) * w.page;
          jobs[i].checked = 1;
          blocks.push_back(w.moves[first + i].block);
        }
        what.jobs = jobs.data();
        what.blocks = blocks.data();
        if (gather) {
          must(cuda::launch_gather(what, with.stream.get()));
        } else {
          must(cuda::launch_check(what, with.stream.get()));
          // The sums are not those of the pages, so the verdicts are cleared to scatter them all the same.
          must(cudaMemsetAsync(with.verdicts.get(), 0, sizeof(std::uint32_t) * what.pages, with.stream.get()));
          must(cuda::launch_scatter(what, with.stream.get()));
        }
      }
      for (auto& x : halves)
        must(cudaStreamSynchronize(x.stream.get()));
    };
    const auto plain =
        gigabytes(2 * bytes, seconds_of([&] {
                    must(cudaMemcpyAsync(copy.get(), pages.get(), bytes, cudaMemcpyDeviceToDevice, stream.get()));
                    must(cudaStreamSynchronize(stream.get()));
                  }));
    const auto gather = gigabytes(2 * bytes, seconds_of([&] { all(true); }));
    const auto scatter = gigabytes(2 * bytes, seconds_of([&] { all(false); }));
    table.row({s.name, fmt::format("{:.0f}", plain), with_ratio(gather, gather / plain),
               with_ratio(scatter, scatter / plain)});
  }
  std::printf("%s\n", table.str().c_str());
}

/// Measures few pages, compared to their time at PCIe bandwidth plus one launch.
void bench_latency() {
  constexpr auto launch_us = 5.0;
  const auto& s = subjects().front();
  world direct(s, true, {.direct_bytes = std::uint64_t{1} << 40U});
  world staged(s, true, {.direct_bytes = 0});
  world usual(s);
  constexpr auto large = std::uint64_t{512} << 20U;
  const plain_copy copy(large, cudaMemcpyDeviceToHost);
  const auto bus = gigabytes(large, seconds_of([&] { copy(); }));
  text_table table({"few pages of 2 MiB, us", "ideal", "gather", "straight", "staged", "scatter"});
  for (const std::size_t count : {1U, 2U, 4U, 8U, 16U, 32U}) {
    const auto us = [&](world& w, bool gather) {
      const auto moves = std::span(w.moves).first(count);
      return 1e6 * seconds_of([&] { must(gather ? w.mover->gather(moves) : w.mover->scatter(moves)); });
    };
    const auto ideal = static_cast<double>(count * usual.page) / bus / 1e3 + launch_us;
    const auto cell = [&](double x) { return fmt::format("{:.0f} ({:.2f})", x, ideal / x); };
    const auto gather = us(usual, true);
    table.row({fmt::format("{}", count), fmt::format("{:.0f}", ideal), cell(gather), cell(us(direct, true)),
               cell(us(staged, true)), cell(us(usual, false))});
  }
  std::printf("%s\n", table.str().c_str());
}

/// Measures by the number of pages that are in staging memory at once.
void bench_parts() {
  text_table table({"part", "gather, GB/s", "scatter, GB/s"});
  const auto& s = subjects().front();
  for (const std::uint64_t mib : {4U, 8U, 16U, 32U, 64U}) {
    world w(s, true, {.part_bytes = mib << 20U});
    const auto bytes = w.page * s.pages;
    const auto gather = gigabytes(bytes, seconds_of([&] { must(w.mover->gather(w.moves)); }));
    const auto scatter = gigabytes(bytes, seconds_of([&] { must(w.mover->scatter(w.moves)); }));
    table.row({fmt::format("{} MiB", mib), fmt::format("{:.1f}", gather), fmt::format("{:.1f}", scatter)});
  }
  std::printf("%s\n", table.str().c_str());
}

/// Pages as in a node: in extents of the arena, each registered with the device separately.
struct arena_world {
  arena_world(const kv_geometry& geometry, std::uint32_t pages, std::uint32_t blocks)
      : page(geometry.page_bytes()), slot(io::slot_bytes(page)) {
    std::vector<std::span<std::byte>> spans;
    for (const auto size : must(all_layer_bytes(geometry, blocks))) {
      tensors.push_back(must(cuda::allocate_device<std::byte>(size)));
      spans.emplace_back(tensors.back().get(), size);
    }
    mover = must(make_cuda_page_mover(must(make_kv_cache_view(kv_layout::split, geometry, blocks, spans))));
    const auto each = io::extent_bytes_max / slot;
    const auto extents = static_cast<std::uint32_t>((pages + each - 1) / each);
    memory = must(io::arena::create({extents * io::extent_bytes_max, io::extent_bytes_max}));
    for (std::uint32_t n = 0; n < extents; ++n) {
      must(memory->provide(n));
      must(mover->prepare(memory->bytes().subspan(n * io::extent_bytes_max, io::extent_bytes_max)));
    }
    std::vector<std::uint32_t> order(blocks);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    for (std::uint32_t i = 0; i < pages; ++i) {
      const bool first = i % each == 0;
      auto& move = moves.emplace_back();
      move.block = order[i];
      move.page = memory->bytes().data() + i / each * io::extent_bytes_max + i % each * slot + io::page_header_bytes;
      move.page_bytes = page;
      move.spare_before = first ? 0 : io::page_header_bytes;
      move.spare_behind = slot - io::page_header_bytes - page;
    }
  }

  std::uint64_t page;
  std::uint64_t slot;
  std::vector<cuda::device_memory<std::byte>> tensors;
  std::shared_ptr<io::arena> memory;
  std::unique_ptr<page_mover> mover;
  std::vector<block_move> moves;
};

/// Bytes per second of gathering and scattering threads, each with its own pages, one list after the other.
double pace_of_threads(arena_world& w, std::size_t gathering, std::size_t scattering, std::size_t list) {
  constexpr auto lasts = std::chrono::milliseconds(700);
  const auto own = w.moves.size() / (gathering + scattering) / list * list;
  std::atomic<std::uint64_t> moved{0};
  const auto end = std::chrono::steady_clock::now() + lasts;
  const auto seconds = seconds_once([&] {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < gathering + scattering; ++i)
      threads.emplace_back([&, i] {
        const auto mine = std::span(w.moves).subspan(i * own, own);
        for (std::size_t at = 0; std::chrono::steady_clock::now() < end; at = (at + list) % own) {
          const auto moves = mine.subspan(at, list);
          must(i < gathering ? w.mover->gather(moves) : w.mover->scatter(moves));
          moved += list * w.page;
        }
      });
  });
  return gigabytes(moved, seconds);
}

/// Measures concurrent calls, as the lanes of a copy engine make them: each direction alone and both at once.
void bench_together() {
  text_table table(
      {"side by side, GB/s", "pages", "a gather", "2 gathers", "a scatter", "2 scatters", "one of each", "2 of each"});
  const auto plain = must(measure_plain_copy(0));
  const auto cell = [](double x, double copy) { return with_ratio(x, x / copy); };
  for (const auto& [name, geometry, lists] :
       {std::tuple{"2 MiB", kv_geometry{32, 2, 8, 128, 2, 16}, std::vector<std::size_t>{32, 128}},
        std::tuple{"256 KiB", kv_geometry{32, 2, 1, 128, 2, 16}, std::vector<std::size_t>{32, 256}},
        std::tuple{"64 KiB", kv_geometry{32, 2, 1, 128, 2, 4}, std::vector<std::size_t>{64, 256}},
        std::tuple{"16 KiB", kv_geometry{32, 2, 1, 128, 2, 1}, std::vector<std::size_t>{256}}})
    for (const auto list : lists) {
      arena_world w(geometry, 1024, 2048);
      must(w.mover->gather(w.moves)); // the checksums that scatters expect
      table.row({name, fmt::format("{} at a time", list), cell(pace_of_threads(w, 1, 0, list), plain.to_host),
                 cell(pace_of_threads(w, 2, 0, list), plain.to_host),
                 cell(pace_of_threads(w, 0, 1, list), plain.to_device),
                 cell(pace_of_threads(w, 0, 2, list), plain.to_device),
                 cell(pace_of_threads(w, 1, 1, list), plain.both), cell(pace_of_threads(w, 2, 2, list), plain.both)});
    }
  std::printf("%s\n", table.str().c_str());
}

/// Measures how long the memory of a node takes before it can be used at PCIe bandwidth: the host allocates it and the
/// device locks it, both extent by extent.
void bench_arena() {
  constexpr auto arena_bytes = std::uint64_t{64} << 30U;
  text_table table({"memory of a node, 64 GiB", "from the host", "GB/s", "locked by the GPU", "GB/s"});
  for (const auto choice : {io::huge_page_choice::off, io::huge_page_choice::two_mib}) {
    auto arena = io::arena::create({arena_bytes, io::extent_bytes_max, choice});
    if (!arena) {
      table.row({to_string(arena.error())});
      continue;
    }
    const world w(subjects().front());
    const auto extents = static_cast<std::uint32_t>(arena_bytes / io::extent_bytes_max);
    std::atomic<bool> short_of_memory{false};
    const auto got = seconds_once([&] {
      std::vector<std::jthread> threads;
      std::atomic<std::uint32_t> next{0};
      for (std::uint32_t i = 0; i < io::arena_pool::default_threads(); ++i)
        threads.emplace_back([&] {
          for (auto n = next++; n < extents; n = next++)
            if (!(*arena)->provide(n))
              short_of_memory = true;
        });
    });
    if (short_of_memory) {
      table.row({(*arena)->describe() + ": the host has less"});
      continue;
    }
    const auto extent = [&](std::uint32_t n) {
      return (*arena)->bytes().subspan(n * io::extent_bytes_max, io::extent_bytes_max);
    };
    const auto locked = seconds_once([&] {
      for (std::uint32_t n = 0; n < extents; ++n)
        must(w.mover->prepare(extent(n)));
    });
    for (std::uint32_t n = 0; n < extents; ++n)
      w.mover->forget(extent(n));
    table.row({(*arena)->describe(), fmt::format("{:.1f} s", got), fmt::format("{:.1f}", gigabytes(arena_bytes, got)),
               fmt::format("{:.1f} s", locked), fmt::format("{:.1f}", gigabytes(arena_bytes, locked))});
  }
  std::printf("%s\n", table.str().c_str());
}

} // namespace

int main(int argc, char** argv) {
  const std::vector<std::pair<std::string, void (*)()>> tables{{"bus", bench_bus},           {"device", bench_device},
                                                               {"latency", bench_latency},   {"parts", bench_parts},
                                                               {"together", bench_together}, {"arena", bench_arena}};
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  for (const auto& name : wanted)
    if (std::none_of(tables.begin(), tables.end(), [&](const auto& x) { return x.first == name; })) {
      std::printf("usage: %s [bus] [device] [latency] [parts] [together] [arena]: the tables to print; without a name, "
                  "all that "
                  "take seconds\n",
                  argv[0]);
      return name == "--help" ? 0 : 2;
    }
  const auto devices = cuda_devices();
  if (!devices) {
    std::printf("no GPU: %s\n", to_string(devices.error()).c_str());
    return 0;
  }
  std::printf("%s\n\n", devices->front().name.c_str());
  for (const auto& [name, run] : tables)
    if ((wanted.empty() && run != bench_arena) || std::find(wanted.begin(), wanted.end(), name) != wanted.end())
      run();
}
