#include "gpu/host_page_mover.hpp"

#include "base/prefetch.hpp"
#include "gpu/host_copies.hpp"
#include "gpu/page_nest.hpp"
#include "io/memory/fault_in.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace troupe {

namespace {

template <move_direction Direction>
void copy_piece(std::byte* cache, std::byte* page, std::size_t bytes) noexcept {
  if constexpr (Direction == move_direction::gather)
    std::memcpy(page, cache, bytes);
  else
    std::memcpy(cache, page, bytes);
}

/// Prefetches. A block's pieces are far apart, and the hardware's prefetcher starts anew with each of them: fetching
/// the next piece's first bytes during the present copy gains 10 to 20 % at pieces of 4 to 32 KiB.
void prefetch_piece(const std::byte* p) noexcept {
  for (std::size_t offset = 0; offset < 1024; offset += 64)
    prefetch(p + offset);
}

/// The part of one layer of a page that one block holds.
struct layer_share {
  const page_nest& nest;
  /// The start of the layer.
  std::byte* page;
  /// The block in the tensor; null for a block that does not exist.
  std::byte* block;
  /// The distance in the page between the runs of two consecutive heads.
  std::uint64_t page_head_stride;
};

/// `Fixed` is the run's size where the compiler is to know it, else 0: a call of memcpy costs as much as copying a few
/// hundred bytes.
template <move_direction Direction, std::size_t Fixed>
void copy_runs(const layer_share& share) noexcept {
  const auto& nest = share.nest;
  const std::size_t run = Fixed != 0 ? Fixed : nest.run_bytes;
  auto* page_head = share.page;
  for (std::uint64_t p = 0; p < nest.part.count; ++p) {
    for (std::uint64_t h = 0; h < nest.head.count; ++h, page_head += share.page_head_stride) {
      auto* from = share.block + p * nest.part.stride + h * nest.head.stride;
      auto* page = page_head;
      for (std::uint64_t t = 0; t < nest.token.count; ++t, from += nest.token.stride, page += run) {
        if constexpr (Direction == move_direction::gather && Fixed == 0)
          prefetch_piece(from + (h + 1 < nest.head.count ? nest.head.stride : nest.part.stride));
        copy_piece<Direction>(from, page, run);
      }
    }
  }
}

void zero_runs(const layer_share& share) noexcept {
  const auto& nest = share.nest;
  auto* page = share.page;
  for (std::uint64_t i = 0; i < std::uint64_t{nest.part.count} * nest.head.count; ++i, page += share.page_head_stride)
    std::memset(page, 0, nest.run_bytes * nest.token.count);
}

template <move_direction Direction>
void copy(const layer_share& share) noexcept {
  if (share.block == nullptr) {
    if constexpr (Direction == move_direction::gather)
      zero_runs(share);
    return;
  }
  switch (share.nest.run_bytes) {
  case 32:
    return copy_runs<Direction, 32>(share);
  case 64:
    return copy_runs<Direction, 64>(share);
  case 128:
    return copy_runs<Direction, 128>(share);
  case 256:
    return copy_runs<Direction, 256>(share);
  default:
    return copy_runs<Direction, 0>(share);
  }
}

/// Whether each layer of a block is one run of whole words of the checksum.
bool is_contiguous(const kv_cache_view& view, std::span<const page_nest> nests) noexcept {
  return view.blocks_per_page == 1 && std::all_of(nests.begin(), nests.end(), [](const page_nest& x) {
           return x.run_bytes == x.page_bytes && x.run_bytes % io::checksum_word_bytes == 0;
         });
}

class host_page_mover final : public page_mover {
public:
  host_page_mover(kv_cache_view view, const host_mover_options& options)
      : view_(std::move(view)), options_(options), nests_(page_nests(view_, true)),
        contiguous_(is_contiguous(view_, nests_)) {
    options_.calls_at_once = std::max(options_.calls_at_once, 1U);
  }

