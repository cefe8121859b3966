#include "base/host_address.hpp"

#include "base/text_parts.hpp"

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

std::optional<host_address> host_address::parse(std::string_view text) {
  const std::string name(text);
  in_addr four{};
  if (::inet_pton(AF_INET, name.c_str(), &four) == 1)
    return of_ipv4(ntohl(four.s_addr));
  host_address out;
  return ::inet_pton(AF_INET6, name.c_str(), out.bytes.data()) == 1 ? std::optional(out) : std::nullopt;
}

std::optional<std::vector<host_address>> parse_addresses(std::string_view text) {
  std::vector<host_address> out;
  for (bool more = !trimmed(text).empty(); more;) {
    const auto comma = text.find(',');
    const auto one = host_address::parse(trimmed(text.substr(0, comma)));
    if (!one)
      return std::nullopt;
    out.push_back(*one);
    more = comma != std::string_view::npos;
    if (more)
      text.remove_prefix(comma + 1);
  }
  return out;
}

std::string host_address::text() const {
  std::array<char, INET6_ADDRSTRLEN> out{};
  const bool four = is_ipv4();
  const auto* const from = bytes.data() + (four ? 12 : 0);
  return ::inet_ntop(four ? AF_INET : AF_INET6, from, out.data(), out.size()) == nullptr ? std::string() : out.data();
}

} // namespace troupe
