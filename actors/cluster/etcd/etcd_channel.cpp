#include "actors/cluster/etcd/etcd_channel.hpp"

#include "base/tcp_connect.hpp"
#include "base/threads.hpp"
#include "http_client/client_tls.hpp"
#include "http_client/host_connection.hpp"

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/system/system_error.hpp>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <utility>

namespace troupe::cluster {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using tcp = asio::ip::tcp;

/// One request and its answer, on a connection of its own. For one thread, except for `interrupt`.
class etcd_channel::exchange {
public:
  /// Any thread: ends the operation in progress at once, or within 0.1 s while it connects, and starts no other.
  void interrupt() {
    interrupted_ = true;
    context_.stop();
  }

  bool is_interrupted() const { return interrupted_; }

  /// Sends the request, and returns when the head of the answer has arrived: its status.
  result<unsigned> begin(const member& where, const job& what, const etcd_access& access, duration limit) {
    const auto authority = endpoint_text(where.host, where.port);
    const auto failed = [&](const char* doing, const error_code& code) {
      return fail(code == beast::error::timeout ? errc::timeout : errc::unreachable,
                  authority + ": " + doing + ": " + text_of(code));
    };
    if (access.has_tls()) {
      auto loaded = access.load_tls();
      if (!loaded)
        return tl::unexpected<error>(loaded.error());
      identity_ = std::move(*loaded);
      tls_.emplace(stream_, *identity_);
      if (!client_detail::expect_host(*tls_->native_handle(), where.host))
        return fail(errc::unreachable, authority + ": this name cannot be checked against a certificate");
    }
    if (auto made = client_detail::connect_to_host(stream_.socket(), where.host, where.port, authority, limit,
                                                   [this] { return interrupted_.load(); });
        !made)
      return tl::unexpected<error>(std::move(made.error()));
    error_code code;
    error_code ignored;
    // Keep-alive detects a dead member, so that its watch ends.
    stream_.socket().set_option(asio::socket_base::keep_alive(true), ignored);
    if (tls_) {
      ::ERR_clear_error();
      code = run(limit, [&](auto done) { tls_->async_handshake(asio::ssl::stream_base::client, done); });
      if (code)
        return failed("TLS handshake failed", code);
    }
    // etcd's gateway forwards a request without an Accept header under etcd's own certificate.
    request_ =
        "POST " + what.path + " HTTP/1.1\r\nHost: " + authority +
        (what.token.empty() ? "" : "\r\nAuthorization: " + what.token) +
        "\r\nAccept: application/json\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
        std::to_string(what.body.size()) + "\r\n\r\n" + what.body;
    code = run(limit, [&](auto done) {
      on_stream([&](auto& to) {
        asio::async_write(to, asio::buffer(request_), [done](error_code x, std::size_t) { done(x); });
      });
    });
    // The request may have a password.
    OPENSSL_cleanse(request_.data(), request_.size());
    if (code)
      return failed("cannot send a request", code);
    // The limit is set before memory is allocated for the length that the answer claims.
    parser_.body_limit(max_etcd_bytes);
    code = run(limit, [&](auto done) {
      on_stream([&](auto& from) {
        beast::http::async_read_header(from, buffer_, parser_, [done](error_code x, std::size_t) { done(x); });
      });
    });
    if (code)
      return failed("no answer", code);
    return parser_.get().result_int();
  }

  bool is_done() const { return parser_.is_done(); }

  /// Allows an answer of unlimited length.
  void read_without_end() { parser_.body_limit(boost::none); }

  /// Returns what has arrived of the body since. Waits without a limit where `limit` is empty.
  result<std::string> more(std::optional<duration> limit) {
    if (!parser_.is_done()) {
      const auto code = run(limit, [&](auto done) {
        on_stream([&](auto& from) {
          beast::http::async_read_some(from, buffer_, parser_, [done](error_code x, std::size_t) { done(x); });
        });
      });
      if (code)
        return fail(code == beast::error::timeout ? errc::timeout : errc::unreachable,
                    "the answer was cut off: " + text_of(code));
    }
    return std::exchange(parser_.get().body(), {});
  }

private:
  /// Calls `use` with the TLS stream, or with the plain connection where TLS is not configured.
  template <class Use>
  void on_stream(Use use) {
    if (tls_)
      use(*tls_);
    else
      use(stream_);
  }

  std::string text_of(const error_code& code) {
    if (code == beast::error::timeout)
      return "timed out";
    return tls_ ? client_detail::tls_failure(*tls_->native_handle(), code) : code.message();
  }

  template <class Start>
  error_code run(std::optional<duration> limit, Start start) {
    if (limit)
      stream_.expires_after(*limit);
    else
      stream_.expires_never();
    context_.restart();
    // The flag is checked after the restart: a later interruption stops the context.
    if (interrupted_)
      return asio::error::operation_aborted;
    // Handlers that are left over after an interruption keep this alive.
    const auto ended = std::make_shared<std::optional<error_code>>();
    start([ended](error_code x) { *ended = x; });
    context_.run();
    return ended->value_or(asio::error::operation_aborted);
  }

  std::atomic<bool> interrupted_{false};
  asio::io_context context_{1};
  beast::tcp_stream stream_{context_};
  std::shared_ptr<asio::ssl::context> identity_;
  std::optional<asio::ssl::stream<beast::tcp_stream&>> tls_;
  std::string request_;
  beast::flat_buffer buffer_;
  beast::http::response_parser<beast::http::string_body> parser_;
};

etcd_channel::etcd_channel(std::vector<member> members, etcd_access access, duration limit, listeners notified)
    : members_(std::move(members)), access_(std::move(access)), limit_(limit), notified_(std::move(notified)),
      asker_(named(thread_name("troupe-etcd"), [this] { run_asker(); })),
      watcher_(named(thread_name("troupe-etcdlook"), [this] { run_watcher(); })) {}

etcd_channel::~etcd_channel() {
  end();
}

void etcd_channel::end() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
    for (auto* each : {&asking_, &watching_})
      if (each->current != nullptr)
        each->current->interrupt();
  }
  more_.notify_all();
  for (auto* thread : {&asker_, &watcher_})
    if (thread->joinable())
      thread->join();
}

