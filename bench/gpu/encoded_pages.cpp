// Moving encoded pages between a GPU and the host, compared with the same pages as they are and with the plain copy of
// locked memory. All rates are of the pages' payloads, so that they can be compared.

#include "bench/gpu/measured.hpp"
#include "gpu/cuda/cuda_handles.hpp"
#include "gpu/cuda_page_mover.hpp"
#include "gpu/kv_tensors.hpp"
#include "io/page.hpp"
#include "workload/kv_values/kv_values.hpp"
#include "workload/replay/text_table.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::bench;
using namespace troupe::replay;
using workload::value_kind;

constexpr int rounds = 15;

/// The medians of things that are measured in turn, in seconds; the first round is not counted.
std::vector<double> seconds_of(const std::vector<std::function<void()>>& work) {
  std::vector<std::vector<double>> all(work.size());
  for (int round = 0; round <= rounds; ++round)
    for (std::size_t i = 0; i < work.size(); ++i) {
      const auto took = seconds_once(work[i]);
      if (round > 0)
        all[i].push_back(took);
    }
  std::vector<double> out;
  out.reserve(all.size());
  for (auto& x : all)
    out.push_back(middle(std::move(x)));
  return out;
}

/// A KV cache on the GPU with values of a kind, and frames in locked memory.
struct world {
  world(const kv_geometry& geometry, std::uint32_t pages, value_kind kind)
      : page(geometry.page_bytes()), slot(io::slot_bytes(page)), count(pages) {
    const auto blocks = 2 * pages;
    std::mt19937_64 random(1);
    // A few MiB of values, again and again: making them takes longer than everything else.
    const auto values = workload::make_values(kind, std::size_t{4} << 20U, random);
    std::vector<std::span<std::byte>> spans;
    for (const auto size : must(all_layer_bytes(geometry, blocks))) {
      tensors.push_back(must(cuda::allocate_device<std::byte>(size)));
      for (std::uint64_t at = 0; at < size; at += values.size())
        must(cudaMemcpy(tensors.back().get() + at, values.data(), std::min<std::uint64_t>(values.size(), size - at),
                        cudaMemcpyHostToDevice));
      spans.emplace_back(tensors.back().get(), size);
    }
    mover = must(make_cuda_page_mover(must(make_kv_cache_view(kv_layout::split, geometry, blocks, spans))));
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(4096, slot * pages)));
    std::fill_n(memory.get(), slot * pages, std::byte{1});
    must(mover->prepare({memory.get(), slot * pages}));
    plain = must(cuda::allocate_device<std::byte>(slot * pages));
    order.resize(blocks);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), random);
  }

  /// The first blocks of the order for saves, the others for loads.
  std::vector<block_move> moves(page_encoding encoding, bool save) const {
    std::vector<block_move> out;
    for (std::uint32_t i = 0; i < count; ++i) {
      auto& move = out.emplace_back();
      move.block = order[save ? i : count + i];
      move.page = memory.get() + i * slot + io::page_header_bytes;
      move.page_bytes = page;
      move.encoding = encoding;
      move.spare_before = i == 0 ? 0 : io::page_header_bytes;
    }
    return out;
  }

  void copy(cudaMemcpyKind direction) const {
    const auto bytes = page * count;
    if (direction == cudaMemcpyDeviceToHost)
      must(cudaMemcpyAsync(memory.get(), plain.get(), bytes, direction, stream.get()));
    else
      must(cudaMemcpyAsync(plain.get(), memory.get(), bytes, direction, stream.get()));
    must(cudaStreamSynchronize(stream.get()));
  }

  struct release {
    void operator()(std::byte* p) const noexcept { std::free(p); }
  };

  std::uint64_t page;
  std::uint64_t slot;
  std::uint32_t count;
  std::vector<cuda::device_memory<std::byte>> tensors;
  std::unique_ptr<std::byte, release> memory;
  std::unique_ptr<page_mover> mover;
  cuda::device_memory<std::byte> plain;
  cuda::stream stream = must(cuda::make_stream(cuda::priority::high));
  cuda::stream other = must(cuda::make_stream(cuda::priority::high));
  std::vector<std::uint32_t> order;
};

struct row {
  double copy = 0;
  double raw = 0;
  double encoded = 0;
};

void add(text_table& table, const std::string& name, std::uint64_t bytes, const row& x) {
  const auto rate = [&](double seconds) { return fmt::format("{:.1f}", static_cast<double>(bytes) / 1e9 / seconds); };
  table.row({name, rate(x.copy), rate(x.raw), rate(x.encoded), fmt::format("{:.2f}", x.copy / x.raw),
             fmt::format("{:.2f}", x.copy / x.encoded), fmt::format("{:.0f}", x.raw * 1e6),
             fmt::format("{:.0f}", x.encoded * 1e6)});
}

