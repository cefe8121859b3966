#pragma once

#include "base/tcp_connect.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::cluster {

/// The addresses of the nodes that a seed's name stands for: those of the family that has more of them, or of the
/// resolver's first where both have as many. A host with an address of each family is one node, not two; connecting by
/// its name tries both.
inline std::vector<std::string> nodes_of_name(const std::vector<socket_address>& all, std::uint16_t port) {
  const auto ipv6 = std::ranges::count_if(all, [](const auto& x) { return x.is_ipv6(); });
  const auto ipv4 = static_cast<std::ptrdiff_t>(all.size()) - ipv6;
  const bool wanted = ipv6 != ipv4 ? ipv6 > ipv4 : !all.empty() && all.front().is_ipv6();
  std::vector<std::string> out;
  for (const auto& x : all)
    if (x.is_ipv6() == wanted)
      out.push_back(endpoint_text(x.text(), port));
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

} // namespace troupe::cluster
