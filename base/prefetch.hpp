#pragma once

namespace troupe {

/// Fetches the cache line of an address ahead, to read it or to write it. Never faults.
///
/// GCC 12 before 12.4, and 13 before 13.2, take a function in which nothing else happens for one without effect, and
/// leave out the calls of it that they can look into (GCC bug 109985), as those within a file, and all of them where
/// files are compiled jointly. The empty statement has an effect as far as they know, and costs no instruction.
inline void prefetch(const void* address) noexcept {
  __builtin_prefetch(address);
  asm volatile("");
}
inline void prefetch_to_write(const void* address) noexcept {
  __builtin_prefetch(address, 1);
  asm volatile("");
}

} // namespace troupe
