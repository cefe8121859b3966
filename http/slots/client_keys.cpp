#include "http/slots/client_keys.hpp"

// Keys are short: calling the library would take about as long as hashing them.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <openssl/sha.h>

namespace troupe::http::slots {

client_keys::client_keys(const secret& random_bytes) {
  static_assert(working_bytes >= XXH3_SECRET_SIZE_MIN && working_bytes % SHA512_DIGEST_LENGTH == 0);
  // XXH3 needs a secret without patterns: the random bytes, with a counter in front, are hashed.
  std::array<unsigned char, 1 + std::tuple_size_v<secret>> block{};
  std::ranges::transform(random_bytes, block.begin() + 1, [](std::byte b) { return static_cast<unsigned char>(b); });
  for (auto* at = working_secret_.data(); at != working_secret_.data() + working_bytes; at += SHA512_DIGEST_LENGTH) {
    ++block[0];
    SHA512(block.data(), block.size(), at);
  }
}

key_digest client_keys::digest(std::string_view key) const noexcept {
  const auto h = XXH3_128bits_withSecret(key.data(), key.size(), working_secret_.data(), working_bytes);
  const key_digest digest{h.high64, h.low64};
  // Elsewhere the null digest means "none".
  return digest.is_null() ? key_digest{0, 1} : digest;
}

} // namespace troupe::http::slots
