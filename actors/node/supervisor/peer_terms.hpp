#pragma once

#include "base/error.hpp"
#include "messages/cluster_messages.hpp"

#include <cstdint>
#include <string>

namespace troupe {

/// Whether this node, `own`, accepts another node as a peer. unsupported if this node is part of no cluster or the
/// other one speaks another protocol, identity_mismatch if the other one is of another cluster; the sentence is for
/// both sides.
result<void> judge_peer(const cluster_card& own, std::uint32_t protocol, const cluster_hello& other);

/// Whether a peer may attach as a node of the cluster of that name.
result<void> judge_peer(const cluster_card& own, const std::string& cluster);

} // namespace troupe
