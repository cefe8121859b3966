#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <openssl/evp.h>
#include <span>

namespace troupe {

/// A digest algorithm of OpenSSL with its context. Keep one per thread: looking up the algorithm and making a context
/// takes longer than hashing something short. Everything fails, and nothing else happens, where OpenSSL has no such
/// algorithm, as MD5 under some policies. Who uses it links OpenSSL::Crypto.
class message_digest {
public:
  using byte_view = std::span<const std::byte>;

  /// "SHA256", "MD5", … as OpenSSL names them.
  explicit message_digest(const char* algorithm)
      : algorithm_(EVP_MD_fetch(nullptr, algorithm, nullptr), EVP_MD_free), context_(EVP_MD_CTX_new(), free) {}

  bool available() const noexcept { return algorithm_ && context_; }

  bool begin() noexcept { return available() && EVP_DigestInit_ex2(context_.get(), algorithm_.get(), nullptr) == 1; }

  bool add(byte_view bytes) noexcept { return EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1; }

  /// `out` has room for the algorithm's digest.
  bool end(std::span<std::byte> out) noexcept {
    return EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(out.data()), nullptr) == 1;
  }

  bool digest(std::initializer_list<byte_view> parts, std::span<std::byte> out) noexcept {
    return begin() && std::ranges::all_of(parts, [this](byte_view part) { return add(part); }) && end(out);
  }

private:
  static void free(EVP_MD_CTX* x) noexcept { EVP_MD_CTX_free(x); }

  std::unique_ptr<EVP_MD, void (*)(EVP_MD*)> algorithm_;
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

} // namespace troupe
