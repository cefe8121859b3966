#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <sys/socket.h>
#include <unordered_map>

namespace troupe::http {

/// The origin of a connection, for limits per address: an IPv4 address, also on an IPv6 socket; of IPv6 the first 64
/// bits, within which one machine may use any number of addresses.
struct address_key {
  std::array<std::uint64_t, 2> words{};

  static address_key of(const sockaddr_storage& x) noexcept;

  friend bool operator==(const address_key&, const address_key&) = default;
};

/// The number of connections from each address. Thread-safe.
class address_counts {
public:
  /// Adds a connection, unless there are `most` already.
  bool enter(const address_key& x, std::uint32_t most);
  void leave(const address_key& x) noexcept;

private:
  struct hash {
    std::size_t operator()(const address_key& x) const noexcept;
  };

  std::mutex mutex_;
  std::unordered_map<address_key, std::uint32_t, hash> counts_;
};

} // namespace troupe::http
