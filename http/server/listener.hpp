#pragma once

#include "base/bound_socket.hpp"
#include "base/error.hpp"
#include "base/local_socket.hpp"
#include "http/server/shared_state.hpp"
#include "http/server/worker.hpp"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <sys/socket.h>
#include <vector>

namespace troupe::http {

/// Accepts connections at one door, on the thread of the first worker, and gives each to the worker that has the
/// fewest.
class listener {
public:
  listener(shared_state& shared, std::vector<std::unique_ptr<worker>>& workers);

  /// Listens on a socket that has its address; before the workers run.
  result<void> open(bound_socket door);
  /// On a Unix socket, whose file goes when this closes. Who comes by it needs no token.
  result<void> open(local_listener door);
  std::uint16_t port() const noexcept { return port_; }

  // From here on on the thread of the first worker, where connections that come back to it are accepted.

  void start();
  void close();
  /// Listens on another Unix socket in the place of the one before, whose file was removed.
  void replace(local_listener door);

private:
  void accept_some();
  /// What could not be accepted: whether to try the next, to wait for more, or to pause.
  void after_failure(int error);
  void hand_over(int socket, const sockaddr_storage& from);

  shared_state& shared_;
  std::vector<std::unique_ptr<worker>>& workers_;
  boost::asio::basic_socket_acceptor<boost::asio::ip::tcp, worker::executor> acceptor_;
  boost::asio::basic_waitable_timer<std::chrono::steady_clock, boost::asio::wait_traits<std::chrono::steady_clock>,
                                    worker::executor>
      pause_;
  /// Its descriptor is the acceptor's.
  std::optional<local_listener> local_;
  std::uint16_t port_ = 0;
  bool is_exhausted_ = false;
  /// By whoever ends it: an acceptor that is closed otherwise could not be replaced, and is tried again.
  bool is_over_ = false;
};

} // namespace troupe::http