/// Loads in one thread while saves run in another, until both have moved the list some times.
double both_ways(const world& w, page_encoding encoding) {
  constexpr int times = 8;
  auto saves = w.moves(encoding, true);
  must(w.mover->gather(saves));
  auto loads = saves;
  for (std::uint32_t i = 0; i < w.count; ++i)
    loads[i].block = w.order[w.count + i];
  // Frames of loads are those that were saved before; saves write the same bytes into them again.
  return seconds_once([&] {
           std::thread saving([&] {
             for (int i = 0; i < times; ++i)
               must(w.mover->gather(saves));
           });
           auto own = loads;
           for (int i = 0; i < times; ++i) {
             must(w.mover->scatter(own));
             for (const auto& move : own)
               if (move.verdict != errc::ok)
                 must(result<void>(fail(errc::corrupt, "a page was not loaded")));
           }
           saving.join();
         }) /
         times;
}

void measure(text_table& table, const char* pages_name, const kv_geometry& geometry, std::uint32_t pages,
             value_kind kind) {
  const world w(geometry, pages, kind);
  const auto bytes = w.page * pages;
  auto raw = w.moves(page_encoding::raw, true);
  auto encoded = w.moves(page_encoding::bf16, true);
  const auto saves = seconds_of({[&] { w.copy(cudaMemcpyDeviceToHost); }, [&] { must(w.mover->gather(raw)); },
                                 [&] {
                                   for (auto& x : encoded)
                                     x.encoding = page_encoding::bf16;
                                   must(w.mover->gather(encoded));
                                 }});
  const auto name = fmt::format("{} x {}, {}", pages, pages_name, workload::to_string(kind));
  add(table, name + ", save", bytes, {saves[0], saves[1], saves[2]});
  const auto load = [&](page_encoding encoding) {
    auto moves = w.moves(encoding, true);
    must(w.mover->gather(moves));
    for (std::uint32_t i = 0; i < pages; ++i)
      moves[i].block = w.order[pages + i];
    return seconds_of({[&] { w.copy(cudaMemcpyHostToDevice); },
                       [&] { must(w.mover->gather(moves)); }, // the copy has overwritten the frames
                       [&] { must(w.mover->scatter(moves)); }});
  };
  // Two runs, as the frames hold pages of one kind at a time.
  must(w.mover->gather(raw));
  auto loads = raw;
  for (std::uint32_t i = 0; i < pages; ++i)
    loads[i].block = w.order[pages + i];
  const auto plain = seconds_of({[&] { must(w.mover->scatter(loads)); }});
  const auto of_encoded = load(page_encoding::bf16);
  add(table, name + ", load", bytes, {of_encoded[0], plain[0], of_encoded[2]});
  const auto both = seconds_of({[&] {
    const auto half = bytes / 2;
    must(cudaMemcpyAsync(w.plain.get() + half, w.memory.get() + half, half, cudaMemcpyHostToDevice, w.other.get()));
    must(cudaMemcpyAsync(w.memory.get(), w.plain.get(), half, cudaMemcpyDeviceToHost, w.stream.get()));
    must(cudaStreamSynchronize(w.stream.get()));
    must(cudaStreamSynchronize(w.other.get()));
  }});
  add(table, name + ", both", 2 * bytes,
      {both[0] * 2, both_ways(w, page_encoding::raw), both_ways(w, page_encoding::bf16)});
}

} // namespace

int main() {
  if (auto found = cuda_devices(); !found) {
    std::puts(("skipped: " + found.error().text).c_str());
    return 0;
  }
  const kv_geometry large{32, 2, 8, 128, 2, 16}; // 2 MiB
  const kv_geometry small{32, 2, 1, 128, 2, 16}; // 256 KiB
  text_table table(
      {"pages", "copy GB/s", "raw GB/s", "encoded GB/s", "raw of copy", "encoded of copy", "raw us", "encoded us"});
  for (const auto kind : {value_kind::normal, value_kind::spread_2, value_kind::random_bits})
    for (const std::uint32_t pages : {1U, 4U, 16U, 64U, 256U})
      if (kind == value_kind::normal || pages >= 64)
        measure(table, "2 MiB", large, pages, kind);
  for (const std::uint32_t pages : {1U, 16U, 256U, 1024U})
    measure(table, "256 KiB", small, pages, value_kind::normal);
  std::fputs(table.str(0).c_str(), stdout);
  return 0;
}
