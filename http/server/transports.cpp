#include "http/server/transports.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <exception>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace troupe::http {

namespace asio = boost::asio;

namespace {

using error_code = boost::system::error_code;
using tcp_socket = asio::basic_stream_socket<asio::ip::tcp, asio::io_context::executor_type>;

tcp_socket take_over(asio::io_context& io, int socket) {
  tcp_socket result{io.get_executor()};
  error_code ec;
  // The listener's protocol may be IPv6; the protocol that is named here does not matter.
  result.assign(asio::ip::tcp::v4(), socket, ec);
  if (ec) {
    ::close(socket);
    throw boost::system::system_error{ec};
  }
  const int on = 1;
  // If it fails, answers wait for more to send with them: slower, but correct.
  static_cast<void>(::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
  return result;
}

void close_quietly(tcp_socket& socket) noexcept {
  error_code ignored;
  socket.close(ignored);
}

/// Asks the kernel, since nothing is read from the socket while a request waits for its answer.
bool has_ended(tcp_socket& socket) noexcept {
  pollfd x{socket.native_handle(), POLLRDHUP, 0};
  return ::poll(&x, 1, 0) > 0;
}

class plain_connection final : public connection, public std::enable_shared_from_this<plain_connection> {
public:
  plain_connection(connection_context& owner, std::uint64_t id, const arrival& came, tcp_socket&& socket)
      : connection(owner, id, came), socket_(std::move(socket)) {}

private:
  void start_handshake() override { on_handshake(true); }

  void start_read(std::span<char> into) override {
    socket_.async_read_some(
        asio::buffer(into.data(), into.size()),
        [self = shared_from_this()](const error_code& ec, std::size_t bytes) { self->on_read(ec ? 0 : bytes); });
  }

  /// Not through Asio, which would delay the end of a write until it has polled all sockets.
  std::optional<std::size_t> write_now(std::string_view bytes) noexcept override {
    const auto n = ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0)
      return static_cast<std::size_t>(n);
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
      return 0;
    return std::nullopt;
  }

  void start_write(std::string_view bytes) override {
    asio::async_write(socket_, asio::buffer(bytes.data(), bytes.size()),
                      [self = shared_from_this()](const error_code& ec, std::size_t) { self->on_written(!ec); });
  }

  bool end_sending() noexcept override {
    error_code ignored;
    socket_.shutdown(tcp_socket::shutdown_send, ignored);
    return true;
  }

  bool peer_has_ended() noexcept override { return has_ended(socket_); }
  void close_socket() noexcept override { close_quietly(socket_); }

  tcp_socket socket_;
};

class tls_connection final : public connection, public std::enable_shared_from_this<tls_connection> {
public:
  tls_connection(connection_context& owner, std::uint64_t id, const arrival& came, tcp_socket&& socket,
                 std::shared_ptr<asio::ssl::context> context)
      : connection(owner, id, came), context_(std::move(context)), stream_(std::move(socket), *context_) {}

private:
  void start_handshake() override {
    stream_.async_handshake(asio::ssl::stream_base::server, [self = shared_from_this()](const error_code& ec) {
      if (ec.category() == asio::error::get_ssl_category() &&
          ERR_GET_REASON(static_cast<unsigned long>(ec.value())) == SSL_R_HTTP_REQUEST)
        self->answer_in_plain();
      self->on_handshake(!ec);
    });
  }

  /// For a client that speaks HTTP without TLS here. The answer is lost if the socket does not take it.
  void answer_in_plain() noexcept {
    constexpr std::string_view answer =
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 50\r\nConnection: close\r\n\r\n"
        R"({"detail":"this port speaks TLS: use https://…"})";
    auto& socket = stream_.next_layer();
    static_cast<void>(::send(socket.native_handle(), answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
    error_code ignored;
    socket.shutdown(tcp_socket::shutdown_send, ignored);
  }

  void start_read(std::span<char> into) override {
    is_reading_ = true;
    stream_.async_read_some(asio::buffer(into.data(), into.size()),
                            [self = shared_from_this()](const error_code& ec, std::size_t bytes) {
                              self->is_reading_ = false;
                              self->on_read(ec ? 0 : bytes);
                            });
  }

  std::optional<std::size_t> write_now(std::string_view) noexcept override { return 0; }

  void start_write(std::string_view bytes) override {
    asio::async_write(stream_, asio::buffer(bytes.data(), bytes.size()),
                      [self = shared_from_this()](const error_code& ec, std::size_t) { self->on_written(!ec); });
  }

  bool end_sending() noexcept override {
    if (is_reading_) {
      error_code ignored;
      stream_.next_layer().shutdown(tcp_socket::shutdown_send, ignored);
      return true;
    }
    try {
      stream_.async_shutdown([self = shared_from_this()](const error_code&) { self->close(); });
    } catch (const std::exception&) {
      close();
    }
    return false;
  }

  bool peer_has_ended() noexcept override { return has_ended(stream_.next_layer()); }
  void close_socket() noexcept override { close_quietly(stream_.next_layer()); }

  std::shared_ptr<asio::ssl::context> context_;
  asio::ssl::stream<tcp_socket> stream_;
  bool is_reading_ = false;
};

} // namespace

std::shared_ptr<connection> make_connection(connection_context& owner, asio::io_context& io, std::uint64_t id,
                                            const arrival& came, std::shared_ptr<asio::ssl::context> tls) {
  auto mine = take_over(io, came.socket);
  if (tls)
    return std::make_shared<tls_connection>(owner, id, came, std::move(mine), std::move(tls));
  return std::make_shared<plain_connection>(owner, id, came, std::move(mine));
}

} // namespace troupe::http
