#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// A content address of 128 bits. The tag separates digests of different things at compile time.
template <class Tag>
struct digest128 {
  std::uint64_t hi = 0;
  std::uint64_t lo = 0;

  friend constexpr auto operator<=>(const digest128&, const digest128&) = default;

  /// The all-zero digest stands for "none" (no parent, no namespace).
  constexpr bool is_null() const noexcept { return hi == 0 && lo == 0; }
};

template <class Inspector, class Tag>
typename Inspector::result_type inspect(Inspector& f, digest128<Tag>& x) {
  return f(x.hi, x.lo);
}

/// The content address of a block, chained over its prefix: equal digests mean equal tokens from the start of the
/// sequence to the end of the block.
using key_digest = digest128<struct key_tag>;

/// The identity of a namespace: a digest of everything that must be equal for pages to be exchangeable.
using namespace_id = digest128<struct namespace_tag>;

/// 32 lower-case hexadecimal digits.
std::string to_hex(std::uint64_t hi, std::uint64_t lo);

template <class Tag>
std::string to_string(const digest128<Tag>& x) {
  return to_hex(x.hi, x.lo);
}

/// XXH3-128 of the bytes. Fast, not cryptographic: an attacker who chooses block contents can make two collide.
key_digest hash_key(std::span<const std::byte> bytes) noexcept;

/// The key of a block whose parent is `parent` (null for the first block) and whose content is `content`.
key_digest chain_key(const key_digest& parent, std::span<const std::byte> content) noexcept;

/// The identity of a namespace from its canonical text, see `namespace_spec::identity_text`.
namespace_id hash_namespace(std::string_view canonical_text) noexcept;

/// Spreads the digest over 64 bits, also where its own bits are not evenly distributed: clients may number their keys.
constexpr std::uint64_t mix(std::uint64_t hi, std::uint64_t lo) noexcept {
  std::uint64_t x = (hi ^ 0x9e3779b97f4a7c15ULL) * 0xff51afd7ed558ccdULL + lo;
  x ^= x >> 32;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 29;
  return x;
}

template <class Tag>
constexpr std::uint64_t mix(const digest128<Tag>& x) noexcept {
  return mix(x.hi, x.lo);
}

/// The registry shard, of `shard_count`, that owns the key. Uses the high half of the mixed digest; the index inside a
/// shard uses the low half, so that the two do not correlate.
constexpr std::uint32_t shard_of(const key_digest& key, std::uint32_t shard_count) noexcept {
  return static_cast<std::uint32_t>(((mix(key) >> 32) * shard_count) >> 32);
}

} // namespace troupe

template <class Tag>
struct std::hash<troupe::digest128<Tag>> {
  std::size_t operator()(const troupe::digest128<Tag>& x) const noexcept { return troupe::mix(x); }
};
