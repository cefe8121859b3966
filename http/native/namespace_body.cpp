#include "http/native/namespace_body.hpp"

#include "base/geometry_bounds.hpp"
#include "config/kinds.hpp"
#include "http/native/native_body.hpp"
#include "http/native/native_members.hpp"

#include <initializer_list>
#include <limits>
#include <string>

namespace troupe::http::native {

namespace {

using simdjson::dom::object;
namespace bounds = geometry_bounds;

accepted<void> into(bool& out, const object& x, std::string_view name) {
  const auto value = optional_bool_member(x, name);
  if (!value)
    return hand_on(value);
  out = value->value_or(out);
  return {};
}

accepted<void> into(std::string& out, const object& x, std::string_view name, const config::text& kind,
                    bool required = false) {
  const auto value = optional_string_member(x, name);
  if (!value)
    return hand_on(value);
  if (*value)
    out = **value;
  else if (required)
    return refuse(name, "is missing");
  if (!kind.accepts(out))
    return refuse(name, std::string{"expected "}.append(kind.expected));
  return {};
}

/// A number in the shape of a KV cache.
struct shape_member {
  std::string_view name;
  std::uint32_t& value;
  shape_bound bound;
  bool required = false;
};

accepted<void> into(std::initializer_list<shape_member> members, const object& x, std::string_view where) {
  for (const auto& m : members) {
    auto read = number_into(m.value, x, m.name, m.bound.least, m.bound.most);
    if (read && m.required && m.value == 0)
      read = refuse(m.name, "is missing");
    if (!read)
      return tl::unexpected(rejection{read.error().code, std::string{where}.append(".").append(read.error().detail)});
  }
  return {};
}

accepted<void> into(std::vector<kv_layer_group>& out, const object& x) {
  simdjson::dom::element found;
  if (x.at_key("further_layers").get(found) != simdjson::SUCCESS || found.is_null())
    return {};
  const auto items = as_array(found, "kv_cache.further_layers", geometry_bounds::further_layers);
  if (!items)
    return hand_on(items);
  for (const auto item : *items) {
    const auto where = place("kv_cache.further_layers", out.size());
    const auto members = as_object(item, where);
    if (!members)
      return hand_on(members);
    auto& group = out.emplace_back();
    auto& shape = group.shape;
    if (auto read = into({{"layers", group.layers, bounds::layers, true},
                          {"parts", shape.parts, bounds::parts},
                          {"heads", shape.heads, bounds::heads, true},
                          {"head_size", shape.head_size, bounds::head_size, true},
                          {"element_bytes", shape.element_bytes, bounds::element_bytes}},
                         *members, where);
        !read)
      return hand_on(read);
  }
  return {};
}

accepted<void> into(kv_geometry& out, const object& x) {
  simdjson::dom::element found;
  if (x.at_key("kv_cache").get(found) != simdjson::SUCCESS || found.is_null())
    return {};
  const auto shape = as_object(found, "kv_cache");
  if (!shape)
    return hand_on(shape);
  if (auto read = into({{"layers", out.layers, bounds::layers},
                        {"parts", out.parts, bounds::parts},
                        {"heads", out.heads, bounds::heads},
                        {"head_size", out.head_size, bounds::head_size},
                        {"element_bytes", out.element_bytes, bounds::element_bytes},
                        {"block_tokens", out.block_tokens, bounds::block_tokens}},
                       *shape, "kv_cache");
      !read)
    return hand_on(read);
  if (auto read = into(out.further, *shape); !read)
    return read;
  // The bounds of each number were checked where it was read; this checks their combination.
  if (const auto broken = find_broken_bound(out, geometry_extent::as_far_as_known))
    return refuse("kv_cache." + broken->where, broken->what);
  return {};
}

} // namespace

accepted<create_body> read_create(const request& r) {
  const auto body = parse_json_object(r);
  if (!body)
    return hand_on(body);
  create_body out;
  auto& spec = out.spec;
  auto& options = out.options;
  const auto& x = *body;
  accepted<void> read;
  // Stops at the first failure.
  const auto all =
      (read = into(spec.name, x, "name", config::plain_name, true)) &&
      (read = into(spec.model, x, "model", config::some_text, true)) &&
      (read = into(spec.revision, x, "revision", config::free_text)) &&
      (read = into(spec.dtype, x, "dtype", config::free_text)) &&
      (read = into(spec.layout, x, "layout", config::some_text)) &&
      (read = into(spec.salt, x, "salt", config::free_text)) &&
      (read = into(spec.group_of, x, "group_of", config::free_text)) && (read = into(spec.geometry, x)) &&
      (read = into(options.automatic, x, "automatic")) && (read = into(options.slot_index, x, "slot_index")) &&
      (read = number_into(options.max_ranks, x, "max_ranks", 1, std::numeric_limits<std::uint16_t>::max()));
  if (!all)
    return hand_on(read);
  const auto world_size = optional_unsigned_member(x, "world_size", 0, std::numeric_limits<std::uint16_t>::max());
  if (!world_size)
    return hand_on(world_size);
  spec.world_size = static_cast<std::uint32_t>(world_size->value_or(options.automatic ? 0 : 1));
  if (read_namespace_id(spec.name))
    return refuse("name", "32 hexadecimal digits are an id, not a name");
  if (options.automatic && spec.world_size != 0)
    return refuse("world_size", "follows from the ranks that register if \"automatic\" is true; leave it out");
  if (!options.automatic && spec.world_size == 0)
    return refuse("world_size", "expected a whole number, 1 to 65535; or set \"automatic\" to true");
  return out;
}

} // namespace troupe::http::native
