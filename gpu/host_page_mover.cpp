#include "gpu/host_page_mover.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace troupe {

namespace {

struct loop {
  std::uint64_t count = 1;
  std::uint64_t stride = 0;
};

/// A part of a block that is contiguous in the page and a nest of equal pieces in a tensor.
struct strided_run {
  /// Of block 0.
  std::byte* base = nullptr;
  std::uint64_t block_stride = 0;
  std::uint64_t page_offset = 0;
  /// Bytes of one piece.
  std::uint64_t piece = 0;
  /// Innermost first; the pieces of the page follow in the same order.
  std::array<loop, 3> loops;
};

/// The part of a layer to cover: tokens from `first_token` on, of `parts` parts from `first_part` on.
struct section {
  std::uint32_t first_part = 0;
  std::uint32_t parts = 0;
  std::uint32_t first_token = 0;
};

/// The nest of one layer, with neighbours merged: an axis whose stride continues the axis inside of it disappears.
strided_run merge(const kv_geometry& g, const tensor_view& t, std::size_t layer, const section& s) {
  const auto token_bytes = g.token_bytes();
  strided_run run;
  run.base = t.base + s.first_part * t.part_stride + s.first_token * t.token_stride;
  run.block_stride = t.block_stride;
  run.page_offset = ((layer * g.parts + s.first_part) * g.block_tokens + s.first_token) * token_bytes;
  run.piece = std::uint64_t{g.head_size} * g.element_bytes;
  const std::array<loop, 3> axes{
      {{g.heads, t.head_stride}, {g.block_tokens - s.first_token, t.token_stride}, {s.parts, t.part_stride}}};
  std::size_t used = 0;
  for (const auto& axis : axes) {
    if (axis.count == 1)
      continue;
    if (used == 0 && axis.stride == run.piece)
      run.piece *= axis.count;
    else if (used > 0 && axis.stride == run.loops[used - 1].count * run.loops[used - 1].stride)
      run.loops[used - 1].count *= axis.count;
    else
      run.loops[used++] = axis;
  }
  return run;
}

/// All layers of a block; layers that follow each other in memory become one run.
std::vector<strided_run> merge(const kv_cache_view& view) {
  std::vector<strided_run> runs;
  for (std::size_t layer = 0; layer < view.layers.size(); ++layer) {
    const auto next = merge(view.geometry, view.layers[layer], layer, {0, view.geometry.parts, 0});
    const bool one_piece = next.loops[0].count == 1;
    if (!runs.empty() && one_piece) {
      auto& last = runs.back();
      if (last.loops[0].count == 1 && last.block_stride == next.block_stride && last.base + last.piece == next.base) {
        last.piece += next.piece;
        continue;
      }
    }
    runs.push_back(next);
  }
  return runs;
}

template <move_direction Direction>
void copy_piece(std::byte* cache, std::byte* page, std::size_t bytes) noexcept {
  if constexpr (Direction == move_direction::gather)
    std::memcpy(page, cache, bytes);
  else
    std::memcpy(cache, page, bytes);
}

/// Reads ahead. A block's pieces lie far from each other, and the hardware's prefetcher starts anew with each of them:
/// asking for the next piece's first bytes while the present one is copied gives 10 to 20 % at pieces of 4 to 32 KiB.
void prefetch(const std::byte* p) noexcept {
  for (std::size_t offset = 0; offset < 1024; offset += 64)
    __builtin_prefetch(p + offset);
}

/// `Fixed` is the piece's size where the compiler is to know it, else 0: the call of memcpy costs as much as copying a
/// few hundred bytes. `next` is where the gather will go on after this nest.
template <move_direction Direction, std::size_t Fixed>
void copy_nest(const strided_run& run, std::byte* cache, std::byte* page, const std::byte* next) noexcept {
  const std::size_t piece = Fixed != 0 ? Fixed : run.piece;
  const auto& [inner, middle, outer] = run.loops;
  for (std::uint64_t i = 0; i < outer.count; ++i) {
    for (std::uint64_t j = 0; j < middle.count; ++j) {
      auto* from = cache + i * outer.stride + j * middle.stride;
      for (std::uint64_t k = 0; k < inner.count; ++k, from += inner.stride, page += piece) {
        if constexpr (Direction == move_direction::gather && Fixed == 0)
          prefetch(k + 1 < inner.count ? from + inner.stride : next);
        copy_piece<Direction>(from, page, piece);
      }
    }
  }
}

std::byte* start_of(const strided_run& run, const block_move& move) noexcept {
  return run.base + move.block * run.block_stride;
}

template <move_direction Direction>
void copy(const strided_run& run, const block_move& move, const std::byte* next) noexcept {
  auto* cache = start_of(run, move);
  auto* page = move.page + run.page_offset;
  switch (run.piece) {
  case 32:
    return copy_nest<Direction, 32>(run, cache, page, next);
  case 64:
    return copy_nest<Direction, 64>(run, cache, page, next);
  case 128:
    return copy_nest<Direction, 128>(run, cache, page, next);
  case 256:
    return copy_nest<Direction, 256>(run, cache, page, next);
  default:
    return copy_nest<Direction, 0>(run, cache, page, next);
  }
}

class host_page_mover final : public page_mover {
public:
  explicit host_page_mover(kv_cache_view view) : view_(std::move(view)), runs_(merge(view_)) {
    // nop
  }

  const kv_cache_view& cache() const noexcept override { return view_; }

  result<void> gather(std::span<const block_move> moves) override {
    if (auto ok = validate(view_, moves, move_direction::gather); !ok)
      return ok;
    for (std::size_t i = 0; i < moves.size(); ++i) {
      const auto& next_move = moves[std::min(i + 1, moves.size() - 1)];
      for (std::size_t r = 0; r < runs_.size(); ++r)
        copy<move_direction::gather>(runs_[r], moves[i],
                                     r + 1 < runs_.size() ? start_of(runs_[r + 1], moves[i])
                                                          : start_of(runs_[0], next_move));
    }
    return {};
  }

  result<void> scatter(std::span<const block_move> moves) override {
    if (auto ok = validate(view_, moves, move_direction::scatter); !ok)
      return ok;
    for (const auto& move : moves) {
      if (move.skip_tokens != 0) {
        scatter_tail(move);
        continue;
      }
      for (const auto& run : runs_)
        copy<move_direction::scatter>(run, move, nullptr);
    }
    return {};
  }

private:
  /// The tokens from `skip_tokens` on: rare (the first block of a load at most), so merged when needed.
  void scatter_tail(const block_move& move) const noexcept {
    const auto& g = view_.geometry;
    for (std::size_t layer = 0; layer < view_.layers.size(); ++layer)
      for (std::uint32_t part = 0; part < g.parts; ++part)
        copy<move_direction::scatter>(merge(g, view_.layers[layer], layer, {part, 1, move.skip_tokens}), move, nullptr);
  }

  kv_cache_view view_;
  std::vector<strided_run> runs_;
};

} // namespace

result<std::unique_ptr<page_mover>> make_host_page_mover(kv_cache_view view) {
  if (auto ok = validate(view); !ok)
    return tl::unexpected(ok.error());
  return std::make_unique<host_page_mover>(std::move(view));
}

} // namespace troupe
