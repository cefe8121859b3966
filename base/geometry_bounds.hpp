#pragma once

#include "base/error.hpp"
#include "base/namespace_spec.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

/// What a number of a KV cache's shape may be; both included.
struct shape_bound {
  std::uint32_t least = 0;
  std::uint32_t most = 0;

  constexpr bool allows(std::uint64_t x) const noexcept { return x >= least && x <= most; }
};

/// The bounds of a geometry, by whichever door it comes in: the config, the HTTP API, a message, an engine's own
/// description of its cache. Within them the bytes of a page stay far below 2^63, so whoever has checked them may
/// multiply, and there are so few layers that a list of them is nothing.
namespace geometry_bounds {

/// Of one group.
inline constexpr shape_bound layers{1, 1024};
inline constexpr shape_bound parts{1, 2};
inline constexpr shape_bound heads{1, 1024};
inline constexpr shape_bound head_size{1, 16384};
/// Of these, powers of two.
inline constexpr shape_bound element_bytes{1, 4};
inline constexpr shape_bound block_tokens{1, 4096};
/// Groups of layers behind the first ones: models have one or two.
inline constexpr std::size_t further_layers = 64;

} // namespace geometry_bounds

/// Whether a geometry has to say everything.
enum class geometry_extent {
  /// Somebody moves pages by it.
  whole,
  /// Only clients know their pages: any number of the first layers may be 0, which is unknown.
  as_far_as_known,
};

/// The bound that a geometry breaks.
struct broken_bound {
  /// Where: "heads", "further_layers[2].layers", or "further_layers" if there are too many.
  std::string where;
  /// What is wrong there: "is 0, and must be from 1 to 1024".
  std::string what;
};

/// The first bound that is broken, in the order of the members.
std::optional<broken_bound> find_broken_bound(const kv_geometry& x, geometry_extent extent);

/// The same as an error, invalid_argument: "geometry: heads is 0, and must be from 1 to 1024".
result<void> check_geometry(const kv_geometry& x, geometry_extent extent = geometry_extent::whole);

} // namespace troupe
