#pragma once

#include "tests/unit/http_support.hpp"

#include <memory>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <string>
#include <string_view>

/// Certificates made on the spot, and a client that speaks TLS.

namespace troupe::http {

struct pem {
  std::string certificate;
  std::string key;
};

/// An authority, or an identity signed by one.
class identity {
public:
  enum class key_kind { elliptic, rsa };

  /// A self-signed authority.
  explicit identity(std::string_view name);
  /// Signed by `issuer`.
  identity(std::string_view name, const identity& issuer, key_kind kind = key_kind::elliptic);
  /// An identity signed by `issuer` for these names, as "IP:127.0.0.1,DNS:localhost", valid for `until` seconds.
  static identity for_names(std::string_view names, const identity& issuer, long until = 3600);

  std::string certificate() const;
  std::string key() const;
  /// Makes `context` present this certificate.
  bool use_in(SSL_CTX& context) const;

private:
  identity();
  void fill(std::string_view name, const identity* issuer, const std::string& names = {}, long until = 3600);

  std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key_;
  std::unique_ptr<X509, void (*)(X509*)> certificate_;
};

/// The authorities that a client trusts, and its certificate.
struct tls_client_options {
  std::string trusted_pem;
  /// Empty: none.
  std::string certificate_pem = {};
  std::string key_pem = {};
  int max_version = TLS1_3_VERSION;
  /// Ciphers of TLS 1.2 in OpenSSL's notation; empty selects its default.
  std::string ciphers = {};
};

class tls_client final : public client {
public:
  tls_client(std::uint16_t port, const tls_client_options& options);
  ~tls_client() override;

  /// Whether the handshake succeeded, as far as this side can tell.
  bool is_connected() const { return is_connected_; }
  bool send(std::string_view bytes) override;
  /// Sends the TLS close notification.
  void shut_down();

protected:
  std::size_t receive(std::span<char> into) override;

private:
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
  bool is_connected_ = false;
};

} // namespace troupe::http