  const kv_cache_view& cache() const noexcept override { return view_; }
  result<void> prepare(std::span<std::byte> memory) override {
    if (options_.populate)
      io::fault_in(memory);
    return {};
  }
  bool preparing_takes_time() const noexcept override { return options_.populate; }
  bool would_allocate(std::span<const std::byte> memory) const noexcept override { return !io::is_allocated(memory); }
  bool preparing_delays_calls() const noexcept override { return false; }
  std::uint32_t calls_at_once(move_direction) const noexcept override { return options_.calls_at_once; }
  void forget(std::span<std::byte>) override {
    // nop
  }

  std::optional<error> failure() const override { return std::nullopt; }

private:
  result<void> do_gather(std::span<block_move> moves, const device_events& events) override {
    if (auto ok = without(events); !ok)
      return ok;
    if (auto ok = validate(view_, moves); !ok)
      return ok;
    for (auto& move : moves) {
      move.verdict = errc::ok;
      if (contiguous_ && move.block != null_block && move.encoding == page_encoding::raw)
        move.checksum = copy_layers<move_direction::gather>(move);
      else
        gather_one(move);
    }
    return {};
  }

  result<void> do_scatter(std::span<block_move> moves, const device_events& events) override {
    if (auto ok = without(events); !ok)
      return ok;
    if (auto ok = validate(view_, moves); !ok)
      return ok;
    for (auto& move : moves) {
      bool sound = false;
      if (contiguous_ && options_.verify_while_copying && move.block != null_block &&
          move.encoding == page_encoding::raw) {
        const auto sum = copy_layers<move_direction::scatter>(move);
        sound = !move.checksum || sum == *move.checksum;
      } else
        sound = scatter_one(move);
      move.verdict = sound ? errc::ok : errc::corrupt;
    }
    return {};
  }

  // Pages are in memory that other processes can write to at any time. A checksum is only valid for bytes that do not
  // change between its computation and their use. So both work on a private copy, unless each byte is read once and
  // summed as it is stored.

  /// Copies all layers of a contiguous block, and returns the checksum of the page.
  template <move_direction Direction>
  io::page_checksum copy_layers(const block_move& move) const noexcept {
    io::page_checksum out;
    for (const auto& nest : nests_) {
      auto* const block = nest.base + move.block * nest.block_stride;
      auto* const page = move.page + nest.page_offset;
      const auto first_word = nest.page_offset / io::checksum_word_bytes;
      if constexpr (Direction == move_direction::gather)
        out += io::copy_with_checksum(page, {block, nest.page_bytes}, first_word);
      else
        out += io::copy_with_checksum(block, {page, nest.page_bytes}, first_word);
    }
    return out;
  }

  void gather_one(block_move& move) const {
    auto own = move;
    own.page = private_memory<private_use::page>(move.page_bytes);
    for (std::size_t i = 0; i < view_.blocks_per_page; ++i)
      copy_block<move_direction::gather>(own, i);
    store_page(move, own.page);
  }

  /// Returns whether the page is the expected one.
  bool scatter_one(const block_move& move) const {
    auto own = move;
    own.page = private_memory<private_use::page>(move.page_bytes);
    if (!fetch_page(move, own.page))
      return false;
    for (std::size_t i = 0; i < view_.blocks_per_page; ++i)
      copy_block<move_direction::scatter>(own, i);
    return true;
  }

  template <move_direction Direction>
  void copy_block(const block_move& move, std::size_t i) const noexcept {
    const auto block = move.block_at(i);
    for (const auto& nest : nests_) {
      const auto head = nest.run_bytes * nest.token.count;
      copy<Direction>({nest, move.page + nest.page_offset + i * head,
                       block == null_block ? nullptr : nest.base + block * nest.block_stride,
                       head * view_.blocks_per_page});
    }
  }

  kv_cache_view view_;
  host_mover_options options_;
  std::vector<page_nest> nests_;
  bool contiguous_ = false;
};

} // namespace

result<std::unique_ptr<page_mover>> make_host_page_mover(kv_cache_view view, const host_mover_options& options) {
  if (auto ok = validate(view); !ok)
    return tl::unexpected(ok.error());
  return std::make_unique<host_page_mover>(std::move(view), options);
}

} // namespace troupe
