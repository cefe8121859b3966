#include "base/digest.hpp"

#include "base/hex.hpp"

#include <xxhash.h>

#include <array>

namespace troupe {

namespace {

// Separates key digests from namespace digests of the same bytes.
constexpr std::uint64_t namespace_seed = 0x6e616d6573706163ULL;

} // namespace

std::string to_hex(std::uint64_t hi, std::uint64_t lo) {
  std::string out;
  out.reserve(32);
  append_hex(out, hi);
  append_hex(out, lo);
  return out;
}

key_digest hash_key(std::span<const std::byte> bytes) noexcept {
  const auto h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.high64, h.low64};
}

key_digest chain_key(const key_digest& parent, std::span<const std::byte> content) noexcept {
  // The parent is both seed and prefix of the hashed text: the content is hashed first, so that it may have any length
  // without a copy.
  const auto h = XXH3_128bits(content.data(), content.size());
  const std::array<std::uint64_t, 4> link{parent.hi, parent.lo, h.high64, h.low64};
  return hash_key(std::as_bytes(std::span(link)));
}

namespace_id hash_namespace(std::string_view canonical_text) noexcept {
  const auto h = XXH3_128bits_withSeed(canonical_text.data(), canonical_text.size(), namespace_seed);
  return {h.high64, h.low64};
}

} // namespace troupe
