#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::cli {

/// The answer to `/v1/cluster` of a node that is part of a cluster, as text for people: tables of this many columns,
/// and below them the reason for each node that is unreachable.
std::string cluster_screen(const nlohmann::json& cluster, std::size_t columns = 80);

/// One sentence for the cluster, and one for each other node.
std::vector<std::string> cluster_sentences(const nlohmann::json& cluster);

/// Whether all other nodes, and etcd where there is one, are reachable.
bool is_whole(const nlohmann::json& cluster);

} // namespace troupe::cli
