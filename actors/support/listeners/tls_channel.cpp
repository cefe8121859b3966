#include "actors/support/listeners/tls_channel.hpp"

#include <algorithm>
#include <limits>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <utility>

namespace troupe {

namespace {

tl::unexpected<error> cannot(const char* what, const std::filesystem::path& file) {
  const auto code = ::ERR_peek_last_error();
  const char* why = code == 0 ? nullptr : ::ERR_reason_error_string(code);
  ::ERR_clear_error();
  std::error_code absent;
  if (!std::filesystem::exists(file, absent))
    why = "no such file";
  return fail(errc::invalid_argument,
              std::string(what) + " " + file.string() + ": " + (why != nullptr ? why : "the file cannot be read"));
}

/// Whether the alert is about a certificate of the side that receives it.
bool is_about_certificate(int alert) {
  return (alert >= SSL_AD_BAD_CERTIFICATE && alert <= SSL_AD_CERTIFICATE_UNKNOWN) || alert == SSL_AD_UNKNOWN_CA ||
         alert == SSL_AD_ACCESS_DENIED || alert == SSL_AD_CERTIFICATE_REQUIRED;
}

std::string failure_of(long verified, unsigned long reason) {
  if (verified != X509_V_OK)
    return std::string("its certificate is refused here: ") + ::X509_verify_cert_error_string(verified) +
           " (actors.tls.ca)";
  if (reason == 0)
    return {};
  // OpenSSL reports alerts of the other side as their number and an offset.
  if (const auto alert = ERR_GET_REASON(reason) - SSL_AD_REASON_OFFSET; alert >= 0) {
    const std::string name = ::SSL_alert_desc_string_long(alert);
    return is_about_certificate(alert) ? "it refuses the certificate of this side: " + name + " (actors.tls)"
                                       : "it ended the TLS handshake: " + name;
  }
  const char* const text = ::ERR_reason_error_string(reason);
  return std::string("TLS failed: ") + (text == nullptr ? "unknown error" : text);
}

int as_length(std::size_t size) {
  return static_cast<int>(std::min<std::size_t>(size, std::numeric_limits<int>::max()));
}

} // namespace

result<std::shared_ptr<tls_context>> tls_context::load(const tls_identity& identity) {
  auto* const made = ::SSL_CTX_new(::TLS_method());
  if (made == nullptr)
    return fail(errc::internal, "OpenSSL cannot create a context");
  std::shared_ptr<tls_context> out(new tls_context(made));
  ::ERR_clear_error();
  if (::SSL_CTX_use_certificate_chain_file(made, identity.certificate.c_str()) != 1)
    return cannot("cannot use the certificate", identity.certificate);
  if (::SSL_CTX_use_PrivateKey_file(made, identity.key.c_str(), SSL_FILETYPE_PEM) != 1)
    return cannot("cannot use the key", identity.key);
  if (::SSL_CTX_check_private_key(made) != 1)
    return cannot("the certificate does not belong to the key", identity.key);
  if (::SSL_CTX_load_verify_locations(made, identity.authorities.c_str(), nullptr) != 1)
    return cannot("cannot use the authorities", identity.authorities);
  if (::SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION) != 1)
    return fail(errc::unsupported, "this OpenSSL does not support TLS 1.3");
  ::SSL_CTX_set_verify(made, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  ::SSL_CTX_set_mode(made, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Sessions are not resumed, so that each connection is authenticated.
  ::SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_num_tickets(made, 0);
  return out;
}

tls_context::~tls_context() {
  ::SSL_CTX_free(context_);
}

std::unique_ptr<tls_channel> tls_channel::start(const tls_context& context, int descriptor, side which) {
  auto* const made = ::SSL_new(context.context_);
  if (made == nullptr)
    return nullptr;
  std::unique_ptr<tls_channel> out(new tls_channel(made));
  if (::SSL_set_fd(made, descriptor) != 1)
    return nullptr;
  if (which == side::server) {
    ::SSL_set_accept_state(made);
    return out;
  }
  ::SSL_set_connect_state(made);
  // Nothing is read yet: the first bytes of an answer, which may be here already, say what answers there
  // (`check_first_bytes`), and only as long as they are in the socket.
  auto* const nothing = ::BIO_new(::BIO_s_mem());
  if (nothing == nullptr)
    return nullptr;
  ::SSL_set0_rbio(made, nothing);
  // A failure is reported by the next read, with its cause.
  static_cast<void>(out->shake());
  return ::SSL_set_rfd(made, descriptor) == 1 ? std::move(out) : nullptr;
}

tls_channel::~tls_channel() {
  ::SSL_free(ssl_);
}

tls_channel::outcome tls_channel::after(int returned) {
  const auto code = ::SSL_get_error(ssl_, returned);
  const auto reason = ::ERR_peek_error();
  ::ERR_clear_error();
  if (code == SSL_ERROR_WANT_READ || code == SSL_ERROR_WANT_WRITE)
    return outcome::later;
  if (failure_.empty())
    failure_ = failure_of(::SSL_get_verify_result(ssl_), code == SSL_ERROR_SSL ? reason : 0);
  return outcome::failed;
}

tls_channel::outcome tls_channel::shake() {
  if (!failure_.empty())
    return outcome::failed;
  if (ready_)
    return outcome::done;
  ::ERR_clear_error();
  if (const auto returned = ::SSL_do_handshake(ssl_); returned != 1)
    return after(returned);
  ready_ = true;
  const auto held = std::exchange(held_, {});
  // The held bytes are CAF's handshake, which is shorter than any socket buffer.
  if (!held.empty() && ::SSL_write(ssl_, held.data(), as_length(held.size())) != as_length(held.size()))
    return outcome::failed;
  return outcome::done;
}

tls_channel::outcome tls_channel::read(std::size_t& got, void* into, std::size_t size) {
  got = 0;
  if (const auto shaken = shake(); shaken != outcome::done)
    return shaken;
  ::ERR_clear_error();
  const auto returned = ::SSL_read(ssl_, into, as_length(size));
  if (returned <= 0)
    return after(returned);
  got = static_cast<std::size_t>(returned);
  return outcome::done;
}

tls_channel::outcome tls_channel::write(std::size_t& put, const void* from, std::size_t size) {
  put = 0;
  if (!ready_) {
    // The socket is writable during the whole handshake, so waiting for it would spin. Reading continues the handshake
    // instead, and the bytes are kept until it ends.
    held_.append(static_cast<const char*>(from), size);
    put = size;
    return outcome::done;
  }
  if (size == 0)
    return outcome::done;
  ::ERR_clear_error();
  const auto returned = ::SSL_write(ssl_, from, as_length(size));
  if (returned <= 0)
    return after(returned);
  put = static_cast<std::size_t>(returned);
  return outcome::done;
}

bool tls_channel::peer_has_unit(std::string_view unit) const {
  const auto* const certificate = ::SSL_get0_peer_certificate(ssl_);
  if (certificate == nullptr)
    return false;
  const auto* const subject = ::X509_get_subject_name(certificate);
  for (int at = ::X509_NAME_get_index_by_NID(subject, NID_organizationalUnitName, -1); at >= 0;
       at = ::X509_NAME_get_index_by_NID(subject, NID_organizationalUnitName, at)) {
    const auto* const text = ::X509_NAME_ENTRY_get_data(::X509_NAME_get_entry(subject, at));
    const auto* const bytes = ::ASN1_STRING_get0_data(text);
    if (std::string_view(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(::ASN1_STRING_length(text))) ==
        unit)
      return true;
  }
  return false;
}

std::size_t tls_channel::pending() const {
  return static_cast<std::size_t>(std::max(0, ::SSL_pending(ssl_)));
}

} // namespace troupe
