#include "http/server/tls.hpp"

#include <openssl/ssl.h>
#include <string>
#include <string_view>

namespace troupe::http {

namespace ssl = boost::asio::ssl;

namespace {

constexpr std::string_view session_context = "troupe";

tl::unexpected<error> unusable(std::string_view key, const std::filesystem::path& file,
                               const boost::system::error_code& why) {
  return fail(errc::invalid_argument, std::string{key} + " \"" + file.string() + "\" cannot be used: " + why.message());
}

} // namespace

result<std::shared_ptr<ssl::context>> load_tls(const config::http_tls_config& config) {
  const auto certificate = config.certificate.value_or("");
  const auto key = config.key.value_or("");
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  auto* native = context->native_handle();
  boost::system::error_code ec;
  if (SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION) != 1)
    return fail(errc::internal, "cannot restrict OpenSSL to TLS 1.2 or newer");
  // With TLS 1.2, only ciphers with forward secrecy and authenticated encryption. All ciphers of TLS 1.3 qualify.
  if (SSL_CTX_set_cipher_list(native, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1)
    return fail(errc::internal, "OpenSSL has none of the ciphers that are allowed with TLS 1.2");
  SSL_CTX_set_options(native, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  // An idle connection releases its buffers.
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
  context->use_certificate_chain_file(certificate.string(), ec);
  if (ec)
    return unusable("http.tls.certificate", certificate, ec);
  context->use_private_key_file(key.string(), ssl::context::pem, ec);
  if (ec)
    return unusable("http.tls.key", key, ec);
  if (SSL_CTX_check_private_key(native) != 1)
    return fail(errc::invalid_argument, "http.tls.key \"" + key.string() + "\" is not the key of http.tls.certificate");
  if (!config.client_ca)
    return context;
  context->load_verify_file(config.client_ca->string(), ec);
  if (ec)
    return unusable("http.tls.client_ca", *config.client_ca, ec);
  context->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert, ec);
  if (ec)
    return unusable("http.tls.client_ca", *config.client_ca, ec);
  // Lets a client with several certificates choose one.
  SSL_CTX_set_client_CA_list(native, SSL_load_client_CA_file(config.client_ca->c_str()));
  // Without it, OpenSSL refuses to resume sessions of clients that have been verified.
  SSL_CTX_set_session_id_context(native, reinterpret_cast<const unsigned char*>(session_context.data()),
                                 static_cast<unsigned>(session_context.size()));
  return context;
}

} // namespace troupe::http
