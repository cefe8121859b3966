#pragma once

#include "base/digest.hpp"

#include <array>
#include <cstddef>
#include <string_view>

namespace troupe::http::slots {

/// Turns the key strings of slot clients, which are arbitrary, into digests: XXH3-128, keyed. Thread-safe.
///
/// Guarantee: a digest depends on every byte of the string and on the key; two different strings out of n have the same
/// digest with a chance of about n² / 2^129, whatever the strings are, if their author knows neither the key nor
/// digests made with it. Digests are shown to administrators only. This is not cryptographic authentication: XXH3 is
/// not designed to withstand an attacker who sees digests.
///
/// The key has to be kept as long as the pages under its digests: with another key, they are not found.
class client_keys {
public:
  /// Random bytes, from which the 192 bytes of XXH3's secret are derived.
  using secret = std::array<std::byte, 32>;

  explicit client_keys(const secret& random_bytes);

  /// Never the null digest.
  key_digest digest(std::string_view key) const noexcept;

private:
  static constexpr std::size_t working_bytes = 192;

  std::array<unsigned char, working_bytes> working_secret_;
};

} // namespace troupe::http::slots
