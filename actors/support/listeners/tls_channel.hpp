#pragma once

#include "actors/support/listeners/tls_identity.hpp"
#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct ssl_st;
struct ssl_ctx_st;

namespace troupe {

/// A TLS 1.3 configuration with certificates on both sides, for connected non-blocking sockets.
class tls_context {
public:
  /// Loads the files; errors name the file that cannot be used.
  static result<std::shared_ptr<tls_context>> load(const tls_identity& identity);

  tls_context(const tls_context&) = delete;
  tls_context& operator=(const tls_context&) = delete;
  ~tls_context();

private:
  friend class tls_channel;
  explicit tls_context(ssl_ctx_st* context) : context_(context) {}

  ssl_ctx_st* context_;
};

/// The TLS state of one connection. Bytes that are written before the end of the TLS handshake are kept until then.
class tls_channel {
public:
  enum class outcome : std::uint8_t { done, later, failed };
  enum class side : std::uint8_t { client, server };

  /// A client sends the first message of the handshake at once, and reads nothing before `read`. Null if OpenSSL has no
  /// memory.
  static std::unique_ptr<tls_channel> start(const tls_context& context, int descriptor, side which);

  tls_channel(const tls_channel&) = delete;
  tls_channel& operator=(const tls_channel&) = delete;
  ~tls_channel();

  outcome read(std::size_t& got, void* into, std::size_t size);
  outcome write(std::size_t& put, const void* from, std::size_t size);

  /// Whether the certificate of the peer names that organizational unit. False before the end of the handshake.
  bool peer_has_unit(std::string_view unit) const;

  /// Why the connection has failed, where the cause is one of TLS: which check of the peer's certificate, or what the
  /// peer refuses. Empty otherwise.
  const std::string& failure() const noexcept { return failure_; }

  /// Bytes that were received from the socket and not read yet.
  std::size_t pending() const;

private:
  explicit tls_channel(ssl_st* made) : ssl_(made) {}

  outcome shake();
  outcome after(int returned);

  ssl_st* ssl_;
  bool ready_ = false;
  std::string held_;
  std::string failure_;
};

} // namespace troupe
