#include "actors/node/tables/chunked_array.hpp"

#include <new>
#include <sys/mman.h>

namespace troupe {

void* map_chunk(bool huge) {
  // mmap aligns to small pages only, so twice as much is mapped, and the parts around the aligned chunk are unmapped.
  auto* const raw = ::mmap(nullptr, 2 * chunk_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED)
    throw std::bad_alloc{};
  auto* const begin = static_cast<std::byte*>(raw);
  const auto address = reinterpret_cast<std::uintptr_t>(raw);
  const auto before = (chunk_bytes - address % chunk_bytes) % chunk_bytes;
  const auto after = chunk_bytes - before;
  if (before > 0)
    ::munmap(begin, before);
  if (after > 0)
    ::munmap(begin + before + chunk_bytes, after);
  auto* const chunk = begin + before;
  // Only advice: everything works without huge pages, with more TLB misses.
  ::madvise(chunk, chunk_bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return chunk;
}

void unmap_chunk(void* chunk) noexcept {
  ::munmap(chunk, chunk_bytes);
}

} // namespace troupe
