#include "io/memory/fault_in.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
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

bool is_allocated(std::span<const std::byte> memory) noexcept {
  constexpr std::uintptr_t page_bytes = 4096;
  const auto is_there = [](std::uintptr_t address) {
    unsigned char state = 0;
    // The kernel takes any address, and reads nothing there.
    auto* const page = reinterpret_cast<void*>(address / page_bytes * page_bytes); // NOLINT(performance-no-int-to-ptr)
    return ::mincore(page, page_bytes, &state) == 0 && (state & 1U) != 0;
  };
  if (memory.empty())
    return true;
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
  return is_there(first) && is_there(first + memory.size() - 1);
}

} // namespace troupe::io
