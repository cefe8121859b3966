#pragma once

#include "base/clock.hpp"

#include <mutex>
#include <sys/socket.h>
#include <unordered_map>
#include <utility>

namespace troupe {

/// The sockets of connections that this process has closed and whose last bytes are still to be sent, each with a
/// deadline. A peer that reads nothing, such as a frozen process, would otherwise keep the socket open and CAF's
/// multiplexer from ending.
///
/// Thread-safe, because a multiplexer that is about to end runs no more functions of others: the deadlines are checked
/// in another thread.
class closing_sockets {
public:
  /// Adds the socket of a connection. It stays open until `remove`. The result is whether the checks must be started.
  [[nodiscard]] bool add(const void* connection, int socket, timestamp deadline) {
    const std::lock_guard held(gate_);
    sockets_.insert_or_assign(connection, entry{socket, deadline});
    return !std::exchange(checked_, true);
  }

  /// To be called before the socket is closed. Nothing happens if the connection is unknown.
  void remove(const void* connection) noexcept {
    const std::lock_guard held(gate_);
    sockets_.erase(connection);
  }

  /// Shuts down each socket whose deadline has passed. The result is whether the checks must go on.
  [[nodiscard]] bool cut_late(timestamp now) noexcept {
    const std::lock_guard held(gate_);
    for (const auto& [connection, of] : sockets_)
      if (now >= of.deadline)
        ::shutdown(of.socket, SHUT_RDWR);
    return checked_ = !sockets_.empty();
  }

private:
  struct entry {
    int socket;
    timestamp deadline;
  };

  std::mutex gate_;
  std::unordered_map<const void*, entry> sockets_;
  bool checked_ = false;
};

} // namespace troupe
