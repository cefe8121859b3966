#include "gpu/host_page_mover.hpp"

#include "base/prefetch.hpp"
#include "gpu/host_copies.hpp"
#include "gpu/page_nest.hpp"

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

class host_page_mover final : public page_mover {
public:
  explicit host_page_mover(kv_cache_view view) : view_(std::move(view)), nests_(page_nests(view_, true)) {
    // nop
  }

  const kv_cache_view& cache() const noexcept override { return view_; }
  result<void> prepare(std::span<std::byte>) override { return {}; }
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
      auto own = move;
      own.page = private_page(move.page_bytes);
      for (std::size_t i = 0; i < view_.blocks_per_page; ++i)
        copy_block<move_direction::gather>(own, i);
      move.checksum = io::checksum_of({own.page, own.page_bytes});
      std::memcpy(move.page, own.page, own.page_bytes);
      move.verdict = errc::ok;
    }
    return {};
  }

  result<void> do_scatter(std::span<block_move> moves, const device_events& events) override {
    if (auto ok = without(events); !ok)
      return ok;
    if (auto ok = validate(view_, moves); !ok)
      return ok;
    for (auto& move : moves) {
      auto own = move;
      own.page = private_page(move.page_bytes);
      const auto sum = copy_and_sum(move.page_bytes, [&](std::uint64_t at, std::uint64_t bytes) {
        std::memcpy(own.page + at, move.page + at, bytes);
        return own.page + at;
      });
      const bool sound = !move.checksum || sum == *move.checksum;
      move.verdict = sound ? errc::ok : errc::corrupt;
      if (!sound)
        continue;
      for (std::size_t i = 0; i < view_.blocks_per_page; ++i)
        copy_block<move_direction::scatter>(own, i);
    }
    return {};
  }

  // Pages are in memory that other processes can write to at any time. A checksum is only valid for bytes that do not
  // change between its computation and their use, so both work on a private copy.

  /// Memory of this thread, valid until its next call.
  static std::byte* private_page(std::uint64_t bytes) {
    thread_local std::unique_ptr<std::byte[]> memory;
    thread_local std::uint64_t size = 0;
    if (size < bytes) {
      memory.reset(new std::byte[bytes]); // not zeroed
      size = bytes;
    }
    return memory.get();
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
  std::vector<page_nest> nests_;
};

} // namespace

result<std::unique_ptr<page_mover>> make_host_page_mover(kv_cache_view view) {
  if (auto ok = validate(view); !ok)
    return tl::unexpected(ok.error());
  return std::make_unique<host_page_mover>(std::move(view));
}

} // namespace troupe
