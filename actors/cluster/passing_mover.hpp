#pragma once

#include "actors/cluster/passing_memory.hpp"
#include "gpu/page_mover.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace troupe::cluster {

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
/// It keeps the memory. `calls_at_once`: of each direction; each takes a thread.
std::unique_ptr<page_mover> make_passing_mover(std::shared_ptr<const passing_memory> memory,
                                               std::uint32_t calls_at_once = 1);

/// How many calls of each direction suit a machine, for each of so many ranks: one core copies far fewer bytes than
/// memory takes, and a node has other things to do with its cores as well.
std::uint32_t passing_calls(std::uint32_t cores, std::size_t ranks) noexcept;

} // namespace troupe::cluster
