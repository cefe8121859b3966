#pragma once

#include "base/error.hpp"
#include "messages/cluster_messages.hpp"

#include <cstdint>
#include <string>

namespace troupe {

/// Whether a node, which is `own`, takes another one for a peer. unsupported if it is part of no cluster or speaks
/// another protocol, identity_mismatch if the other one is of another cluster: with a sentence for both sides.
result<void> judge_peer(const cluster_card& own, std::uint32_t protocol, const cluster_hello& other);

/// Whether somebody may attach as a node of the cluster of that name.
result<void> judge_peer(const cluster_card& own, const std::string& cluster);

} // namespace troupe
