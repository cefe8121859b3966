#pragma once

#include "actors/cluster/passing_memory.hpp"
#include "gpu/page_mover.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace troupe::cluster {

/// Calls of each direction that are carried out at once; each takes a thread.
struct passing_calls {
  std::uint32_t gathers = 1;
  std::uint32_t scatters = 1;
};

/// Moves pages from and to passing memory, of which a block is a page as it lies: each byte is read once and written
/// once, where a mover for an engine's KV cache takes a detour.
///
/// The frames on the other side are memory of others as well, who may write to them at any time; passing memory is this
/// process' alone, and nobody writes to a block that is being gathered. So a scatter sums what has arrived, where
/// nobody else can reach it, and a gather what it sends. What is promised of `page_mover` holds, but for one thing: of
/// a page that is found `corrupt`, its block has been written. Whoever fetches looks at no block whose page has failed.
///
/// Where a frame stands in for a block, a scatter writes there, and the page has to be sealed with the checksum that
/// has arrived with it.
///
/// It keeps the memory.
std::unique_ptr<page_mover> make_passing_mover(std::shared_ptr<const passing_memory> memory,
                                               passing_calls at_once = {});

/// How many calls suit a machine, for each of so many ranks: one core copies far fewer bytes than
/// memory takes. Ranks fetch at the same time, and share the cores.
std::uint32_t calls_for(std::uint32_t cores, std::size_t ranks) noexcept;

} // namespace troupe::cluster
