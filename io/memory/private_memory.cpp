#include "io/memory/private_memory.hpp"

#include "base/size_text.hpp"

#include <cerrno>
#include <string>
#include <sys/mman.h>

namespace troupe::io {

result<private_memory> private_memory::get(std::uint64_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return tl::unexpected<error>(system_error(errno, "cannot allocate " + size_text(bytes) + " for pages"));
  ::madvise(memory, bytes, MADV_HUGEPAGE); // optional
  ::madvise(memory, bytes, MADV_DONTDUMP); // core dumps must not contain pages
  return private_memory({static_cast<std::byte*>(memory), bytes});
}

private_memory::~private_memory() {
  if (bytes_.data() != nullptr)
    ::munmap(bytes_.data(), bytes_.size());
}

} // namespace troupe::io
