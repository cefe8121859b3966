#pragma once

#include "base/error.hpp"
#include "base/namespace_spec.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

/// The range of a number in a KV cache's shape, both ends included.
struct shape_bound {
  std::uint32_t least = 0;
  std::uint32_t most = 0;

  constexpr bool allows(std::uint64_t x) const noexcept { return x >= least && x <= most; }
};

/// The bounds of a geometry from any source: the config, the HTTP API, a message, or an engine's description of its
/// cache. Within them the bytes of a page stay far below 2^63, so a caller that has checked them may multiply, and the
/// list of layers stays short.
namespace geometry_bounds {

/// The bounds of one group.
inline constexpr shape_bound layers{1, 1024};
inline constexpr shape_bound parts{1, 2};
inline constexpr shape_bound heads{1, 1024};
inline constexpr shape_bound head_size{1, 16384};
/// Powers of two only.
inline constexpr shape_bound element_bytes{1, 4};
inline constexpr shape_bound block_tokens{1, 4096};
/// Groups of layers after the first: models have one or two.
inline constexpr std::size_t further_layers = 64;

} // namespace geometry_bounds

/// Whether a geometry has to be complete.
enum class geometry_extent {
  /// Pages are moved by it, so all numbers are required.
  whole,
  /// Only clients interpret the pages: any number of the first layers may be 0, which means unknown.
  as_far_as_known,
};

/// A violated bound of a geometry.
struct broken_bound {
  /// The place: "heads", "further_layers[2].layers", or "further_layers" if there are too many.
  std::string where;
  /// The violation: "is 0, and must be from 1 to 1024".
  std::string what;
};

/// The first violated bound, in the order of the members.
std::optional<broken_bound> find_broken_bound(const kv_geometry& x, geometry_extent extent);

/// The same as an error, invalid_argument: "geometry: heads is 0, and must be from 1 to 1024".
result<void> check_geometry(const kv_geometry& x, geometry_extent extent = geometry_extent::whole);

} // namespace troupe
