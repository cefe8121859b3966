#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/threads.hpp"
#include "base/write_gate.hpp"
#include "io/engine/usrbio_options.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace troupe::io {

/// `trim` frees the disk space of a range, which then reads as zeroes and keeps its place in the file.
enum class operation : std::uint8_t { read, write, trim };

/// One transfer between a file and memory. A trim has neither memory nor buffer.
struct request {
  operation op = operation::read;
  /// The id from `add_file`.
  std::uint32_t file = 0;
  /// Bytes. Offset, length and data are aligned to `page_alignment` where the file is open for direct I/O.
  std::uint64_t file_offset = 0;
  std::byte* data = nullptr;
  std::uint64_t length = 0;
  /// The id from `add_buffer` of the buffer that contains [data, data + length).
  std::uint32_t buffer = 0;
  /// Is returned in the completion. Unique among the requests that have not been completed.
  std::uint64_t tag = 0;
  /// `timestamp::max()` means none.
  timestamp deadline = timestamp::max();
};

/// The only answer to a request. The engine and the kernel no longer use its memory by then.
struct completion {
  std::uint64_t tag = 0;
  /// - `ok`: all bytes were transferred (the disk's own cache aside);
  /// - `timeout`: the deadline passed first, whatever the outcome of the transfer was afterwards;
  /// - `cancelled`, `shutting_down`: ended by `cancel` or `stop` before all bytes were transferred;
  /// - `slab_damaged`: the file ends before the bytes to read;
  /// - `no_space`, `io_error`: the system's error, see `system_errno`;
  /// - `invalid_argument`, `out_of_range`: no such file or buffer, nothing to transfer, or memory outside the buffer.
  errc status = errc::ok;
  int system_errno = 0;
};

/// Receives batches of completions, on the engine's own thread and never concurrently. It may call `submit` and
/// `cancel`, must not call `stop`, and must not block: nothing else completes meanwhile.
using completion_sink = std::function<void(std::span<const completion>)>;

/// Counters of an engine since its start.
struct engine_counters {
  std::uint64_t submitted = 0;
  std::uint64_t completed = 0;
  /// Transfers that were continued after the kernel had moved only a part or asked for a retry.
  std::uint64_t continued = 0;
  /// Completions of the kernel that belong to no request. Not 0 only with a defect.
  std::uint64_t unmatched = 0;
};

/// Reads and writes files without blocking the caller. Every submitted request is completed exactly once. All functions
/// may be called from any thread.
class engine {
public:
  virtual ~engine();

  /// Registers an open file. The descriptor stays the caller's and must stay open until `remove_file` or `stop`.
  /// Errors: `limit_exceeded`, `shutting_down`.
  virtual result<std::uint32_t> add_file(int descriptor) = 0;

  /// Waits until the engine no longer uses the file. The caller guarantees that no request of the file is in progress.
  virtual void remove_file(std::uint32_t file) = 0;

  /// Registers memory, and pins it where the kernel can use that. It must stay mapped until `remove_buffer` or `stop`.
  /// Errors: `limit_exceeded`, `invalid_argument`, `shutting_down`.
  virtual result<std::uint32_t> add_buffer(std::span<std::byte> bytes) = 0;

  /// Waits until the engine no longer uses the buffer. The caller guarantees that no request in it is in progress.
  virtual void remove_buffer(std::uint32_t buffer) = 0;

  /// Queues the requests in order and returns. After `stop` they are completed at once with `shutting_down`, by the
  /// calling thread.
  virtual void submit(std::span<const request> requests) = 0;

  /// Cancels the request with this tag. A waiting one is completed; one in progress is cancelled as far as the kernel
  /// can and completed when it has ended. Without such a request nothing happens.
  virtual void cancel(std::uint64_t tag) = 0;

  /// Cancels all requests, waits until the last has been completed, and ends the engine's threads. A second call waits
  /// for the first. The destructor calls it.
  virtual void stop() = 0;

  virtual engine_counters counters() const = 0;

  /// Whether transfers bypass the kernel, and therefore never hit its page cache.
  virtual bool goes_past_the_kernel() const noexcept { return false; }

  /// A description for logs: kind, depth and the kernel features in use.
  virtual std::string describe() const = 0;
};

/// Half of the cores, at least 2 and at most 8.
std::uint32_t default_kernel_workers() noexcept;

enum class engine_kind : std::uint8_t {
  /// io_uring, or the thread pool where the kernel refuses it, which is logged.
  automatic,
  /// io_uring only.
  uring,
  threads,
  /// 3FS's user-space rings only.
  usrbio,
  /// 3FS's rings where the files are on 3FS and its client library is installed; else `automatic`, which is logged.
  usrbio_or_uring,
};

struct engine_options {
  /// The name of the engine's threads.
  thread_name name{"troupe-io"};
  /// Requests given to the kernel at a time; the others wait inside the engine.
  std::uint32_t depth = 64;
  /// Threads of the engine that replaces io_uring where the kernel has none.
  std::uint32_t threads = 16;
  /// The most threads of the kernel that carry out large reads from the page cache concurrently for io_uring. By
  /// default it makes such copies one after the other, as fast as one thread can. Writes to one file exclude each other
  /// in the kernel and are not affected. 0: reads are not either, as before Linux 5.15, which has no such limit.
  std::uint32_t kernel_workers = default_kernel_workers();
  std::uint32_t max_files = 64;
  std::uint32_t max_buffers = 1024;
  engine_kind kind = engine_kind::automatic;
  /// False: every transfer names its file and memory anew, as when the kernel refuses to register them.
  bool register_files = true;
  bool register_buffers = true;
  /// Options of 3FS's rings.
  usrbio_options usrbio{};
  /// Is checked right before each write is given to the system. Closed: the write fails with `io_error` and ESTALE.
  std::shared_ptr<const write_gate> gate = write_gate::always_open();
};

} // namespace troupe::io
