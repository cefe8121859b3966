#pragma once

#include "base/clock.hpp"
#include "base/unique_descriptor.hpp"
#include "io/engine/usrbio_options.hpp"
#include "io/usrbio/client_library.hpp"
#include "io/usrbio/shared_mapping.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

namespace troupe::io::usrbio {

/// The number of one life of a daemon; 0: there is none. Each daemon has another number.
using session_number = std::uint64_t;

class mount;

/// Memory in /dev/shm that was registered with a daemon, without a copy. Its name is removed with the object.
class shared_region {
public:
  shared_region(const shared_region&) = delete;
  shared_region& operator=(const shared_region&) = delete;
  ~shared_region();

  const iov& memory() const noexcept { return memory_; }

private:
  friend class mount;
  shared_region() = default;

  iov memory_;
  std::string link_;
};

/// A mount point of 3FS, and the state of its daemon. A process has one object for each mount point, with a thread,
/// since calls to the daemon may block indefinitely. Thread-safe.
///
/// A daemon counts as lost when the directory that was opened with it is no longer a directory of 3FS, or when the path
/// leads to another one: a new mount has another number while the old directory is open. A slow daemon is not lost.
class mount {
public:
  /// Opens the mount point in the options, or the one that contains the directory.
  ///
  /// Errors: `unsupported` (no library, not 3FS), `invalid_argument`.
  static result<std::shared_ptr<mount>> open(const usrbio_options& options);

  mount(const mount&) = delete;
  mount& operator=(const mount&) = delete;
  ~mount();

  const client_functions& client() const noexcept { return library_->functions(); }
  const std::string& place() const noexcept { return place_; }

  /// The last known session.
  session_number session() const noexcept { return session_.load(std::memory_order_acquire); }

  /// Registers `changed`, which the mount's thread calls when a session has ended or begun, until `unwatch`, which
  /// waits for a running call.
  std::uint64_t watch(std::function<void()> changed);
  void unwatch(std::uint64_t watcher);

  /// Probes the daemon now instead of at the next interval, after a suspicious failure of a transfer.
  void look();

  /// The region of the whole file that contains the memory, registered in that session with the daemon; all callers
  /// share it. Error: `io_error` where the daemon refuses it.
  result<std::shared_ptr<const shared_region>> share(const shared_mapping& memory, std::uint64_t block_bytes,
                                                     session_number session);

  /// Removes all names of a ring or of memory: the library forgets those of rings that have flags.
  void unlink_names(const iov& memory) const noexcept;

private:
  mount(std::shared_ptr<const client_library> library, std::string place);

  /// Probes once. Returns false if there is no daemon.
  bool probe();
  bool begin_session();
  void set_session(session_number session);
  void keep_watch();
  std::string virtual_directory() const { return place_ + "/3fs-virt/iovs"; }

  const std::shared_ptr<const client_library> library_;
  const std::string place_;

  // Used by the thread, and by `open` before the thread starts. Open while the session lasts: when it is closed, the
  // daemon removes what the process has registered, even if the library never registered the process with it.
  unique_descriptor held_;
  session_number last_session_ = 0;
  std::atomic<session_number> session_{0};

  std::mutex mutex_;
  std::condition_variable woken_;
  bool ending_ = false;
  bool asked_ = false;

  std::mutex regions_mutex_;
  std::map<std::pair<dev_t, ino_t>, std::pair<session_number, std::weak_ptr<const shared_region>>> regions_;

  std::mutex watchers_mutex_;
  std::map<std::uint64_t, std::function<void()>> watchers_;
  std::uint64_t next_watcher_ = 1;

  std::thread thread_;
};

} // namespace troupe::io::usrbio
