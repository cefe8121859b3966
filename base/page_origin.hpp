#pragma once

#include <cstdint>

namespace troupe {

/// Whose page it is that is saved.
enum class page_origin : std::uint8_t {
  /// Of an engine of this node.
  client,
  /// Of another node, from which it was fetched. Its key is none that is new to the cluster.
  fetched,
  /// Likewise, and it has its home there: here it goes before others as soon as it has been read.
  guest,
};

} // namespace troupe
