#include "io/memory/fault_in.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>

namespace troupe::io {

namespace {

/// The size of a huge page, which takes 1 to 2 ms on a host that has to clear it.
[[maybe_unused]] constexpr std::size_t step_bytes = std::size_t{2} << 20U;

} // namespace

void fault_in([[maybe_unused]] std::span<std::byte> memory) noexcept {
#ifdef MADV_POPULATE_WRITE
  while (!memory.empty()) {
    const auto step = memory.first(std::min(memory.size(), step_bytes));
    if (::madvise(step.data(), step.size(), MADV_POPULATE_WRITE) == 0)
      memory = memory.subspan(step.size());
    else if (errno != EINTR && errno != EAGAIN)
      return;
  }
#endif
}

} // namespace troupe::io
