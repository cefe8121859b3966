#pragma once

#include "lmcache/protocol/operation.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace troupe::lmcache::protocol {

/// The supported versions of the protocol, by the release of LMCache that introduced them. No message contains its
/// version: it follows from the number of payloads and the names of fields, see versions.cpp.
enum class version : std::uint8_t { v0_5_6, v0_5_7 };

inline constexpr std::array versions{version::v0_5_6, version::v0_5_7};

/// "0.5.6"
std::string_view to_string(version x) noexcept;

/// A set of possible versions.
class version_set {
public:
  constexpr version_set() noexcept = default;
  constexpr version_set(std::initializer_list<version> all) noexcept {
    for (const auto x : all)
      bits_ = static_cast<std::uint8_t>(bits_ | bit(x));
  }
  static constexpr version_set all() noexcept { return {version::v0_5_6, version::v0_5_7}; }

  constexpr bool contains(version x) const noexcept { return (bits_ & bit(x)) != 0; }
  constexpr bool empty() const noexcept { return bits_ == 0; }

  friend constexpr version_set operator&(version_set a, version_set b) noexcept {
    a.bits_ = static_cast<std::uint8_t>(a.bits_ & b.bits_);
    return a;
  }
  friend constexpr version_set operator|(version_set a, version_set b) noexcept {
    a.bits_ = static_cast<std::uint8_t>(a.bits_ | b.bits_);
    return a;
  }
  constexpr version_set& operator&=(version_set x) noexcept { return *this = *this & x; }
  friend constexpr bool operator==(version_set, version_set) noexcept = default;

private:
  static constexpr std::uint8_t bit(version x) noexcept {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(x));
  }

  std::uint8_t bits_ = 0;
};

/// "0.5.6", "0.5.6 or 0.5.7", or "unknown" for none.
std::string to_string(version_set x);

/// Versions in which this operation has this number of payloads. Empty for an unknown operation.
version_set versions_of(operation x, std::size_t payloads) noexcept;

/// The numbers of payloads of an operation: "2 in 0.5.6, 3 in 0.5.7".
std::string payload_counts(operation x);

/// Fields that only some versions have.
enum class versioned_field : std::uint8_t { token_ids, token_bytes, group_layouts };

std::string_view name_of(versioned_field x) noexcept;
version_set versions_of(versioned_field x) noexcept;

} // namespace troupe::lmcache::protocol
