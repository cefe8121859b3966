#include "actors/node/supervisor/peer_terms.hpp"

namespace troupe {

result<void> judge_peer(const cluster_card& own, const std::string& cluster) {
  if (own.cluster.empty())
    return fail(errc::unsupported, "node '" + own.node + "' is part of no cluster; set cluster.name and cluster.seeds");
  if (own.cluster != cluster)
    return fail(errc::identity_mismatch, "node '" + own.node + "' is part of cluster '" + own.cluster + "', not of '" +
                                             cluster + "'; only nodes with the same cluster.name share pages");
  return {};
}

result<void> judge_peer(const cluster_card& own, std::uint32_t protocol, const cluster_hello& other) {
  if (other.protocol != protocol)
    return fail(errc::unsupported, "node '" + own.node + "' speaks protocol " + std::to_string(protocol) +
                                       ", and node '" + other.from.node + "' " + std::to_string(other.protocol) +
                                       ": use the same version of Troupe on both");
  return judge_peer(own, other.from.cluster);
}

} // namespace troupe
