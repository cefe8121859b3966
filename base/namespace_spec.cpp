#include "base/namespace_spec.hpp"

#include <string_view>

namespace troupe {

namespace {

void append(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append("=").append(std::to_string(value.size())).append(":").append(value).append("\n");
}

} // namespace

std::vector<kv_layer_shape> kv_geometry::shapes() const {
  std::vector<kv_layer_shape> out(layers, first_shape());
  for (const auto& group : further)
    out.insert(out.end(), group.layers, group.shape);
  return out;
}

std::uint64_t kv_geometry::layer_count() const noexcept {
  std::uint64_t out = layers;
  for (const auto& group : further)
    out += group.layers;
  return out;
}

std::uint64_t kv_geometry::page_bytes() const noexcept {
  auto token = first_shape().token_bytes() * layers;
  for (const auto& group : further)
    token += group.shape.token_bytes() * group.layers;
  return token * block_tokens;
}

std::string namespace_spec::identity_text() const {
  std::string out = "troupe namespace 1\n";
  append(out, "model", model);
  append(out, "revision", revision);
  append(out, "dtype", dtype);
  append(out, "layout", layout);
  append(out, "salt", salt);
  // Left out without groups: identities of stored pages never change.
  if (!group_of.empty())
    append(out, "group_of", group_of);
  append(out, "world_size", std::to_string(world_size));
  append(out, "layers", std::to_string(geometry.layers));
  append(out, "parts", std::to_string(geometry.parts));
  append(out, "heads", std::to_string(geometry.heads));
  append(out, "head_size", std::to_string(geometry.head_size));
  append(out, "element_bytes", std::to_string(geometry.element_bytes));
  append(out, "block_tokens", std::to_string(geometry.block_tokens));
  for (const auto& group : geometry.further) {
    append(out, "further_layers", std::to_string(group.layers));
    append(out, "parts", std::to_string(group.shape.parts));
    append(out, "heads", std::to_string(group.shape.heads));
    append(out, "head_size", std::to_string(group.shape.head_size));
    append(out, "element_bytes", std::to_string(group.shape.element_bytes));
  }
  return out;
}

} // namespace troupe
