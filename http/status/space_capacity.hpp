#pragma once

#include "messages/messages.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe::http::node_status {

/// The most that a namespace can hold, and what bounds it.
struct space_capacity {
  /// Keys that can be complete: as many as the rank with the least room has pages.
  std::uint64_t keys = 0;
  /// Of all ranks together.
  std::uint64_t pages = 0;
  std::uint64_t bytes = 0;
  /// "disk", "memory", or "engine" where the pages are its engine's. Of the rank with the least room; empty without
  /// ranks.
  std::string_view bounded_by;

  friend bool operator==(const space_capacity&, const space_capacity&) = default;
};

/// What a node has for pages of all namespaces.
struct room_of_node {
  std::uint64_t arena_bytes = 0;
  std::uint64_t extent_bytes = 0;
  /// `storage.disk_bytes`.
  std::uint64_t made_slabs_limit = 0;
};

/// As if no other namespace had anything. `kept`: what the allocators and io workers of its ranks say, one per rank of
/// `space.ranks`; null where the pages are an engine's.
space_capacity capacity_of(const namespace_info& space, const std::vector<const rank_stats*>& kept,
                           const room_of_node& room);

} // namespace troupe::http::node_status
