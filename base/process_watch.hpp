#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace troupe {

/// A process, and whether it is gone: the kernel has taken from it all by which it could touch memory.
class watched_process {
public:
  watched_process() = default;
  watched_process(watched_process&&) = default;
  watched_process& operator=(watched_process&&) = default;
  virtual ~watched_process() = default;

  /// Waits for nothing. Once true, always true.
  virtual bool gone() = 0;
};

/// Starts to watch a process. Null for one that is not to be watched.
using process_watcher = std::function<result<std::unique_ptr<watched_process>>(std::int32_t process)>;

/// A process of this host, seen through a pidfd.
///
/// What `gone` says: all threads of the process have ended. Each of them, on its way out, has given up the memory of
/// the process and its open files, and what closing these sets off has run, before the kernel says that it has ended
/// (Linux, kernel/exit.c: `do_exit` calls `exit_mm`, `exit_files` and `exit_task_work` before `exit_notify`; a pidfd is
/// readable from when the last of them is through that, `pidfd_poll` in fs/pidfs.c, and pidfd_open(2)). So no thread
/// writes any more, and the driver of a device that was open has ended its transfers: it does so as its file is closed.
/// Drivers may put that off while the host goes to sleep; then nothing else runs either.
///
/// What it does not say: that nobody else has the memory mapped. Children that the process has forked may, and files
/// that it has handed to others stay open. Their bytes are what verification is for.
class process_watch final : public watched_process {
public:
  /// The process that has this number now. Numbers are used again: to be called while something shows that the process
  /// is alive, such as a connection to it, and not after its end. From then on it is this process and no other.
  ///
  /// Errors: `unreachable` (no process in the process namespace of the caller has this number), `unsupported` (a kernel
  /// before 5.3, or a container that forbids it), `io_error`.
  static result<process_watch> open(std::int32_t process);

  /// The process that connected this Unix socket, which was accepted; or that listens, of one that was connected, as
  /// of when it began to. The kernel says which, and not its number. Since
  /// Linux 6.5 it need not be visible in the process namespace of the caller, and may have ended meanwhile. Before, the
  /// number is looked up, which is that process as long as it has not ended and been waited for: call it as soon as the
  /// connection has been accepted.
  ///
  /// Errors: `unsupported` (the number is not visible here, or the kernel is before 5.3), and those of `open`.
  static result<process_watch> of_peer(int socket);

  bool gone() override;

private:
  explicit process_watch(unique_descriptor descriptor) noexcept : descriptor_(std::move(descriptor)) {}

  unique_descriptor descriptor_;
};

/// The watcher of a host. Null for the process that calls it: it cannot outlive itself, and what happens in it says
/// when it is done.
result<std::unique_ptr<watched_process>> watch_process(std::int32_t process);

} // namespace troupe
