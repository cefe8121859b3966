#include "lmcache/chunk_keys.hpp"

#include "base/message_digest.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

namespace troupe::lmcache {

namespace {

using digest256 = std::array<std::byte, 32>;

static_assert(std::endian::native == std::endian::little, "tokens are hashed in their memory layout");

void append(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append("=").append(std::to_string(value.size())).append(":").append(value).append("\n");
}

/// Unambiguous for all values. Keys outlive the process: another text makes everything a miss.
std::string root_text(const protocol::sequence_key& of) {
  std::string out = "troupe lmcache keys 1\n";
  append(out, "model", of.model);
  append(out, "world_size", std::to_string(of.world_size));
  append(out, "salt", of.salt);
  return out;
}

std::uint64_t number_at(const std::byte* in) noexcept {
  std::uint64_t out = 0;
  std::memcpy(&out, in, sizeof out);
  return out;
}

} // namespace

std::vector<key_digest> chunk_keys(const protocol::sequence_key& of, std::span<const std::uint32_t> tokens,
                                   std::uint32_t chunk_tokens) {
  std::vector<key_digest> out;
  thread_local message_digest sha256{"SHA256"};
  digest256 hash{};
  const auto root = root_text(of);
  if (chunk_tokens == 0 || !sha256.digest({std::as_bytes(std::span(root))}, hash))
    return out;
  const auto chunks = std::min<std::size_t>(of.end, tokens.size()) / chunk_tokens;
  out.reserve(chunks);
  for (std::size_t i = 0; i < chunks; ++i) {
    if (!sha256.digest({hash, std::as_bytes(tokens.subspan(i * chunk_tokens, chunk_tokens))}, hash))
      return {};
    key_digest key{number_at(hash.data()), number_at(hash.data() + 8)};
    // The null key means "none". One key in 2^128 is changed.
    if (key.is_null())
      key.lo = 1;
    out.push_back(key);
  }
  return out;
}

} // namespace troupe::lmcache
