#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace troupe {

/// A process, and whether it has ended: the kernel has released everything through which it could access memory.
class watched_process {
public:
  watched_process() = default;
  watched_process(watched_process&&) = default;
  watched_process& operator=(watched_process&&) = default;
  virtual ~watched_process() = default;

  /// Does not block. Once true, always true.
  virtual bool gone() = 0;
};

/// Starts to watch a process. Returns null for one that is not to be watched.
using process_watcher = std::function<result<std::unique_ptr<watched_process>>(std::int32_t process)>;

/// A process of this host, observed through a pidfd.
///
/// `gone` means that all threads of the process have ended. Each of them has released the memory of the process and its
/// open files, and the work that closing these triggers has run, before the kernel reports its end (Linux,
/// kernel/exit.c: `do_exit` calls `exit_mm`, `exit_files` and `exit_task_work` before `exit_notify`; a pidfd becomes
/// readable when the last thread has passed that, `pidfd_poll` in fs/pidfs.c, and pidfd_open(2)). So no thread writes
/// any more, and the driver of a device that was open has ended its transfers, since it does so when its file is
/// closed. Drivers may defer that while the host suspends; then nothing else runs either.
///
/// It does not mean that no other process has the memory mapped. Forked children of the process may have it mapped, and
/// files that it passed to others stay open. Verification covers the bytes that these write.
class process_watch final : public watched_process {
public:
  /// Watches the process that has this number now. Numbers are reused: call it while something shows that the process
  /// is alive, such as a connection to it, and not after its end. From then on it refers to this process and no other.
  ///
  /// Errors: `unreachable` (no process in the caller's process namespace has this number), `unsupported` (a kernel
  /// before 5.3, or a container that forbids it), `io_error`.
  static result<process_watch> open(std::int32_t process);

  /// Watches the peer of a Unix socket: the process that connected, for an accepted socket; or the one that listens,
  /// for a connected one, as of when it began to listen. The kernel identifies it, not its number. Since Linux 6.5 it
  /// need not be visible in the caller's process namespace, and may have ended meanwhile. On older kernels the number
  /// is looked up, which is correct until the process has ended and been waited for: call it as soon as the connection
  /// has been accepted.
  ///
  /// Errors: `unsupported` (the number is not visible here, or the kernel is before 5.3), and those of `open`.
  static result<process_watch> of_peer(int socket);

  bool gone() override;

private:
  explicit process_watch(unique_descriptor descriptor) noexcept : descriptor_(std::move(descriptor)) {}

  unique_descriptor descriptor_;
};

/// The watcher of a host. Null for the calling process: it cannot outlive itself, and reports its own end in other
/// ways.
result<std::unique_ptr<watched_process>> watch_process(std::int32_t process);

} // namespace troupe
