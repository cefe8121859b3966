#include "http/server/address_counts.hpp"

#include "base/digest.hpp"

#include <algorithm>
#include <cstring>
#include <netinet/in.h>

namespace troupe::http {

address_key address_key::of(const sockaddr_storage& x) noexcept {
  address_key out;
  std::uint32_t v4 = 0;
  if (x.ss_family == AF_INET) {
    sockaddr_in address{};
    std::memcpy(&address, &x, sizeof(address));
    v4 = address.sin_addr.s_addr;
  } else if (x.ss_family == AF_INET6) {
    sockaddr_in6 address{};
    std::memcpy(&address, &x, sizeof(address));
    const auto* bytes = static_cast<const unsigned char*>(address.sin6_addr.s6_addr);
    if (!IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
      std::memcpy(out.words.data(), bytes, sizeof(out.words[0]));
      out.words[1] = AF_INET6;
      return out;
    }
    std::memcpy(&v4, bytes + 12, sizeof(v4));
  }
  out.words = {v4, AF_INET};
  return out;
}

std::size_t address_counts::hash::operator()(const address_key& x) const noexcept {
  return mix(x.words[0], x.words[1]);
}

bool address_counts::enter(const address_key& x, std::uint32_t most) {
  const std::lock_guard guard{mutex_};
  auto& count = counts_[x];
  if (count >= most)
    return false;
  ++count;
  return true;
}

void address_counts::leave(const address_key& x) noexcept {
  const std::lock_guard guard{mutex_};
  const auto found = counts_.find(x);
  if (found != counts_.end() && --found->second == 0)
    counts_.erase(found);
}

} // namespace troupe::http
