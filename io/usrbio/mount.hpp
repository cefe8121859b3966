#pragma once

#include "base/clock.hpp"
#include "base/unique_descriptor.hpp"
#include "io/usrbio/client_library.hpp"
#include "io/usrbio/options.hpp"
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

/// One daemon, from when it is there until it is gone; 0: there is none. Each daemon has another number.
using session_number = std::uint64_t;

class mount;

/// Memory in /dev/shm that a daemon was told of; not a byte of it is copied. What names it goes with the object.
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

/// Where 3FS is mounted, and whether its daemon is there. One object for each mount point of a process, which has a
/// thread: whatever asks the daemon may take as long as that likes. Thread-safe.
///
/// A daemon is gone when the directory that was opened with it is no directory of 3FS any more, or when the path leads
/// to another one: a file system that is mounted anew has another number for as long as the old directory is open. A
/// daemon that only takes its time is there.
class mount {
public:
  /// Of the mount point that the options name, or on which the directory lies.
  ///
  /// Errors: `unsupported` (no library, not 3FS), `invalid_argument`.
  static result<std::shared_ptr<mount>> open(const usrbio_options& options);

  mount(const mount&) = delete;
  mount& operator=(const mount&) = delete;
  ~mount();

  const client_functions& client() const noexcept { return library_->functions(); }
  const std::string& place() const noexcept { return place_; }

  /// As far as is known.
  session_number session() const noexcept { return session_.load(std::memory_order_acquire); }

  /// Has `changed` called, by the mount's thread, when a session has ended or begun; until `unwatch`, which waits for a
  /// call that is under way.
  std::uint64_t watch(std::function<void()> changed);
  void unwatch(std::uint64_t watcher);

  /// Has the daemon look now, instead of in a while: a transfer has failed in a way that makes one wonder.
  void look();

  /// The region of all of the file in which the memory lies, for this session: the same for all who ask. Error:
  /// `io_error` where the daemon does not take it.
  result<std::shared_ptr<const shared_region>> share(const shared_mapping& memory, std::uint64_t block_bytes,
                                                     session_number session);

  /// Takes away all names of a ring or of memory: the library forgets those of rings that have flags.
  void unlink_names(const iov& memory) const noexcept;

private:
  mount(std::shared_ptr<const client_library> library, std::string place);

  /// Looks once. False if there is no daemon.
  bool probe();
  bool begin_session();
  void set_session(session_number session);
  void keep_watch();
  std::string virtual_directory() const { return place_ + "/3fs-virt/iovs"; }

  const std::shared_ptr<const client_library> library_;
  const std::string place_;

  // Of the thread, and of `open` before there is one. Open as long as the session lasts: the daemon takes down what a
  // process made when this is closed, and so also of a daemon that the library itself never told of this process.
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
