#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <type_traits>
#include <vector>

namespace troupe {

/// An IPv4 or IPv6 address of a host, without a port. Its 16 bytes are those of IPv6; an IPv4 address is mapped there
/// (::ffff:10.0.0.1), so that a host that is seen through sockets of either family compares equal. It is sent in
/// messages as it is in memory.
struct host_address {
  std::array<std::uint8_t, 16> bytes{};

  static constexpr host_address of_ipv4(std::uint32_t in_host_byte_order) noexcept {
    const auto octet = [&](unsigned shift) { return static_cast<std::uint8_t>(in_host_byte_order >> shift); };
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, octet(24), octet(16), octet(8), octet(0)}};
  }
  static constexpr host_address ipv4_loopback() noexcept { return of_ipv4(0x7f000001); }
  static constexpr host_address ipv6_loopback() noexcept { return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}; }
  /// Nothing for a name that is of neither family.
  static std::optional<host_address> of(const sockaddr& name) noexcept;
  /// Reads what `text` writes; nothing for any other text, as a name.
  static std::optional<host_address> parse(std::string_view text);

  constexpr bool is_ipv4() const noexcept {
    for (std::size_t i = 0; i < 10; ++i)
      if (bytes[i] != 0)
        return false;
    return bytes[10] == 0xff && bytes[11] == 0xff;
  }
  /// In host byte order; of an IPv4 address only.
  constexpr std::uint32_t ipv4() const noexcept {
    return std::uint32_t{bytes[12]} << 24U | std::uint32_t{bytes[13]} << 16U | std::uint32_t{bytes[14]} << 8U |
           bytes[15];
  }
  constexpr bool is_loopback() const noexcept { return is_ipv4() ? bytes[12] == 127 : bytes == ipv6_loopback().bytes; }
  /// An IPv6 address that has a meaning only together with an interface (fe80::/10).
  constexpr bool is_link_local() const noexcept { return bytes[0] == 0xfe && (bytes[1] & 0xc0U) == 0x80; }

  /// "10.0.0.1", or "2001:db8::1".
  std::string text() const;

  friend auto operator<=>(const host_address&, const host_address&) = default;
};

/// Reads addresses that are separated by commas, with spaces around them or not; an empty text has none. Nothing if one
/// of them is no address.
std::optional<std::vector<host_address>> parse_addresses(std::string_view text);

static_assert(std::is_trivially_copyable_v<host_address> && sizeof(host_address) == 16);

} // namespace troupe
