#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <sys/socket.h>
#include <unordered_map>

namespace troupe::http {

/// Where a connection comes from, as far as limits tell addresses apart: IPv4 as it is, whatever the socket; of IPv6
/// the first 64 bits, within which one machine may take as many addresses as it likes.
struct address_key {
  std::array<std::uint64_t, 2> words{};

  static address_key of(const sockaddr_storage& x) noexcept;

  friend bool operator==(const address_key&, const address_key&) = default;
};

/// How many connections there are from each address. Thread-safe.
class address_counts {
public:
  /// Counts one more, unless there are `most` already.
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
