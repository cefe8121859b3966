#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/write_gate.hpp"
#include "io/usrbio/options.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace troupe::io {

enum class operation : std::uint8_t { read, write };

/// One transfer between a file and memory.
struct request {
  operation op = operation::read;
  /// From `add_file`.
  std::uint32_t file = 0;
  /// In bytes; offset, length and data are aligned to `page_alignment` where the file is open for direct I/O.
  std::uint64_t file_offset = 0;
  std::byte* data = nullptr;
  std::uint64_t length = 0;
  /// From `add_buffer`: the buffer that contains [data, data + length).
  std::uint32_t buffer = 0;
  /// Comes back in the completion. Unique among the requests that have not been completed.
  std::uint64_t tag = 0;
  /// `timestamp::max()` for none.
  timestamp deadline = timestamp::max();
};

/// The one and only answer to a request. The engine and the kernel have finished with its memory by then.
struct completion {
  std::uint64_t tag = 0;
  /// - `ok`: all bytes were transferred (the disk's own cache aside);
  /// - `timeout`: the deadline passed first, whatever the transfer came to afterwards;
  /// - `cancelled`, `shutting_down`: given up by `cancel` or `stop` before all bytes were transferred;
  /// - `slab_damaged`: the file ends before the bytes to read;
  /// - `no_space`, `io_error`: what the system said, see `system_errno`;
  /// - `invalid_argument`, `out_of_range`: no such file or buffer, nothing to transfer, or memory outside the buffer.
  errc status = errc::ok;
  int system_errno = 0;
};

/// Takes batches of completions, on the engine's own thread and never twice at once. It may call `submit` and
/// `cancel`, must not call `stop`, and must not block: nothing else completes meanwhile.
using completion_sink = std::function<void(std::span<const completion>)>;

/// What an engine has done so far.
struct engine_counters {
  std::uint64_t submitted = 0;
  std::uint64_t completed = 0;
  /// Transfers continued after the kernel had moved only a part, or asked for another try.
  std::uint64_t continued = 0;
  /// Completions of the kernel that belong to no request: always 0, or there is a defect.
  std::uint64_t unmatched = 0;
};

/// Reads and writes files without blocking the caller. Every submitted request is completed exactly once.
/// All functions may be called from any thread.
class engine {
public:
  virtual ~engine();

  /// Makes an open file known. The descriptor stays the caller's and must stay open until `remove_file` or `stop`.
  /// Error: `limit_exceeded`, `shutting_down`.
  virtual result<std::uint32_t> add_file(int descriptor) = 0;

  /// The caller guarantees that no request of the file is under way. Waits until the engine has let go of it.
  virtual void remove_file(std::uint32_t file) = 0;

  /// Makes memory known, and pins it where the kernel can use that. It must stay mapped until `remove_buffer` or
  /// `stop`. Error: `limit_exceeded`, `invalid_argument`, `shutting_down`.
  virtual result<std::uint32_t> add_buffer(std::span<std::byte> bytes) = 0;

  /// The caller guarantees that no request in the buffer is under way. Waits until the engine has let go of it.
  virtual void remove_buffer(std::uint32_t buffer) = 0;

  /// Queues the requests in order and returns. After `stop` they are completed at once with `shutting_down`, by the
  /// calling thread.
  virtual void submit(std::span<const request> requests) = 0;

  /// Gives up the request with this tag: one that waits is completed, one under way is cancelled as far as the kernel
  /// can and completed when it has ended. No such request: nothing happens.
  virtual void cancel(std::uint64_t tag) = 0;

  /// Gives up all requests, waits until the last has been completed, and ends the engine's threads. A second call
  /// waits for the first. The destructor calls it.
  virtual void stop() = 0;

  virtual engine_counters counters() const = 0;

  /// Transfers do not go through the kernel, and so never find what its page cache has kept of a file.
  virtual bool goes_past_the_kernel() const noexcept { return false; }

  /// For logs: kind, depth and the kernel features in use.
  virtual std::string describe() const = 0;
};

/// Half of the cores, at least 2 and at most 8.
std::uint32_t default_kernel_workers() noexcept;

enum class engine_kind : std::uint8_t {
  /// io_uring, and the thread pool where the kernel refuses it, which is logged.
  automatic,
  /// Or nothing.
  uring,
  threads,
  /// 3FS's user-space rings, or nothing.
  usrbio,
  /// These where the files lie on 3FS and its client library is there; else `automatic`, which is logged.
  usrbio_or_uring,
};

struct engine_options {
  /// Of the engine's threads, at most 15 characters.
  std::string name = "troupe-io";
  /// Requests given to the kernel at a time; the others wait inside the engine.
  std::uint32_t depth = 64;
  /// Threads of the engine that takes the place of io_uring where there is none.
  std::uint32_t threads = 16;
  /// Threads of the kernel, at most, that carry out large reads from the page cache side by side for io_uring; by
  /// itself it makes such copies one after the other, as fast as one thread can. Writes to one file exclude each other
  /// in the kernel and remain as they are. 0: so do reads, as where there is no such limit (before Linux 5.15).
  std::uint32_t kernel_workers = default_kernel_workers();
  std::uint32_t max_files = 64;
  std::uint32_t max_buffers = 1024;
  engine_kind kind = engine_kind::automatic;
  /// Off: every transfer names its file and memory anew, as when the kernel refuses to register them.
  bool register_files = true;
  bool register_buffers = true;
  /// Of 3FS's rings.
  usrbio_options usrbio{};
  /// Looked at before each write, right before it is given to the system: closed, the write fails with `io_error` and
  /// ESTALE. Null: writes need nobody's leave.
  std::shared_ptr<const write_gate> gate{};
};

/// Starts an engine of the kind that the options ask for.
/// Error: `invalid_argument` for options out of range, `io_error` when no thread can be started, `unsupported` where
/// the kernel refuses io_uring, or 3FS is not there, and nothing else will do.
result<std::unique_ptr<engine>> make_engine(const engine_options& options, completion_sink sink);

} // namespace troupe::io
