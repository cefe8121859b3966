#include "http/listener.hpp"

#include <algorithm>
#include <boost/asio/ip/v6_only.hpp>
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

/// Between two looks at other connections.
constexpr int accepts_at_once = 64;
/// When there are no descriptors or no memory: until some may have come back.
constexpr std::chrono::milliseconds exhausted_pause{100};
/// Connections beyond the limit that are told so at once; more are just closed.
constexpr std::uint32_t max_refused = 256;

result<tcp::endpoint> resolve(const std::string& host, std::uint16_t port) {
  asio::io_context context;
  tcp::resolver resolver{context};
  error_code ec;
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, ec);
  if (ec || found.empty())
    return fail(errc::invalid_argument, "http.host \"" + host + "\" is no address of this machine: " + ec.message());
  // "localhost" is both; programs that know only one know this one.
  const auto is_v4 = [](const auto& x) { return x.endpoint().protocol() == tcp::v4(); };
  const auto first_v4 = std::find_if(found.begin(), found.end(), is_v4);
  return (first_v4 == found.end() ? found.begin() : first_v4)->endpoint();
}

} // namespace

listener::listener(shared_state& shared, std::vector<std::unique_ptr<worker>>& workers)
    : shared_(shared), workers_(workers), acceptor_(workers.front()->context().get_executor()),
      pause_(workers.front()->context().get_executor()) {}

result<void> listener::open() {
  const auto& config = shared_.config;
  const auto endpoint = resolve(config.host, config.port);
  if (!endpoint)
    return tl::unexpected(endpoint.error());
  const auto where = config.host + " port " + std::to_string(config.port);
  error_code ec;
  acceptor_.open(endpoint->protocol(), ec);
  if (!ec)
    acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec && endpoint->protocol() == tcp::v6() && endpoint->address().is_unspecified())
    acceptor_.set_option(asio::ip::v6_only(false), ec); // "::" means everywhere
  if (!ec)
    acceptor_.bind(*endpoint, ec);
  if (!ec)
    acceptor_.listen(asio::socket_base::max_listen_connections, ec);
  if (!ec)
    acceptor_.non_blocking(true, ec);
  if (ec == asio::error::address_in_use)
    return fail(errc::io_error, where + " is in use by another program: stop that, or set http.port to another port; " +
                                    "0 takes a free one");
  if (ec == asio::error::access_denied)
    return fail(errc::io_error, where + " is not for this user to listen on: set http.port to one above 1023");
  if (ec)
    return fail(errc::io_error, "cannot listen on " + where + ", see http.host and http.port: " + ec.message());
  port_ = acceptor_.local_endpoint(ec).port();
  if (ec)
    return fail(errc::io_error, where + ": " + ec.message());
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
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
}

void listener::accept_some() {
  for (int i = 0; i < accepts_at_once; ++i) {
    const auto socket = ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0)
      return after_failure(errno);
    if (is_exhausted_)
      shared_.log->info("connections are accepted again");
    is_exhausted_ = false;
    hand_over(socket);
  }
  start();
}

void listener::after_failure(int error) {
  switch (error) {
  case EMFILE:
  case ENFILE:
  case ENOBUFS:
  case ENOMEM:
    // The connection stays in the kernel's queue and would wake this thread for nothing, over and over.
    if (!is_exhausted_)
      shared_.log->error("no connection can be accepted for now: {}; if it is about files, raise the limit (ulimit -n)",
                         std::strerror(error));
    is_exhausted_ = true;
    pause_.expires_after(exhausted_pause);
    pause_.async_wait([this](const error_code& ec) {
      if (!ec)
        accept_some();
    });
    return;
  default:
    // Nothing there, or a connection that ended before it was accepted.
    return start();
  }
}

void listener::hand_over(int socket) {
  const auto is_refused = shared_.connections.fetch_add(1) >= shared_.config.limits.connections;
  if (is_refused) {
    shared_.connections.fetch_sub(1);
    if (shared_.refused.fetch_add(1) >= max_refused) {
      shared_.refused.fetch_sub(1);
      ::close(socket);
      if (shared_.watcher != nullptr)
        shared_.watcher->connection_refused();
      return;
    }
  }
  const auto least = std::ranges::min_element(workers_, {}, [](const auto& x) { return x->load(); });
  auto& chosen = **least;
  chosen.expect_connection();
  asio::post(chosen.context(), [&chosen, socket, is_refused] { chosen.adopt(socket, is_refused); });
}

} // namespace troupe::http
