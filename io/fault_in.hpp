#pragma once

#include <cstddef>
#include <span>

namespace troupe::io {

/// Has the kernel provide all pages of a writable mapping now, so that what follows does not wait for them: locking
/// memory for a GPU stops every launch of the process until it is done. Does so in steps that are short enough for
/// other threads that map memory meanwhile. May be called from any thread. Where a page cannot be had, the first use
/// of it says so; kernels before 5.14 do nothing.
void fault_in(std::span<std::byte> memory) noexcept;

} // namespace troupe::io
