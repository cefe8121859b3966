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

/// Accepts connections on one socket, on the thread of the first worker, and gives each to the worker with the fewest.
class listener {
public:
  listener(shared_state& shared, std::vector<std::unique_ptr<worker>>& workers);

  /// Listens on a socket that is bound already; before the workers run.
  result<void> open(bound_socket to_listen);
  /// Listens on a Unix socket, whose file is removed when this closes. Its callers need no token.
  result<void> open(local_listener to_listen);
  std::uint16_t port() const noexcept { return port_; }

  // The following functions run on the thread of the first worker, where connections that are handed back to it are
  // accepted.

  void start();
  void close();
  /// Replaces the Unix socket, whose file was removed.
  void replace(local_listener to_listen);

private:
  void accept_some();
  /// Decides after a failed accept whether to try the next connection, to wait for more, or to pause.
  void after_failure(int error);
  void hand_over(int socket, const sockaddr_storage& from);

  shared_state& shared_;
  std::vector<std::unique_ptr<worker>>& workers_;
  boost::asio::basic_socket_acceptor<boost::asio::ip::tcp, worker::executor> acceptor_;
  boost::asio::basic_waitable_timer<std::chrono::steady_clock, boost::asio::wait_traits<std::chrono::steady_clock>,
                                    worker::executor>
      pause_;
  /// Its file descriptor is owned by the acceptor.
  std::optional<local_listener> local_;
  std::uint16_t port_ = 0;
  bool is_exhausted_ = false;
  /// Set by the owner's stop: an acceptor that is closed for another reason is retried.
  bool is_over_ = false;
};

} // namespace troupe::http
