#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/node_condition.hpp"

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace troupe {

/// Files by which a node is reached, or kept to itself: its Unix sockets, and the lock of its directory. Programs that
/// clean up (systemd-tmpfiles, below /tmp and /var/tmp) remove them under a node that runs. Then they are made anew;
/// while that fails, the node's condition says so (`socket_lost`).
///
/// The rules are in `look`, for one thread at a time.
class door_keeper {
public:
  struct file {
    /// As in "the socket /srv/troupe/troupe.sock".
    std::string name;
    std::function<bool()> is_there;
    /// `is_there` is true from then on.
    std::function<result<void>()> make_anew;
  };

  /// `condition` may not be null.
  door_keeper(std::shared_ptr<node_condition> condition, std::vector<file> files)
      : condition_(std::move(condition)), files_(std::move(files)) {}
  door_keeper(const door_keeper&) = delete;
  door_keeper& operator=(const door_keeper&) = delete;

  /// Makes anew what is gone. What has happened, for the log. May wait for the file system.
  std::vector<std::string> look();

  /// From now on a thread of its own looks once a second, and logs what it finds. To be called once. `io_error` where
  /// no thread is to be had.
  result<void> start();

private:
  void run(const std::stop_token& stop);

  std::shared_ptr<node_condition> condition_;
  std::vector<file> files_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  /// Ends before all else does.
  std::jthread thread_;
};

} // namespace troupe
