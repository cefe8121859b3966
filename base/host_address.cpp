#include "base/host_address.hpp"

#include <arpa/inet.h>
#include <cstring>
#include <netinet/in.h>

namespace troupe {

std::optional<host_address> host_address::of(const sockaddr& name) noexcept {
  if (name.sa_family == AF_INET) {
    sockaddr_in x{};
    std::memcpy(&x, &name, sizeof x);
    return of_ipv4(ntohl(x.sin_addr.s_addr));
  }
  if (name.sa_family != AF_INET6)
    return std::nullopt;
  sockaddr_in6 x{};
  std::memcpy(&x, &name, sizeof x);
  host_address out;
  std::memcpy(out.bytes.data(), &x.sin6_addr, out.bytes.size());
  return out;
}

std::string host_address::text() const {
  std::array<char, INET6_ADDRSTRLEN> out{};
  const bool four = is_ipv4();
  const auto* const from = bytes.data() + (four ? 12 : 0);
  return ::inet_ntop(four ? AF_INET : AF_INET6, from, out.data(), out.size()) == nullptr ? std::string() : out.data();
}

} // namespace troupe
