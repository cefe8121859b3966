#pragma once

#include "base/error.hpp"

#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>
#include <filesystem>
#include <memory>
#include <openssl/ssl.h>
#include <optional>
#include <string>

namespace troupe::client_detail {

/// The authorities that a client trusts and the certificate that it presents: PEM files.
struct client_tls_files {
  /// Authorities of servers; not set: those of the system.
  std::optional<std::filesystem::path> authorities;
  /// The client's own, with the chain behind it, and its key; both or none.
  std::optional<std::filesystem::path> certificate;
  /// Only its owner and its group may have access to it.
  std::optional<std::filesystem::path> key;
};

/// Loads a TLS context for TLS 1.2 or newer with verified servers. Errors: invalid_argument, with the file and its
/// defect.
result<std::shared_ptr<boost::asio::ssl::context>> load_client_tls(const client_tls_files& files);

/// To be called before the handshake: the server has to present a certificate for this name or address. A name is also
/// sent to it (SNI). False if that cannot be required, as for an invalid name; nothing may be sent then.
bool expect_host(SSL& connection, const std::string& host);

/// Why a handshake, or a later operation, failed: the defect of the server's certificate, if that is the cause.
std::string tls_failure(SSL& connection, const boost::system::error_code& code);

} // namespace troupe::client_detail
