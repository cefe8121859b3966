#pragma once

#include "base/error.hpp"
#include "gpu/remote_layout.hpp"
#include "lmcache/context.hpp"
#include "lmcache/wire/device_handles.hpp"

#include <cstdint>
#include <memory>

namespace troupe::lmcache {

/// What a worker's registration makes of its pages whose blocks the node copies itself.
struct open_context {
  namespace_spec space;
  /// Where the blocks of a page lie, run after run as the page has them: planes, layers, blocks of the chunk.
  std::shared_ptr<const remote_layout> memory;
  /// Block 0 stands for what the engine has given back.
  bool sliding = false;
};

/// Where a block has its tokens outside and its heads inside, or no heads, a page is byte for byte the one that workers
/// make that copy themselves, and such workers share their namespace. Where heads are outside, as on CPUs, the order
/// of a block stays in the page, and the namespace says so and how many tokens a block has.
///
/// Errors: invalid_argument and out_of_range, for what makes no sense; unsupported, with what is not served: other
/// handles, engines, several groups, layers that differ, blocks that are not one piece of memory.
result<open_context> open_context_of(const wire::kv_cache_registration& x, std::uint32_t chunk_tokens);

} // namespace troupe::lmcache
