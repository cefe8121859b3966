#include "http/status/namespace_capacity.hpp"

#include "io/slab/beyond_slab.hpp"

#include <algorithm>

namespace troupe::http::node_status {

namespace {

struct rank_capacity {
  std::uint64_t pages = 0;
  std::uint64_t page_bytes = 0;
  std::string_view bounded_by;
};

rank_capacity capacity_of_rank(const rank_stats& x, std::uint64_t ranks, const room_of_node& room) {
  const auto page = std::max<std::uint64_t>(x.io.frame_bytes, 1);
  // Ranks share the arena, in whole extents.
  const auto extents = room.extent_bytes == 0 ? 0 : room.arena_bytes / room.extent_bytes;
  // Frames for encoded pages are smaller: it is assumed that pages to come are like those that are there.
  const auto frame = x.io.frames == 0 ? page : std::max<std::uint64_t>(x.io.memory_bytes / x.io.frames, 1);
  const auto frames = extents * (room.extent_bytes / frame) / ranks;
  if (x.io.slab_slots == 0)
    return {frames, page, "memory"};
  // A growing file has a number of slots that it can never fill if the disk space is shared by all such files.
  auto pages = x.io.slab_slots;
  const auto there = x.slots.total - std::min(x.slots.total, x.slots.beyond_slab);
  // Slots of a sparse file need what their pages need, and the same is assumed of pages to come.
  const auto slot = x.io.slab_pages == 0 ? page : std::max<std::uint64_t>(x.io.slab_page_bytes / x.io.slab_pages, 1);
  if (there < pages || x.io.slab_bytes > 0)
    pages = std::max(there, std::min(pages, room.made_slabs_limit / ranks / slot));
  const auto more = std::min(x.io.memory_slots, io::pages_beyond_slab(frames, pages));
  return {pages + more, page, more > 0 ? "disk and memory" : "disk"};
}

} // namespace

namespace_capacity capacity_of(const namespace_info& ns, const std::vector<const rank_stats*>& kept,
                               const room_of_node& room) {
  namespace_capacity out;
  const auto ranks = std::max<std::uint64_t>(ns.ranks.size(), 1);
  for (std::size_t i = 0; i < ns.ranks.size(); ++i) {
    const auto* const known = i < kept.size() ? kept[i] : nullptr;
    const auto one = known != nullptr ? capacity_of_rank(*known, ranks, room)
                                      : rank_capacity{ns.ranks.items[i].slots, ns.spec.geometry.page_bytes(), "engine"};
    if (out.bounded_by.empty() || one.pages < out.keys) {
      out.keys = one.pages;
      out.bounded_by = one.bounded_by;
    }
    out.pages += one.pages;
    out.bytes += one.pages * one.page_bytes;
  }
  return out;
}

} // namespace troupe::http::node_status
