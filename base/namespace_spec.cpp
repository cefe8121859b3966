#include "base/namespace_spec.hpp"

#include <string_view>

namespace troupe {

namespace {

void append(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append("=").append(std::to_string(value.size())).append(":").append(value).append("\n");
}

} // namespace

std::string namespace_spec::identity_text() const {
  std::string out = "troupe namespace 1\n";
  append(out, "model", model);
  append(out, "revision", revision);
  append(out, "dtype", dtype);
  append(out, "layout", layout);
  append(out, "salt", salt);
  append(out, "world_size", std::to_string(world_size));
  append(out, "layers", std::to_string(geometry.layers));
  append(out, "parts", std::to_string(geometry.parts));
  append(out, "heads", std::to_string(geometry.heads));
  append(out, "head_size", std::to_string(geometry.head_size));
  append(out, "element_bytes", std::to_string(geometry.element_bytes));
  append(out, "block_tokens", std::to_string(geometry.block_tokens));
  return out;
}

} // namespace troupe
