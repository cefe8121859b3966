#include "http/server/listener.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace troupe::http {

namespace asio = boost::asio;
using asio::ip::tcp;
using error_code = boost::system::error_code;

namespace {

/// Accepts at most this many before other connections are served.
constexpr int accepts_at_once = 64;
/// Pause if there are no file descriptors or no memory.
constexpr std::chrono::milliseconds exhausted_pause{100};

} // namespace

listener::listener(shared_state& shared, std::vector<std::unique_ptr<worker>>& workers)
    : shared_(shared), workers_(workers), acceptor_(workers.front()->context().get_executor()),
      pause_(workers.front()->context().get_executor()) {}

result<void> listener::open(bound_socket to_listen) {
  if (auto listening = to_listen.listen(); !listening)
    return listening;
  port_ = to_listen.port();
  const auto protocol = to_listen.family() == AF_INET6 ? tcp::v6() : tcp::v4();
  error_code ec;
  acceptor_.assign(protocol, to_listen.release(), ec);
  if (!ec)
    acceptor_.non_blocking(true, ec);
  if (ec)
    return fail(errc::io_error, "cannot listen on port " + std::to_string(port_) + ": " + ec.message());
  return {};
}

result<void> listener::open(local_listener to_listen) {
  error_code ec;
  // The protocol is not used: connections are accepted with a system call.
  auto own = to_listen.take();
  acceptor_.assign(tcp::v4(), own.get(), ec);
  if (!ec)
    static_cast<void>(own.release()); // now owned by the acceptor
  else
    return fail(errc::io_error, "cannot listen on a Unix socket: " + ec.message());
  local_ = std::move(to_listen);
  return {};
}

void listener::start() {
  if (!acceptor_.is_open())
    return;
  acceptor_.async_wait(tcp::acceptor::wait_read, [this](const error_code& ec) {
    if (!ec)
      accept_some();
  });
}

void listener::close() {
  is_over_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  local_.reset();
}

void listener::replace(local_listener to_listen) {
  if (is_over_)
    return;
  // While its socket is open: later the inode number may belong to another file, which would be removed.
  local_.reset();
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  if (auto opened = open(std::move(to_listen)); !opened)
    shared_.log->error("{}", to_string(opened.error()));
  start();
}

void listener::accept_some() {
  for (int i = 0; i < accepts_at_once; ++i) {
    sockaddr_storage from{};
    socklen_t size = sizeof(from);
    const auto socket =
        ::accept4(acceptor_.native_handle(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0)
      return after_failure(errno);
    if (is_exhausted_)
      shared_.log->info("accepting connections again");
    is_exhausted_ = false;
    hand_over(socket, from);
  }
  start();
}

void listener::after_failure(int error) {
  switch (error) {
  case EMFILE:
  case ENFILE:
  case ENOBUFS:
  case ENOMEM:
    // The connection stays in the kernel's queue and would wake this thread again and again.
    if (!is_exhausted_)
      shared_.log->error("cannot accept connections: {}; retrying; if files are the cause, raise the limit (ulimit -n)",
                         std::strerror(error));
    is_exhausted_ = true;
    pause_.expires_after(exhausted_pause);
    pause_.async_wait([this](const error_code& ec) {
      if (!ec)
        accept_some();
    });
    return;
  default:
    // No connection, or one that ended before it was accepted.
    return start();
  }
}

void listener::hand_over(int socket, const sockaddr_storage& from) {
  arrival came{socket, local_.has_value(), arrival::kind::full, address_key::of(from)};
  const auto& limits = shared_.config.limits;
  if (shared_.connections.fetch_add(1) >= limits.connections)
    came.what = arrival::kind::reserve;
  else if (!shared_.addresses.enter(came.from, limits.connections_per_address))
    came.what = arrival::kind::reserve_of_address;
  if (came.is_reserve())
    shared_.connections.fetch_sub(1);
  const auto least = std::ranges::min_element(workers_, {}, [](const auto& x) { return x->load(); });
  auto& chosen = **least;
  chosen.expect_connection();
  asio::post(chosen.context(), [&chosen, came] { chosen.adopt(came); });
}

} // namespace troupe::http
