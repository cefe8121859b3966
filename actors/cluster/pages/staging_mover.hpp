#pragma once

#include "actors/cluster/pages/staging_buffer.hpp"
#include "gpu/page_mover.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace troupe::cluster {

/// The number of calls of each direction that run at once; each needs a thread.
struct staging_calls {
  std::uint32_t gathers = 1;
  std::uint32_t scatters = 1;
};

/// Makes a mover between frames and a staging buffer, whose blocks have the layout of a page: each byte is read once
/// and written once, without the intermediate copy of a mover for an engine's KV cache.
///
/// Other processes may write to the frames at any time. The staging buffer is private to this process, and a block that
/// is being gathered is not written. So a scatter computes the checksum of the bytes that have arrived in private
/// memory, and a gather that of the bytes that it sends. The guarantees of `page_mover` hold with one exception: the
/// block of a page that is found `corrupt` has been written. The fetch ignores blocks of failed pages.
///
/// Where a frame stands in for a block, a scatter writes to the frame, and the page has to be sealed with the encoding
/// and the checksum that arrived with it. Blocks have pages that are not encoded: a scatter to a block decodes.
///
/// The mover keeps the memory alive.
std::unique_ptr<page_mover> make_staging_mover(std::shared_ptr<const staging_buffer> memory,
                                               staging_calls at_once = {});

/// The number of calls that suit a machine, for each of `ranks` ranks. One core copies far fewer bytes than the memory
/// bandwidth allows. Ranks fetch at the same time and share the cores.
std::uint32_t calls_for(std::uint32_t cores, std::size_t ranks) noexcept;

} // namespace troupe::cluster
