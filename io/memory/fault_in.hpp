#pragma once

#include <cstddef>
#include <span>

namespace troupe::io {

/// Populates all pages of a writable mapping now, so that later calls do not wait for them: locking memory for a GPU
/// blocks every launch of the process until it is done. It proceeds in steps that are short enough for other threads
/// that map memory meanwhile. May be called from any thread. A page that cannot be populated fails at its first use;
/// kernels before 5.14 do nothing.
void fault_in(std::span<std::byte> memory) noexcept;

/// Whether the first and the last page of this mapping exist in memory, whether mapped here or not: `fault_in` would
/// allocate the others. The mapping is of a file of shared memory; false also for huge pages that an operator has
/// reserved, of which the kernel reports mapped ones only.
bool is_allocated(std::span<const std::byte> memory) noexcept;

} // namespace troupe::io
