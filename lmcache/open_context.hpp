#pragma once

#include "base/error.hpp"
#include "gpu/remote_layout.hpp"
#include "lmcache/context.hpp"
#include "lmcache/protocol/device_handles.hpp"

#include <cstdint>
#include <memory>

namespace troupe::lmcache {

/// The namespace and memory of a worker's registration whose blocks the node copies itself.
struct open_context {
  namespace_spec ns;
  /// The layout of a page's blocks, run after run in the order of the page: planes, layers, blocks of the chunk.
  std::shared_ptr<const remote_layout> memory;
  /// Block 0 stands for blocks that the engine has freed.
  bool sliding = false;
};

/// If a block has its tokens outside and its heads inside, or no heads, a page is byte for byte the one of workers that
/// copy themselves, and such workers share their namespace. If heads are outside, as on CPUs, the page keeps the order
/// of a block, and the namespace contains that order and the number of tokens of a block.
///
/// Errors: invalid_argument and out_of_range, for invalid values; unsupported, with the cause: other handles, engines,
/// several groups, layers that differ, blocks that are not contiguous.
result<open_context> open_context_of(const protocol::kv_cache_registration& x, std::uint32_t chunk_tokens);

} // namespace troupe::lmcache
