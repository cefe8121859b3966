#pragma once

#include "base/error.hpp"
#include "gpu/page_mover.hpp"
#include "gpu/remote_layout.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace troupe {

/// A KV cache in the memory of another process, opened: moves blocks of it to pages and back, on the calling thread,
/// and returns when all bytes have arrived. Whatever that process does, gives its memory back, ends, cuts its shared
/// memory short: a call fails, and this process goes on.
///
/// Calls of different directions may be under way at once, and none of one direction.
class remote_cache {
public:
  remote_cache() = default;
  remote_cache(const remote_cache&) = delete;
  remote_cache& operator=(const remote_cache&) = delete;
  /// Closes the memory, and tells whoever has shared it so, where there is a way. Of GPUs that may take a while.
  virtual ~remote_cache() = default;

  /// As those of `page_mover`, after the event of the other process: nothing is read or written before it has happened.
  /// An event that host memory has means nothing. Errors: those of a mover; `timeout` for an event that does not
  /// happen; `io_error` where the memory is not there any more.
  virtual result<void> gather(std::span<block_move> moves, std::string_view event) = 0;
  virtual result<void> scatter(std::span<block_move> moves, std::string_view event) = 0;

  /// As that of a mover.
  virtual result<void> prepare(std::span<std::byte> memory) = 0;
};

/// Opens what the layout names. Errors: those of `validate`; `unsupported` where this build or this machine has no
/// such memory; `invalid_argument` where it does not exist or may not be opened; `io_error` where descriptors or memory
/// are lacking for now; `device_error` where the device refuses; `out_of_range` where it is smaller than said.
result<std::unique_ptr<remote_cache>> open_remote_cache(const remote_layout& layout);

/// In memory of a GPU. In a build without CUDA: `unsupported`.
result<std::unique_ptr<remote_cache>> open_remote_gpu_cache(const remote_layout& layout);

/// In shared memory of this host. Bytes go through the file and not through a mapping: whoever has the memory may cut
/// it short at any time, and then a mapping would end this process, where reading a file comes back with less.
result<std::unique_ptr<remote_cache>> open_remote_shared_cache(const remote_layout& layout);

/// What a gather or a scatter refuses.
result<void> validate(const remote_layout& layout, std::span<const block_move> moves);

/// Takes one off each number, as PyTorch does when it closes memory that another process has shared. A file that is not
/// there any more, or is no such file, is passed by.
void count_down(std::span<const share_counter> counters) noexcept;

} // namespace troupe
