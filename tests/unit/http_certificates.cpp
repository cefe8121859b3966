#include "tests/unit/http_certificates.hpp"

#include <atomic>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <stdexcept>

namespace troupe::http {

namespace {

void demand(bool holds, const char* what) {
  if (!holds)
    throw std::runtime_error{std::string{"OpenSSL: "} + what};
}

template <class Write>
std::string as_pem(Write write) {
  const std::unique_ptr<BIO, int (*)(BIO*)> bio{BIO_new(BIO_s_mem()), BIO_free};
  demand(write(bio.get()) == 1, "writing PEM");
  char* data = nullptr;
  const auto size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

using bio_ptr = std::unique_ptr<BIO, int (*)(BIO*)>;

bio_ptr bio_of(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

} // namespace

identity::identity(std::string_view name)
    : key_(EVP_EC_gen("P-256"), EVP_PKEY_free), certificate_(X509_new(), X509_free) {
  fill(name, nullptr);
}

identity::identity(std::string_view name, const identity& issuer, key_kind kind)
    : key_(kind == key_kind::rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256"), EVP_PKEY_free),
      certificate_(X509_new(), X509_free) {
  fill(name, &issuer);
}

identity::identity() : key_(EVP_EC_gen("P-256"), EVP_PKEY_free), certificate_(X509_new(), X509_free) {}

identity identity::for_names(std::string_view names, const identity& issuer, long until) {
  identity out;
  out.fill("by its names", &issuer, std::string(names), until);
  return out;
}

void identity::fill(std::string_view name, const identity* issuer, const std::string& names, long until) {
  static std::atomic<long> serial{1};
  auto* x = certificate_.get();
  demand(x != nullptr && key_ != nullptr, "a certificate");
  demand(X509_set_version(x, 2) == 1, "version");
  demand(ASN1_INTEGER_set(X509_get_serialNumber(x), serial++) == 1, "serial number");
  X509_gmtime_adj(X509_getm_notBefore(x), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x), until);
  demand(X509_set_pubkey(x, key_.get()) == 1, "public key");
  auto* subject = X509_get_subject_name(x);
  const auto* text = reinterpret_cast<const unsigned char*>(name.data());
  demand(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, text, static_cast<int>(name.size()), -1, 0) == 1,
         "name");
  demand(X509_set_issuer_name(x, issuer != nullptr ? X509_get_subject_name(issuer->certificate_.get()) : subject) == 1,
         "issuer");
  if (issuer == nullptr) {
    const std::unique_ptr<X509_EXTENSION, void (*)(X509_EXTENSION*)> is_authority{
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE"), X509_EXTENSION_free};
    demand(is_authority && X509_add_ext(x, is_authority.get(), -1) == 1, "basic constraints");
  }
  if (!names.empty()) {
    const std::unique_ptr<X509_EXTENSION, void (*)(X509_EXTENSION*)> called{
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names.c_str()), X509_EXTENSION_free};
    demand(called && X509_add_ext(x, called.get(), -1) == 1, "names");
  }
  demand(X509_sign(x, (issuer != nullptr ? issuer->key_ : key_).get(), EVP_sha256()) > 0, "signature");
}

bool identity::use_in(SSL_CTX& context) const {
  return SSL_CTX_use_certificate(&context, certificate_.get()) == 1 &&
         SSL_CTX_use_PrivateKey(&context, key_.get()) == 1;
}

std::string identity::certificate() const {
  return as_pem([&](BIO* out) { return PEM_write_bio_X509(out, certificate_.get()); });
}

std::string identity::key() const {
  return as_pem(
      [&](BIO* out) { return PEM_write_bio_PrivateKey(out, key_.get(), nullptr, nullptr, 0, nullptr, nullptr); });
}

tls_client::tls_client(std::uint16_t port, const tls_client_options& options)
    : client(port), context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free), ssl_(nullptr, SSL_free) {
  const std::unique_ptr<X509, void (*)(X509*)> trusted{
      PEM_read_bio_X509(bio_of(options.trusted_pem).get(), nullptr, nullptr, nullptr), X509_free};
  demand(X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), trusted.get()) == 1, "trusted certificate");
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
  SSL_CTX_set_max_proto_version(context_.get(), options.max_version);
  // Old versions are refused by the server, not by this side's caution.
  SSL_CTX_set_security_level(context_.get(), options.max_version < TLS1_2_VERSION ? 0 : 1);
  if (!options.ciphers.empty()) {
    // This includes ciphers that this side would not choose itself.
    SSL_CTX_set_security_level(context_.get(), 0);
    demand(SSL_CTX_set_cipher_list(context_.get(), options.ciphers.c_str()) == 1, "ciphers");
  }
  if (!options.certificate_pem.empty()) {
    const std::unique_ptr<X509, void (*)(X509*)> mine{
        PEM_read_bio_X509(bio_of(options.certificate_pem).get(), nullptr, nullptr, nullptr), X509_free};
    const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key{
        PEM_read_bio_PrivateKey(bio_of(options.key_pem).get(), nullptr, nullptr, nullptr), EVP_PKEY_free};
    demand(SSL_CTX_use_certificate(context_.get(), mine.get()) == 1, "own certificate");
    demand(SSL_CTX_use_PrivateKey(context_.get(), key.get()) == 1, "own key");
  }
  ssl_.reset(SSL_new(context_.get()));
  demand(SSL_set_fd(ssl_.get(), socket()) == 1, "socket");
  is_connected_ = SSL_connect(ssl_.get()) == 1;
  ERR_clear_error();
}

tls_client::~tls_client() = default;

bool tls_client::send(std::string_view bytes) {
  ERR_clear_error();
  return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
}

void tls_client::shut_down() {
  SSL_shutdown(ssl_.get());
}

std::size_t tls_client::receive(std::span<char> into) {
  if (SSL_pending(ssl_.get()) == 0)
    wait_for_bytes();
  ERR_clear_error();
  const auto n = SSL_read(ssl_.get(), into.data(), static_cast<int>(into.size()));
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

} // namespace troupe::http