void etcd_channel::put(job_queue& at, job what) {
  {
    const std::lock_guard guard(mutex_);
    at.next = std::move(what);
  }
  more_.notify_all();
}

void etcd_channel::ask(std::uint64_t number, std::string path, std::string body, std::string token) {
  put(asking_, {number, std::move(path), std::move(body), std::move(token), false});
}

void etcd_channel::log_in(std::uint64_t number) {
  put(asking_, {number, "/v3/auth/authenticate", {}, {}, true});
}

void etcd_channel::watch(std::uint64_t number, std::string body, std::string token) {
  {
    const std::lock_guard guard(mutex_);
    watching_.next = job{number, "/v3/watch", std::move(body), std::move(token), false};
    if (watching_.current != nullptr)
      watching_.current->interrupt();
  }
  more_.notify_all();
}

void etcd_channel::end_with(std::string path, std::string body, std::string token) {
  end();
  try {
    exchange last;
    static_cast<void>(perform(last, {0, std::move(path), std::move(body), std::move(token), false}));
  } catch (const boost::system::system_error&) {
    // The lease expires without it.
  }
}

std::optional<etcd_channel::job> etcd_channel::take(job_queue& from) {
  std::unique_lock guard(mutex_);
  more_.wait(guard, [&] { return ending_ || from.next; });
  if (ending_)
    return std::nullopt;
  return std::exchange(from.next, std::nullopt);
}

/// Registers an exchange as interruptible while it lives.
class etcd_channel::slot {
public:
  slot(etcd_channel& of, job_queue& at, exchange& with) : mutex_(of.mutex_), at_(at) {
    const std::lock_guard guard(mutex_);
    at_.current = &with;
    // A job that arrived before found no exchange to interrupt.
    if (of.ending_ || at_.next)
      with.interrupt();
  }
  slot(const slot&) = delete;
  slot& operator=(const slot&) = delete;
  ~slot() {
    const std::lock_guard guard(mutex_);
    at_.current = nullptr;
  }

private:
  std::mutex& mutex_;
  job_queue& at_;
};

std::size_t etcd_channel::chosen() {
  const std::lock_guard guard(mutex_);
  return at_;
}

void etcd_channel::cancel(std::size_t at) {
  const std::lock_guard guard(mutex_);
  // The other thread may have switched already.
  if (at_ == at)
    at_ = (at_ + 1) % members_.size();
}

void etcd_channel::run_asker() {
  while (const auto what = take(asking_)) {
    result<etcd_reply> out;
    if (answer(*what, out))
      notified_.answered(what->number, std::move(out));
  }
}

bool etcd_channel::answer(const job& what, result<etcd_reply>& out) {
  try {
    exchange with;
    const slot here(*this, asking_, with);
    out = perform(with, what);
    return !with.is_interrupted();
  } catch (const boost::system::system_error& e) { // no file descriptors left, for example
    out = fail(errc::unreachable, e.what());
    return true;
  }
}

result<etcd_reply> etcd_channel::perform(exchange& with, job what) {
  constexpr unsigned first_of_servers = 500;
  if (what.is_login) {
    auto body = access_.read_login();
    if (!body)
      return tl::unexpected<error>(body.error());
    what.body = std::move(*body);
  }
  const auto at = chosen();
  auto answer = [&]() -> result<etcd_reply> {
    const auto status = with.begin(members_[at], what, access_, limit_);
    OPENSSL_cleanse(what.body.data(), what.body.size());
    if (!status)
      return tl::unexpected<error>(status.error());
    etcd_reply out{*status, {}};
    while (!with.is_done()) {
      const auto more = with.more(limit_);
      if (!more)
        return tl::unexpected<error>(more.error());
      out.body += *more;
      if (out.body.size() > max_etcd_bytes)
        return fail(errc::limit_exceeded, "etcd's answer exceeds the size limit");
    }
    out.body += with.more(limit_).value_or(std::string{});
    return out;
  }();
  if (!answer || answer->status >= first_of_servers)
    cancel(at);
  return answer;
}

void etcd_channel::run_watcher() {
  while (const auto what = take(watching_))
    if (follow(*what))
      notified_.watch_ended(what->number);
}

bool etcd_channel::follow(const job& what) {
  try {
    exchange with;
    const slot here(*this, watching_, with);
    read_lines(with, what);
    return !with.is_interrupted();
  } catch (const boost::system::system_error&) {
    return true;
  }
}

void etcd_channel::read_lines(exchange& with, const job& what) {
  constexpr unsigned fine = 200;
  const auto at = chosen();
  const auto status = with.begin(members_[at], what, access_, limit_);
  if (!status || *status != fine)
    return cancel(at);
  with.read_without_end();
  std::string text;
  while (!with.is_done()) {
    const auto more = with.more(std::nullopt);
    if (!more)
      return;
    text += *more;
    std::size_t begin = 0;
    for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
      if (end > begin && !with.is_interrupted())
        notified_.said(what.number, text.substr(begin, end - begin));
      begin = end + 1;
    }
    text.erase(0, begin);
    if (text.size() > max_etcd_bytes)
      return;
  }
}

} // namespace troupe::cluster
