#include "io/tcp/tcp_stream.hpp"

#include "base/tcp_connect.hpp"
#include "io/tcp/record_socket.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>
#include <utility>

namespace troupe::io::tcp {

namespace {

unique_descriptor new_socket(const socket_address& of) {
  return unique_descriptor(::socket(of.name.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

const sockaddr* raw(const socket_address& x) {
  return reinterpret_cast<const sockaddr*>(&x.name);
}

void set(int descriptor, int level, int option, int value) {
  static_cast<void>(::setsockopt(descriptor, level, option, &value, sizeof value));
}

bool passes(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == EINPROGRESS;
}

/// The shared context: TLS 1.3 with pre-shared keys, without certificates and without resumption.
SSL_CTX* context() {
  static SSL_CTX* const made = [] {
    auto* const out = SSL_CTX_new(TLS_method());
    if (out != nullptr &&
        (SSL_CTX_set_min_proto_version(out, TLS1_3_VERSION) != 1 ||
         SSL_CTX_set_ciphersuites(out, "TLS_AES_128_GCM_SHA256") != 1 || SSL_CTX_set_num_tickets(out, 0) != 1)) {
      SSL_CTX_free(out);
      return static_cast<SSL_CTX*>(nullptr);
    }
    if (out != nullptr)
      SSL_CTX_set_mode(out, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return out;
  }();
  return made;
}

/// The name of the key in the protocol. There is only one for a connection.
constexpr std::string_view key_name = "troupe memory 1";

/// A synthetic session with the token as its key. Null without memory.
SSL_SESSION* session_of(SSL* connection, const connection_token& token) {
  constexpr std::array<unsigned char, 2> aes_128_gcm_sha256{0x13, 0x01};
  auto* const out = SSL_SESSION_new();
  const auto* const cipher = SSL_CIPHER_find(connection, aes_128_gcm_sha256.data());
  if (out != nullptr &&
      (cipher == nullptr ||
       SSL_SESSION_set1_master_key(out, reinterpret_cast<const unsigned char*>(token.data()), token.size()) != 1 ||
       SSL_SESSION_set_cipher(out, cipher) != 1 || SSL_SESSION_set_protocol_version(out, TLS1_3_VERSION) != 1)) {
    SSL_SESSION_free(out);
    return nullptr;
  }
  return out;
}

} // namespace

class tcp_stream::encryption {
public:
  encryption(SSL* connection, int descriptor, const connection_token& token, std::uint64_t records_of_a_key)
      : socket_(descriptor), connection_(connection), token_(token), records_of_a_key_(records_of_a_key) {}
  encryption(const encryption&) = delete;
  encryption& operator=(const encryption&) = delete;
  ~encryption() { SSL_free(connection_); }

  SSL* connection() const noexcept { return connection_; }
  const connection_token& token() const noexcept { return token_; }

  /// Must be called before anything is moved. False without memory.
  bool open() {
    auto* const socket = socket_.open();
    if (socket == nullptr)
      return false;
    SSL_set_bio(connection_, socket, socket);
    return true;
  }

  outcome read(std::span<const iovec> into) {
    return all_of(into, read_waits_to_write_, SSL_ERROR_WANT_WRITE,
                  [&](const iovec& x, std::size_t& n) { return SSL_read_ex(connection_, x.iov_base, x.iov_len, &n); });
  }
  outcome write(std::span<const iovec> from) {
    // Nothing waits for more when this returns: either the last record has said so, or the socket is full and the
    // kernel sends.
    std::size_t left = 0;
    for (const auto& x : from)
      left += x.iov_len;
    left = std::min(left, encrypted_bytes_most);
    const auto out = all_of(from, write_waits_to_read_, SSL_ERROR_WANT_READ, [&](const iovec& x, std::size_t& n) {
      // OpenSSL writes one record at a time (SSL_MODE_ENABLE_PARTIAL_WRITE).
      socket_.expect_more(left > std::min<std::size_t>(x.iov_len, SSL3_RT_MAX_PLAIN_LENGTH));
      const int done = SSL_write_ex(connection_, x.iov_base, x.iov_len, &n);
      if (done == 1) {
        left -= std::min(left, n);
        count_records(n);
      }
      return done;
    });
    socket_.expect_more(false);
    return out;
  }
  short events(bool writing) const noexcept {
    return static_cast<short>(POLLIN | ((writing && !write_waits_to_read_) || read_waits_to_write_ ? POLLOUT : 0));
  }
  // OpenSSL takes the bytes of an incomplete record, so whatever is left in the socket's buffer can be read.
  // SSL_has_pending also counts an incomplete record, which would make the caller poll in a busy loop.
  bool has_more() const noexcept { return SSL_pending(connection_) > 0 || socket_.has_bytes(); }

private:
  /// Continues until everything is moved, or nothing can be moved at the moment. `other` is set when that waits for the
  /// other direction, as in a handshake.
  template <class Move>
  outcome all_of(std::span<const iovec> what, bool& other, int wants_other, const Move& move_some) {
    other = false;
    outcome out;
    if (!is_proven(other, wants_other, out))
      return out;
    for (const auto& x : what)
      for (std::size_t at = 0; at < x.iov_len;) {
        if (out.bytes >= encrypted_bytes_most)
          return out;
        std::size_t n = 0;
        ERR_clear_error();
        const int done = move_some({static_cast<std::byte*>(x.iov_base) + at, x.iov_len - at}, n);
        if (is_stopped(done, other, wants_other, out))
          return out;
        at += n;
        out.bytes += n;
      }
    return out;
  }

  /// Nothing more can be moved now. Moved bytes are reported first, the end of the stream the next time.
  bool is_stopped(int done, bool& other, int wants_other, outcome& out) const {
    if (done == 1)
      return false;
    const int why = SSL_get_error(connection_, done);
    other = why == wants_other;
    out.ended = out.bytes == 0 && why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE;
    return true;
  }

  /// Whether the other end has proved that it has the token. A certificate in its place would prove nothing.
  bool is_proven(bool& other, int wants_other, outcome& out) {
    if (proven_)
      return true;
    ERR_clear_error();
    if (is_stopped(SSL_do_handshake(connection_), other, wants_other, out))
      return false;
    proven_ = SSL_session_reused(connection_) == 1;
    out.ended = !proven_;
    return proven_;
  }

  // A key of AES-GCM is limited to 2^24.5 records (RFC 8446, 5.5), and OpenSSL does not count them.
  void count_records(std::size_t bytes) {
    records_ += (bytes + SSL3_RT_MAX_PLAIN_LENGTH - 1) / SSL3_RT_MAX_PLAIN_LENGTH;
    if (records_ >= records_of_a_key_ && SSL_key_update(connection_, SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
      records_ = 0;
  }

  record_socket socket_;
  SSL* connection_;
  connection_token token_;
  std::uint64_t records_of_a_key_;
  std::uint64_t records_ = 0;
  /// Nothing is moved before this is true.
  bool proven_ = false;
  bool read_waits_to_write_ = false;
  bool write_waits_to_read_ = false;
};

void tcp_stream::encryption_end::operator()(encryption* x) const noexcept {
  delete x;
}

result<listener> listen_on(const host_address& address) {
  auto name = socket_address::of(address, 0);
  listener out{new_socket(name), {address, 0}};
  if (!out.descriptor || ::bind(out.descriptor.get(), raw(name), name.size) != 0 ||
      ::listen(out.descriptor.get(), 16) != 0 ||
      ::getsockname(out.descriptor.get(), reinterpret_cast<sockaddr*>(&name.name), &name.size) != 0)
    return tl::unexpected<error>(
        system_error(errno, "cannot listen on " + address.text() + " for the node that moves pages"));
  out.where.port = name.port();
  return out;
}

void block_broken_pipes() {
  sigset_t what{};
  ::sigemptyset(&what);
  ::sigaddset(&what, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &what, nullptr);
}

tcp_stream::tcp_stream(unique_descriptor connection) : descriptor_(std::move(connection)) {
  if (!descriptor_)
    return;
  set(descriptor_.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  // Keep-alive detects a peer that disappeared without a reset also while nothing moves.
  set(descriptor_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor_.get(), IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(descriptor_.get(), IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(descriptor_.get(), IPPROTO_TCP, TCP_KEEPCNT, 3);
}

result<tcp_stream> tcp_stream::connect(const endpoint& where, const std::optional<host_address>& from) {
  const auto name = socket_address::of(where.address, where.port);
  tcp_stream out(new_socket(name));
  if (out && from) {
    const auto own = socket_address::of(*from, 0);
    // The port is chosen when the other end is known, as without an address.
    set(out.descriptor(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (::bind(out.descriptor(), raw(own), own.size) != 0)
      return tl::unexpected<error>(system_error(errno, "cannot connect from the address " + from->text()));
  }
  if (!out || (::connect(out.descriptor(), raw(name), name.size) != 0 && !passes(errno)))
    return tl::unexpected<error>(system_error(errno, "cannot connect to the memory of the other end"));
  return out;
}

tcp_stream tcp_stream::accept(int listener) {
  return tcp_stream(unique_descriptor(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
}

std::optional<host_address> tcp_stream::peer_address() const {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  auto* const raw_name = reinterpret_cast<sockaddr*>(&name);
  return ::getpeername(descriptor(), raw_name, &length) == 0 ? host_address::of(*raw_name) : std::nullopt;
}

result<void> tcp_stream::encrypt(role mine, const connection_token& token, std::uint64_t records_of_a_key) {
  auto* const connection = context() != nullptr ? SSL_new(context()) : nullptr;
  if (connection == nullptr)
    return fail(errc::io_error, "cannot start TLS");
  encryption_.reset(new encryption(connection, descriptor(), token, records_of_a_key));
  if (!encryption_->open())
    return fail(errc::io_error, "cannot start TLS");
  SSL_set_app_data(connection, encryption_.get());
  if (mine == role::asks) {
    // The side that connects offers the key, and OpenSSL would continue without it if the other side answers with any
    // certificate. No certificate is trusted here, so that ends the connection.
    SSL_set_verify(connection, SSL_VERIFY_PEER, nullptr);
    SSL_set_psk_use_session_callback(connection, [](SSL* x, const EVP_MD*, const unsigned char** name,
                                                    std::size_t* name_bytes, SSL_SESSION** session) {
      *session = session_of(x, static_cast<const encryption*>(SSL_get_app_data(x))->token());
      *name = reinterpret_cast<const unsigned char*>(key_name.data());
      *name_bytes = key_name.size();
      return *session != nullptr ? 1 : 0;
    });
    SSL_set_connect_state(connection);
  } else {
    SSL_set_psk_find_session_callback(
        connection, [](SSL* x, const unsigned char* name, std::size_t name_bytes, SSL_SESSION** session) {
          const bool known = std::string_view(reinterpret_cast<const char*>(name), name_bytes) == key_name;
          *session = known ? session_of(x, static_cast<const encryption*>(SSL_get_app_data(x))->token()) : nullptr;
          return !known || *session != nullptr ? 1 : 0;
        });
    SSL_set_accept_state(connection);
  }
  return {};
}

short tcp_stream::events(bool writing) const noexcept {
  return encryption_ ? encryption_->events(writing) : static_cast<short>(writing ? POLLIN | POLLOUT : POLLIN);
}

bool tcp_stream::has_more() const noexcept {
  return encryption_ && encryption_->has_more();
}

tcp_stream::outcome tcp_stream::read(std::span<const iovec> into) {
  if (encryption_)
    return encryption_->read(into);
  msghdr what{};
  what.msg_iov = const_cast<iovec*>(into.data());
  what.msg_iovlen = into.size();
  const auto n = ::recvmsg(descriptor(), &what, 0);
  if (n > 0)
    return {static_cast<std::size_t>(n), false};
  return {0, n == 0 || !passes(errno)};
}

tcp_stream::outcome tcp_stream::write(std::span<const iovec> from) {
  if (encryption_)
    return encryption_->write(from);
  msghdr what{};
  what.msg_iov = const_cast<iovec*>(from.data());
  what.msg_iovlen = from.size();
  const auto n = ::sendmsg(descriptor(), &what, MSG_NOSIGNAL);
  if (n > 0)
    return {static_cast<std::size_t>(n), false};
  return {0, n < 0 && !passes(errno)};
}

void tcp_stream::abort() {
  const linger at_once{1, 0};
  static_cast<void>(::setsockopt(descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
  encryption_.reset();
  descriptor_.reset();
}

} // namespace troupe::io::tcp
