#include "io/engine/engine.hpp"

#include "base/processors.hpp"

#include <algorithm>

namespace troupe::io {

// The other half of the cores is for the threads that use the copied data; each slab has workers of its own, which is
// why more than 8 would be too many. A single worker would only replace the ring's own thread.
std::uint32_t default_kernel_workers() noexcept {
  return std::clamp(usable_processors() / 2, 2U, 8U);
}

engine::~engine() = default;

} // namespace troupe::io
