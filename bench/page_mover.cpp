// The cost of moving pages through host memory: the page mover compared with memcpy, the page checksum, and the
// replay's own cost of making and comparing bytes.

#include "gpu/host_page_mover.hpp"
#include "io/page.hpp"
#include "workload/replay/device_memory.hpp"
#include "workload/replay/pattern.hpp"
#include "workload/replay/text_table.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::replay;

constexpr std::uint64_t working_set = std::uint64_t{1} << 30;
constexpr int rounds = 5;

/// Memory on huge pages where available, as in the KV cache model: otherwise the ratio to memcpy would show the cost of
/// address translation.
class huge_buffer {
public:
  explicit huge_buffer(std::size_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment))),
        bytes_(bytes) {
    ::madvise(data_.get(), bytes, MADV_HUGEPAGE);
    std::memset(data_.get(), 1, bytes);
  }

  std::byte* data() const noexcept { return data_.get(); }
  std::size_t size() const noexcept { return bytes_; }

private:
  static constexpr std::size_t alignment = std::size_t{2} << 20;
  struct release {
    void operator()(std::byte* p) const noexcept { std::free(p); }
  };
  std::unique_ptr<std::byte, release> data_;
  std::size_t bytes_;
};

void must(const result<void>& done) {
  if (done)
    return;
  std::fprintf(stderr, "%s\n", to_string(done.error()).c_str());
  std::exit(1);
}

/// The best of some rounds, in 10^9 bytes per second.
double best_of(std::uint64_t bytes, const std::function<void()>& work) {
  duration best = duration::max();
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min<duration>(best, std::chrono::steady_clock::now() - start);
  }
  return gigabytes_per_second(bytes, best);
}

struct subject {
  const char* name;
  kv_geometry geometry;
  kv_layout layout;
  /// Bytes that are contiguous in the KV cache.
  std::uint64_t piece;
};

const std::vector<subject>& subjects() {
  static const std::vector<subject> all{
      {"64 x 32 KiB (8 heads, block 16, 32 layers)", {32, 2, 8, 128, 2, 16}, kv_layout::split, 32768},
      {"32 x 64 KiB (the same, blocks-first)", {32, 2, 8, 128, 2, 16}, kv_layout::blocks_first, 65536},
      {"64 x 4 KiB (1 head, block 16, 32 layers)", {32, 2, 1, 128, 2, 16}, kv_layout::split, 4096},
      {"160 x 8 KiB (2 heads, block 16, 80 layers)", {80, 2, 2, 128, 2, 16}, kv_layout::split, 8192},
      {"61 x 18 KiB (MLA, block 16)", {61, 1, 1, 576, 2, 16}, kv_layout::mla, 18432},
      {"8 x 8 KiB (64 KiB page)", {4, 2, 2, 128, 2, 16}, kv_layout::split, 8192},
      {"8192 x 256 B (head-major)", {32, 2, 8, 128, 2, 16}, kv_layout::head_major, 256},
      {"8192 x 256 B (packed)", {32, 2, 8, 128, 2, 16}, kv_layout::packed, 256},
  };
  return all;
}

struct paged {
  device_memory memory;
  std::unique_ptr<page_mover> mover;
  huge_buffer pages;
  std::vector<block_move> moves;
};

paged prepare(const subject& s) {
  const auto page = s.geometry.page_bytes();
  const auto count = static_cast<std::uint32_t>(working_set / 2 / page);
  auto memory = device_memory::create(s.geometry, count, {s.layout, 1});
  must(memory.map([](const device_memory&) {}));
  auto mover = make_host_page_mover(memory->view()).value();
  huge_buffer pages(page * count);
  const auto blocks = memory->take(count).value();
  std::vector<block_move> moves;
  for (std::uint32_t i = 0; i < count; ++i)
    moves.push_back({blocks[i], pages.data() + i * page, page});
  return {std::move(*memory), std::move(mover), std::move(pages), std::move(moves)};
}

/// Copies each piece of a page from its own region of the source, like the layers of a KV cache.
void copy_pieces(const std::byte* source, const std::vector<block_move>& moves, std::uint64_t piece) {
  for (const auto& move : moves)
    for (std::uint64_t i = 0; i < move.page_bytes / piece; ++i)
      std::memcpy(move.page + i * piece, source + (i * moves.size() + move.block) * piece, piece);
}

void bench_mover() {
  text_table table({"page mover, GB/s", "page", "whole pages", "pieces", "gather", "scatter"});
  for (const auto& s : subjects()) {
    auto p = prepare(s);
    const auto page = s.geometry.page_bytes();
    const auto bytes = page * p.moves.size();
    // The upper bounds, from the same memory in the same scattered order: one memcpy per page, and one per piece.
    huge_buffer plain(bytes);
    const auto whole = best_of(bytes, [&] {
      for (const auto& move : p.moves)
        std::memcpy(move.page, plain.data() + move.block * page, page);
    });
    const auto pieces = best_of(bytes, [&] { copy_pieces(plain.data(), p.moves, s.piece); });
    const auto gather = best_of(bytes, [&] { must(p.mover->gather(p.moves)); });
    const auto scatter = best_of(bytes, [&] { must(p.mover->scatter(p.moves)); });
    table.row({s.name, human_bytes(page), fmt::format("{:.1f}", whole), fmt::format("{:.1f}", pieces),
               fmt::format("{:.1f} ({:.2f})", gather, gather / pieces),
               fmt::format("{:.1f} ({:.2f})", scatter, scatter / pieces)});
  }
  std::printf("%s\n", table.str().c_str());
}

void bench_bytes() {
  text_table table({"bytes of a page, GB/s", "1 GiB of pages", "one page, cached"});
  constexpr std::uint64_t page = std::uint64_t{2} << 20;
  constexpr auto slot = io::slot_bytes(page);
  constexpr auto count = working_set / slot;
  huge_buffer slots(slot * count);
  huge_buffer copy(slot * count);
  const page_pattern pattern({1, 2}, 3);
  io::page_identity identity{{1, 1}, {1, 2}, 3, {4, 5}, page};
  std::size_t failures = 0;
  const auto row = [&](const char* name, const std::function<void(std::byte*)>& work) {
    const auto cold = best_of(page * count, [&] {
      for (std::uint64_t i = 0; i < count; ++i)
        work(slots.data() + i * slot);
    });
    const auto warm = best_of(page * count, [&] {
      for (std::uint64_t i = 0; i < count; ++i)
        work(slots.data());
    });
    table.row({name, fmt::format("{:.1f}", cold), fmt::format("{:.1f}", warm)});
  };
  row("memcpy", [&](std::byte* p) { std::memcpy(copy.data() + (p - slots.data()), p, page); });
  row("memset", [&](std::byte* p) { std::memset(p + io::page_header_bytes, 7, page); });
  row("pattern fill", [&](std::byte* p) { pattern.fill({p + io::page_header_bytes, page}, 0); });
  row("pattern compare", [&](std::byte* p) {
    failures += pattern.compare({p + io::page_header_bytes, page}, 0).has_value() ? 1U : 0U;
  });
  row("seal_page", [&](std::byte* p) { io::seal_page({p, slot}, identity); });
  row("verify_page", [&](std::byte* p) { failures += io::verify_page({p, slot}, identity) != errc::ok ? 1U : 0U; });
  std::printf("%s\n", table.str().c_str());
  if (failures != 0)
    std::printf("%zu comparisons failed, the numbers are not valid\n", failures);
}

} // namespace

int main() {
  bench_mover();
  bench_bytes();
}
