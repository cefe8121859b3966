#pragma once

#include "base/error.hpp"
#include "gpu/page_mover.hpp"
#include "gpu/remote_layout.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace troupe {

/// An opened KV cache in the memory of another process: copies its blocks to pages and back, on the calling thread, and
/// returns when all bytes have arrived. If that process frees its memory, ends, or truncates its shared memory, calls
/// fail and this process continues.
///
/// At most one call of each direction may run at a time.
class remote_cache {
public:
  remote_cache() = default;
  remote_cache(const remote_cache&) = delete;
  remote_cache& operator=(const remote_cache&) = delete;
  /// Closes the memory, and notifies the process that has shared it, where possible. For GPUs that may take a while.
  virtual ~remote_cache() = default;

  /// As in `page_mover`, after the event of the other process: no byte is accessed before. Events are ignored for host
  /// memory. Errors: those of a mover; `timeout` for an event that does not occur; `io_error` where the memory no
  /// longer exists.
  virtual result<void> gather(std::span<block_move> moves, std::string_view event) = 0;
  virtual result<void> scatter(std::span<block_move> moves, std::string_view event) = 0;

  /// As in `page_mover`.
  virtual result<void> prepare(std::span<std::byte> memory) = 0;
};

/// Opens the memory that the layout names. Errors: those of `validate`; `unsupported` where this build or this machine
/// has no such memory; `invalid_argument` where it does not exist or may not be opened; `io_error` where descriptors or
/// memory are lacking for now; `device_error` where the device refuses; `out_of_range` where it is smaller than said.
result<std::unique_ptr<remote_cache>> open_remote_cache(const remote_layout& layout);

/// Opens memory of a GPU. In a build without CUDA: `unsupported`.
result<std::unique_ptr<remote_cache>> open_remote_gpu_cache(const remote_layout& layout);

/// Opens shared memory of this host. Bytes are copied through the file and not through a mapping: its owner may
/// truncate it at any time, and an access to a mapping would then end this process, whereas a read returns less.
result<std::unique_ptr<remote_cache>> open_remote_shared_cache(const remote_layout& layout);

/// The checks of a gather or a scatter.
result<void> validate(const remote_layout& layout, std::span<const block_move> moves);

/// Decrements each counter, as PyTorch does when it closes memory that another process has shared. A file that does not
/// exist, or is not such a file, is skipped.
void count_down(std::span<const share_counter> counters) noexcept;

} // namespace troupe
