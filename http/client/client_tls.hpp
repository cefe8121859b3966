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

/// Whom a client believes, and what it shows of itself: PEM files.
struct client_tls_files {
  /// Authorities of servers; not set: those of the system.
  std::optional<std::filesystem::path> authorities;
  /// The client's own, with the chain behind it, and its key; both or none.
  std::optional<std::filesystem::path> certificate;
  /// Nobody but its owner and its group may be able to use it.
  std::optional<std::filesystem::path> key;
};

/// TLS 1.2 or newer, with servers that are verified. Errors: invalid_argument, with the file and what is wrong with it.
result<std::shared_ptr<boost::asio::ssl::context>> load_client_tls(const client_tls_files& files);

/// Before the handshake: the server has to show a certificate for this name or address. A name is also told to it.
/// False where that cannot be asked for, as of a name that is none; nothing may be sent then.
bool expect_host(SSL& connection, const std::string& host);

/// Why a handshake, or what follows it, has ended so: what is wrong with the server's certificate, if that is it.
std::string tls_failure(SSL& connection, const boost::system::error_code& code);

} // namespace troupe::client_detail
