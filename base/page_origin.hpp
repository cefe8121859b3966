#pragma once

#include <cstdint>

namespace troupe {

/// The origin of a page that is saved.
enum class page_origin : std::uint8_t {
  /// An engine of this node.
  client,
  /// Another node, from which it was fetched. Its key is not new to the cluster.
  fetched,
  /// As `fetched`, and the other node is its home: here it is evicted first once it has been read.
  transient,
};

} // namespace troupe
