#include "http_client/client_tls.hpp"

#include "base/private_file.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/error.hpp>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509err.h>
#include <string_view>

namespace troupe::client_detail {

namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

tl::unexpected<error> of_no_use(std::string_view what, const std::filesystem::path& file, const error_code& why) {
  std::error_code absent;
  return fail(errc::invalid_argument,
              "the " + std::string(what) + " \"" + file.string() + "\" cannot be used: " +
                  (std::filesystem::exists(file, absent) || absent ? why.message() : "there is no such file"));
}

} // namespace

result<std::shared_ptr<ssl::context>> load_client_tls(const client_tls_files& files) {
  auto out = std::make_shared<ssl::context>(ssl::context::tls_client);
  error_code code;
  if (SSL_CTX_set_min_proto_version(out->native_handle(), TLS1_2_VERSION) != 1)
    return fail(errc::internal, "cannot restrict OpenSSL to TLS 1.2 or newer");
  SSL_CTX_set_options(out->native_handle(), SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  out->set_verify_mode(ssl::verify_peer, code);
  if (code)
    return fail(errc::internal, "cannot enable the verification of certificates in OpenSSL: " + code.message());
  if (files.authorities)
    out->load_verify_file(files.authorities->string(), code);
  else
    out->set_default_verify_paths(code);
  if (code)
    return of_no_use("file of authorities", files.authorities.value_or("of the system"), code);
  if (files.certificate.has_value() != files.key.has_value())
    return fail(errc::invalid_argument, "a certificate needs its key, and a key its certificate");
  if (!files.certificate)
    return out;
  out->use_certificate_chain_file(files.certificate->string(), code);
  if (code)
    return of_no_use("certificate", *files.certificate, code);
  auto key = read_private_file(*files.key, "key", "secrets");
  if (!key)
    return tl::unexpected(key.error());
  out->use_private_key(boost::asio::buffer(*key), ssl::context::pem, code);
  OPENSSL_cleanse(key->data(), key->size());
  // A mismatch of two keys of one kind is reported at once; keys of two kinds are not compared before.
  const bool differs = code && ERR_GET_REASON(static_cast<unsigned long>(code.value())) == X509_R_KEY_VALUES_MISMATCH;
  if (code && !differs)
    return of_no_use("key", *files.key, code);
  if (differs || SSL_CTX_check_private_key(out->native_handle()) != 1) {
    ERR_clear_error();
    return fail(errc::invalid_argument, "\"" + files.key->string() + "\" is not the key of the certificate \"" +
                                            files.certificate->string() + "\"");
  }
  return out;
}

bool expect_host(SSL& connection, const std::string& host) {
  SSL_set_verify(&connection, SSL_VERIFY_PEER, nullptr);
  auto* const rules = SSL_get0_param(&connection);
  error_code is_name;
  boost::asio::ip::make_address(host, is_name);
  if (!is_name)
    return X509_VERIFY_PARAM_set1_ip_asc(rules, host.c_str()) == 1;
  X509_VERIFY_PARAM_set_hostflags(rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (host.empty() || X509_VERIFY_PARAM_set1_host(rules, host.data(), host.size()) != 1)
    return false;
  // The library has a macro for it, which casts in the old style. Addresses are not sent.
  auto name = host;
  return SSL_ctrl(&connection, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data()) == 1;
}

std::string tls_failure(SSL& connection, const error_code& code) {
  if (const auto verified = SSL_get_verify_result(&connection); verified != X509_V_OK)
    return std::string("the certificate of the server is refused: ") + X509_verify_cert_error_string(verified);
  if (code == ssl::error::stream_truncated)
    return "the connection was closed";
  if (code.category() != boost::asio::error::get_ssl_category())
    return code.message();
  switch (ERR_GET_REASON(static_cast<unsigned long>(code.value()))) {
  case SSL_R_WRONG_VERSION_NUMBER:
  case SSL_R_HTTP_REQUEST:
    return "the server does not speak TLS";
  case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
  case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
  case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
  case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
  case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    return "the server requires a client certificate, or another one: " + code.message();
  default:
    return code.message();
  }
}

} // namespace troupe::client_detail
