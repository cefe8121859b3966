#include "actors/lmcache/block_lane.hpp"

#include "base/log.hpp"

#include <algorithm>

namespace troupe {

caf::behavior block_lane::make_behavior() {
  return {
      [this](const open_order& order) { return open(order); },
      [this](const block_copy& order) { return copy(order); },
  };
}

void lock_arena(const std::shared_ptr<remote_cache>& cache, std::span<std::byte> arena) {
  if (auto ok = cache->prepare(arena); !ok)
    log::get("lmcache")->warn("copies are slower than they could be: {}", to_string(ok.error()));
}

opened_cache block_lane::open(const open_order& order) {
  auto cache = open_remote_cache(*order.layout);
  if (!cache)
    return {nullptr, cache.error()};
  cache_ = std::move(*cache);
  return {cache_, {}};
}

io_reply block_lane::copy(const block_copy& order) {
  const bool gathers = order.direction == move_direction::gather;
  const auto arena = arena_->memory();
  const auto slot = io::slot_bytes(order.page_bytes);
  const auto each = order.items.empty() ? 0 : order.blocks.size() / order.items.size();
  std::vector<errc> codes(order.items.size(), errc::internal);
  std::vector<block_move> moves;
  std::vector<std::size_t> positions;
  const auto identity_of = [&](const check_item& item) {
    return io::page_identity{order.space, item.page.key, order.rank, item.page.where, order.page_bytes};
  };
  for (std::size_t i = 0; i < order.items.size() && each > 0; ++i) {
    const auto& item = order.items[i];
    if (item.offset > arena.size() || arena.size() - item.offset < slot) {
      codes[i] = errc::out_of_range;
      continue;
    }
    block_move move;
    move.block = order.blocks[i * each];
    move.further_blocks = std::span(order.blocks).subspan(i * each + 1, each - 1);
    move.page = arena.data() + item.offset + io::page_header_bytes;
    move.page_bytes = order.page_bytes;
    if (!gathers) {
      const auto sum = io::expected_checksum(arena.subspan(item.offset, slot), identity_of(item));
      if (!sum) {
        codes[i] = sum.error();
        continue;
      }
      move.checksum = *sum;
    }
    moves.push_back(move);
    positions.push_back(i);
  }
  // One that is bad spoils the request: then nothing is written.
  const bool sound = gathers || moves.size() == order.items.size();
  if (cache_ && sound && !moves.empty()) {
    const auto copied = gathers ? cache_->gather(moves, order.event) : cache_->scatter(moves, order.event);
    if (!copied)
      log::get("lmcache")->warn("blocks of a worker cannot be copied: {}", to_string(copied.error()));
    for (std::size_t i = 0; i < moves.size(); ++i) {
      // Not to be mistaken for a page that cannot be read.
      codes[positions[i]] = copied ? moves[i].verdict : errc::cancelled;
      if (copied && gathers && moves[i].verdict == errc::ok) {
        const auto& item = order.items[positions[i]];
        if (moves[i].checksum)
          io::seal_page(arena.subspan(item.offset, slot), identity_of(item), *moves[i].checksum);
        else
          codes[positions[i]] = errc::internal;
      }
    }
  }
  io_reply out;
  for (const auto code : codes)
    out.results.items.push_back(static_cast<std::uint8_t>(code));
  return out;
}

} // namespace troupe
