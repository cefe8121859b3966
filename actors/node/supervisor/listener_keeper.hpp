#pragma once

#include "actors/support/node_condition.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/serial_executor.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// A monitor that recreates files by which a node is reached or protected: its Unix sockets, and the lock of its
/// directory. Programs that clean up (systemd-tmpfiles, below /tmp and /var/tmp) may remove them while the node runs.
/// While a file cannot be recreated, the node's condition says so (`socket_lost`).
///
/// The rules are in `look`, which one thread at a time may call.
class listener_keeper {
public:
  struct file {
    /// Such as "the socket /srv/troupe/troupe.sock".
    std::string name;
    std::function<bool()> is_there;
    /// Recreates the file; afterwards `is_there` is true.
    std::function<result<void>()> make_anew;
  };

  /// `condition` may not be null.
  listener_keeper(std::shared_ptr<node_condition> condition, std::vector<file> files)
      : condition_(std::move(condition)), files_(std::move(files)) {}
  listener_keeper(const listener_keeper&) = delete;
  listener_keeper& operator=(const listener_keeper&) = delete;

  /// Recreates missing files. Returns what happened, for the log. May block on the file system.
  std::vector<std::string> look();

  /// Starts a thread that checks once a second and logs changes. To be called once. `io_error` where no thread can be
  /// created.
  result<void> start();

private:
  std::shared_ptr<node_condition> condition_;
  std::vector<file> files_;
  /// Declared last, so that it ends first.
  std::unique_ptr<serial_executor> thread_;
};

} // namespace troupe
