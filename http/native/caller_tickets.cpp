#include "http/native/caller_tickets.hpp"

#include <algorithm>
#include <cstring>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace troupe::http::native {

namespace {

void fill_randomly(std::span<unsigned char> out) {
  if (RAND_bytes(out.data(), static_cast<int>(out.size())) != 1)
    throw std::runtime_error{"OpenSSL has no random bytes"};
}

void append(std::string& out, std::uint64_t x) {
  out.append(reinterpret_cast<const char*>(&x), sizeof(x));
}

/// Never 0, which means no owner.
std::uint64_t keyed_hash(std::span<const unsigned char> key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), digest.data(), &size) == nullptr ||
      size < sizeof(std::uint64_t))
    throw std::runtime_error{"OpenSSL has no HMAC with SHA-256"};
  std::uint64_t out = 0;
  std::memcpy(&out, digest.data(), sizeof(out));
  return std::max<std::uint64_t>(out, 1);
}

} // namespace

caller_tickets::caller_tickets() {
  fill_randomly(key_);
}

ticket caller_tickets::in_registry(const caller& who, const ticket& named) const {
  const auto owner = keyed_hash(key_, "owner " + who.identity);
  // The numbers come first, so that no identity can be read as part of them.
  std::string text = "ticket ";
  append(text, named.owner);
  append(text, named.sequence);
  text += who.identity;
  return {owner, keyed_hash(key_, text)};
}

ticket caller_tickets::fresh() {
  constexpr std::uint64_t mask = (1ULL << 53U) - 1;
  std::array<std::uint64_t, 2> random{};
  fill_randomly(std::span(reinterpret_cast<unsigned char*>(random.data()), sizeof(random)));
  return {std::max<std::uint64_t>(random[0] & mask, 1), random[1] & mask};
}

} // namespace troupe::http::native
