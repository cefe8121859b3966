#include "base/geometry_bounds.hpp"

#include <bit>
#include <limits>
#include <string_view>

namespace troupe {

namespace {

constexpr std::uint64_t most_layers =
    std::uint64_t{geometry_bounds::layers.most} * (1 + geometry_bounds::further_layers);
constexpr std::uint64_t most_token_bytes = most_layers * geometry_bounds::parts.most * geometry_bounds::heads.most *
                                           geometry_bounds::head_size.most * geometry_bounds::element_bytes.most;
static_assert(most_token_bytes < std::numeric_limits<std::int64_t>::max() / geometry_bounds::block_tokens.most,
              "kv_geometry::page_bytes multiplies without a look");

struct bounded_number {
  std::string_view name;
  std::uint64_t value;
  shape_bound bound;
};

std::optional<broken_bound> look_at(const bounded_number& x, const std::string& where, bool may_be_unknown) {
  if (x.bound.allows(x.value) || (may_be_unknown && x.value == 0))
    return std::nullopt;
  return broken_bound{where + std::string{x.name}, "is " + std::to_string(x.value) + ", and must be from " +
                                                       std::to_string(x.bound.least) + " to " +
                                                       std::to_string(x.bound.most)};
}

std::optional<broken_bound> look_at(std::uint32_t layers, const kv_layer_shape& shape, const std::string& where,
                                    bool may_be_unknown) {
  namespace bounds = geometry_bounds;
  for (const auto& x : {bounded_number{"layers", layers, bounds::layers},
                        {"parts", shape.parts, bounds::parts},
                        {"heads", shape.heads, bounds::heads},
                        {"head_size", shape.head_size, bounds::head_size},
                        {"element_bytes", shape.element_bytes, bounds::element_bytes}})
    if (auto broken = look_at(x, where, may_be_unknown))
      return broken;
  if (shape.element_bytes != 0 && !std::has_single_bit(shape.element_bytes))
    return broken_bound{where + "element_bytes",
                        "is " + std::to_string(shape.element_bytes) + ", and an element has 1, 2 or 4 bytes"};
  return std::nullopt;
}

} // namespace

std::optional<broken_bound> find_broken_bound(const kv_geometry& x, geometry_extent extent) {
  const bool may_be_unknown = extent == geometry_extent::as_far_as_known;
  if (auto broken = look_at(x.layers, x.first_shape(), {}, may_be_unknown))
    return broken;
  if (auto broken = look_at({"block_tokens", x.block_tokens, geometry_bounds::block_tokens}, {}, may_be_unknown))
    return broken;
  if (x.further.size() > geometry_bounds::further_layers)
    return broken_bound{"further_layers", "has " + std::to_string(x.further.size()) + " groups, and at most " +
                                              std::to_string(geometry_bounds::further_layers) + " are allowed"};
  for (std::size_t i = 0; i < x.further.size(); ++i)
    if (auto broken =
            look_at(x.further[i].layers, x.further[i].shape, "further_layers[" + std::to_string(i) + "].", false))
      return broken;
  return std::nullopt;
}

result<void> check_geometry(const kv_geometry& x, geometry_extent extent) {
  if (const auto broken = find_broken_bound(x, extent))
    return fail(errc::invalid_argument, "geometry: " + broken->where + " " + broken->what);
  return {};
}

} // namespace troupe
