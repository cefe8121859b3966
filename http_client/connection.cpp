#include "http_client/connection.hpp"

#include "base/local_socket.hpp"
#include "http_client/client_tls.hpp"
#include "http_client/host_connection.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <chrono>
#include <openssl/err.h>
#include <optional>
#include <string>
#include <utility>

namespace troupe::client_detail {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using tcp = asio::ip::tcp;

error to_error(const error_code& code, const endpoint& where, std::string_view what) {
  const bool late = code == beast::error::timeout;
  std::string text = where.authority;
  text.append(": ").append(what).append(late ? ": it took too long" : ": " + code.message());
  return {late ? errc::timeout : errc::unreachable, std::move(text)};
}

tl::unexpected<attempt_failure> failed(error why, bool may_have_arrived) {
  return tl::unexpected(attempt_failure{std::move(why), may_have_arrived});
}

using local = asio::local::stream_protocol;
using local_stream = beast::basic_stream<local>;

/// A connection of any kind. `Stream` is the TCP stream, TLS on top of it, or the stream of a Unix socket. Operations
/// are asynchronous because only those can be cancelled; each is run to its end before the next begins.
template <class Stream>
class stream_connection final : public connection {
public:
  template <class... Ts>
  explicit stream_connection(const endpoint& where, Ts&... xs) : where_(where), stream_(context_, xs...) {}

  ~stream_connection() override {
    error_code ignored;
    // Without the close message of TLS: no requested data is outstanding.
    beast::get_lowest_layer(stream_).socket().close(ignored);
  }

  attempt<void> connect(timestamp deadline) {
    if constexpr (std::is_same_v<Stream, local_stream>) {
      error_code code;
      auto connected = connect_local(where_.socket, http_socket_name);
      if (!connected)
        return failed(std::move(connected.error()), false);
      stream_.socket().assign(local(), connected->release(), code);
      if (code)
        return failed(to_error(code, where_, "cannot connect"), false);
      return {};
    } else {
      return connect_by_name(deadline);
    }
  }

  attempt<answer> exchange(std::string_view request, std::size_t max_answer_bytes, timestamp deadline) override {
    reusable_ = false;
    error_code code;
    run(deadline, code, [&](auto done) {
      asio::async_write(stream_, asio::buffer(request), [done](error_code x, std::size_t) { done(x); });
    });
    if (code)
      return failed(to_error(code, where_, "cannot send the request"), true);
    beast::http::response_parser<beast::http::string_body> parser;
    parser.body_limit(max_answer_bytes);
    run(deadline, code, [&](auto done) {
      beast::http::async_read(stream_, buffer_, parser, [done](error_code x, std::size_t) { done(x); });
    });
    if (code == beast::http::error::body_limit)
      return failed({errc::limit_exceeded,
                     where_.authority + ": the answer has more than " + std::to_string(max_answer_bytes) + " bytes"},
                    true);
    if (code)
      return failed(to_error(code, where_, "no answer"), true);
    // Bytes after the answer belong to no request.
    reusable_ = parser.keep_alive() && buffer_.size() == 0;
    return answer{parser.get().result_int(), std::move(parser.get().body())};
  }

  bool is_reusable() const noexcept override { return reusable_; }

private:
  attempt<void> connect_by_name(timestamp deadline) {
    auto& socket = beast::get_lowest_layer(stream_).socket();
    const auto port = static_cast<std::uint16_t>(std::stoul(where_.port));
    if (auto made =
            connect_to_host(socket, where_.host, port, where_.authority, deadline - std::chrono::steady_clock::now());
        !made)
      return failed(std::move(made.error()), false);
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    return handshake(deadline);
  }

  /// Starts an operation by `start(done)` and runs it until it ends, by the deadline at the latest.
  template <class Start>
  void run(timestamp deadline, error_code& code, Start start) {
    beast::get_lowest_layer(stream_).expires_at(deadline);
    context_.restart();
    start([&code](error_code x) { code = x; });
    context_.run();
  }

  attempt<void> handshake(timestamp deadline) {
    if constexpr (std::is_same_v<Stream, beast::ssl_stream<beast::tcp_stream>>) {
      error_code code;
      auto& native = *stream_.native_handle();
      if (!expect_host(native, where_.host))
        return failed({errc::unreachable, where_.authority + ": no certificate can be for this name"}, false);
      ERR_clear_error();
      run(deadline, code, [&](auto done) { stream_.async_handshake(asio::ssl::stream_base::client, done); });
      if (code == beast::error::timeout)
        return failed(to_error(code, where_, "no TLS"), false);
      if (code)
        return failed({errc::unreachable, where_.authority + ": no TLS: " + tls_failure(native, code)}, false);
    } else {
      static_cast<void>(deadline);
    }
    return {};
  }

  endpoint where_;
  asio::io_context context_{1};
  Stream stream_;
  beast::flat_buffer buffer_;
  bool reusable_ = false;
};

template <class Connection>
attempt<std::unique_ptr<connection>> connected(std::unique_ptr<Connection> x, timestamp deadline) {
  if (auto done = x->connect(deadline); !done)
    return tl::unexpected(std::move(done.error()));
  return std::unique_ptr<connection>(std::move(x));
}

} // namespace

attempt<std::unique_ptr<connection>> connection::open(const endpoint& where, asio::ssl::context* tls,
                                                      timestamp deadline) {
  try {
    if (!where.socket.empty())
      return connected(std::make_unique<stream_connection<local_stream>>(where), deadline);
    if (tls != nullptr)
      return connected(std::make_unique<stream_connection<beast::ssl_stream<beast::tcp_stream>>>(where, *tls),
                       deadline);
    return connected(std::make_unique<stream_connection<beast::tcp_stream>>(where), deadline);
  } catch (const boost::system::system_error& e) { // for example, no file descriptors are left
    return failed({errc::unreachable, where.authority + ": " + e.what()}, false);
  }
}

} // namespace troupe::client_detail
