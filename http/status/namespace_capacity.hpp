#pragma once

#include "messages/messages.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe::http::node_status {

/// The capacity of a namespace, and the tier that bounds it.
struct namespace_capacity {
  /// Keys that can be complete: the pages of the rank with the least room.
  std::uint64_t keys = 0;
  /// The total of all ranks.
  std::uint64_t pages = 0;
  std::uint64_t bytes = 0;
  /// "disk", "memory", or "engine" if the pages are in an engine's file. For the rank with the least room; empty
  /// without ranks.
  std::string_view bounded_by;

  friend bool operator==(const namespace_capacity&, const namespace_capacity&) = default;
};

/// The room of a node for pages of all namespaces.
struct room_of_node {
  std::uint64_t arena_bytes = 0;
  std::uint64_t extent_bytes = 0;
  /// `storage.disk_bytes`.
  std::uint64_t made_slabs_limit = 0;
};

/// The capacity as if all other namespaces were empty. `kept`: statistics of the allocators and io workers of its
/// ranks, one per rank of `ns.ranks`; null if the pages are in an engine's file.
namespace_capacity capacity_of(const namespace_info& ns, const std::vector<const rank_stats*>& kept,
                               const room_of_node& room);

} // namespace troupe::http::node_status
