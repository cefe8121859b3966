#pragma once

namespace troupe {

/// Fetches the cache line of an address ahead, to read it or to write it. Never faults.
///
/// GCC 12 before 12.4, and 13 before 13.2, treat a function that does nothing else as free of effects, and remove those
/// calls of it that they can inline (GCC bug 109985): within a file, and everywhere with joint compilation. The empty
/// statement counts as an effect, and costs no instruction.
inline void prefetch(const void* address) noexcept {
  __builtin_prefetch(address);
  asm volatile("");
}
inline void prefetch_to_write(const void* address) noexcept {
  __builtin_prefetch(address, 1);
  asm volatile("");
}

} // namespace troupe
