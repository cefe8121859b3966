// Every interface applies the same bounds to a geometry: the config, the HTTP API, the registry, and KV layouts.

#include "actors/node/registry/registry_state.hpp"
#include "base/geometry_bounds.hpp"
#include "config/node_config.hpp"
#include "gpu/kv_layout.hpp"
#include "http/native/namespace_body.hpp"
#include "tests/catch.hpp"

#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <vector>

namespace base_geometry_bounds_test {

using namespace troupe;
using nlohmann::json;

namespace {

json shape_of(std::uint32_t layers, const kv_layer_shape& x) {
  return {{"layers", layers},
          {"parts", x.parts},
          {"heads", x.heads},
          {"head_size", x.head_size},
          {"element_bytes", x.element_bytes}};
}

json as_json(const kv_geometry& x) {
  auto out = shape_of(x.layers, x.first_shape());
  out["block_tokens"] = x.block_tokens;
  for (const auto& group : x.further)
    out["further_layers"].push_back(shape_of(group.layers, group.shape));
  return out;
}

std::string dtype_of(std::uint32_t element_bytes) {
  return element_bytes == 1 ? "int8" : element_bytes == 4 ? "float32" : "bfloat16";
}

bool by_config(const kv_geometry& x) {
  const json text{{"data_dir", "data"},
                  {"storage", {{"ranks", {{{"slab_bytes", "4 MiB"}}}}}},
                  {"namespaces",
                   {{{"name", "a"},
                     {"model", "m"},
                     {"dtype", dtype_of(x.element_bytes)},
                     {"world_size", 1},
                     {"kv_cache", as_json(x)}}}}};
  return config::parse(text.dump(), "test.json").has_value();
}

bool by_http(const json& kv_cache) {
  const auto text = json{{"name", "a"}, {"model", "m"}, {"kv_cache", kv_cache}}.dump();
  const auto padded = text + std::string(http::body_padding, '\0');
  http::request_parts parts;
  parts.body = std::string_view{padded}.substr(0, text.size());
  return http::native::read_create(http::request{parts}).has_value();
}

bool by_registry(const kv_geometry& x) {
  registry_state state({});
  namespace_spec spec;
  spec.name = "a";
  spec.model = "m";
  spec.geometry = x;
  return state.add_namespace(spec, {}).has_value();
}

bool by_memory(const kv_geometry& x) {
  return all_layer_bytes(x, 1).has_value();
}

bool by_all(const kv_geometry& x) {
  const auto out = check_geometry(x).has_value();
  INFO(as_json(x).dump());
  CHECK(by_config(x) == out);
  CHECK(by_http(as_json(x)) == out);
  CHECK(by_registry(x) == out);
  CHECK(by_memory(x) == out);
  return out;
}

struct member {
  const char* name;
  shape_bound bound;
  std::function<std::uint32_t&(kv_geometry&)> of;
};

const std::vector<member>& members_of_first() {
  namespace bounds = geometry_bounds;
  using g = kv_geometry;
  static const std::vector<member> all{
      {"layers", bounds::layers, [](g& x) -> std::uint32_t& { return x.layers; }},
      {"parts", bounds::parts, [](g& x) -> std::uint32_t& { return x.parts; }},
      {"heads", bounds::heads, [](g& x) -> std::uint32_t& { return x.heads; }},
      {"head_size", bounds::head_size, [](g& x) -> std::uint32_t& { return x.head_size; }},
      {"element_bytes", bounds::element_bytes, [](g& x) -> std::uint32_t& { return x.element_bytes; }},
      {"block_tokens", bounds::block_tokens, [](g& x) -> std::uint32_t& { return x.block_tokens; }},
  };
  return all;
}

const std::vector<member>& members_of_further() {
  namespace bounds = geometry_bounds;
  using g = kv_geometry;
  static const std::vector<member> all{
      {"further_layers[1].layers", bounds::layers, [](g& x) -> std::uint32_t& { return x.further[1].layers; }},
      {"further_layers[1].parts", bounds::parts, [](g& x) -> std::uint32_t& { return x.further[1].shape.parts; }},
      {"further_layers[1].heads", bounds::heads, [](g& x) -> std::uint32_t& { return x.further[1].shape.heads; }},
      {"further_layers[1].head_size", bounds::head_size,
       [](g& x) -> std::uint32_t& { return x.further[1].shape.head_size; }},
      {"further_layers[1].element_bytes", bounds::element_bytes,
       [](g& x) -> std::uint32_t& { return x.further[1].shape.element_bytes; }},
  };
  return all;
}

kv_geometry small() {
  return {1, 1, 1, 1, 2, 1, {{1, {1, 1, 1, 2}}, {1, {1, 1, 1, 2}}}};
}

} // namespace

TEST_CASE("geometry bounds: all interfaces accept geometry numbers at their bounds and none beyond",
          "[base][geometry_bounds]") {
  for (const auto* members : {&members_of_first(), &members_of_further()})
    for (const auto& x : *members) {
      INFO(x.name);
      auto g = small();
      x.of(g) = x.bound.least;
      CHECK(by_all(g));
      x.of(g) = x.bound.most;
      CHECK(by_all(g));
      x.of(g) = x.bound.most + 1;
      CHECK_FALSE(by_all(g));
      CHECK(find_broken_bound(g, geometry_extent::whole)->where == x.name);
      CHECK(find_broken_bound(g, geometry_extent::as_far_as_known)->where == x.name);
      x.of(g) = 0xffffffff;
      CHECK_FALSE(by_all(g));
    }
}

TEST_CASE("geometry bounds: all interfaces require elements of 1, 2 or 4 bytes", "[base][geometry_bounds]") {
  for (const std::uint32_t bytes : {1U, 2U, 3U, 4U, 5U, 8U}) {
    auto first = small();
    first.element_bytes = bytes;
    CHECK(by_all(first) == (bytes == 1 || bytes == 2 || bytes == 4));
    auto further = small();
    further.further[0].shape.element_bytes = bytes;
    CHECK(by_all(further) == (bytes == 1 || bytes == 2 || bytes == 4));
  }
}

TEST_CASE("geometry bounds: all interfaces accept 64 additional groups of layers", "[base][geometry_bounds]") {
  auto g = small();
  g.further.resize(64, {1, {1, 1, 1, 2}});
  CHECK(by_all(g));
  g.further.resize(65, {1, {1, 1, 1, 2}});
  CHECK_FALSE(by_all(g));
  CHECK(check_geometry(g).error().text == "geometry: further_layers has 65 groups, and at most 64 are allowed");
}

TEST_CASE("geometry bounds: numbers of the first layers may be missing where only clients know their pages",
          "[base][geometry_bounds]") {
  CHECK(by_registry({}));
  for (const auto& x : members_of_first()) {
    INFO(x.name);
    auto g = small();
    x.of(g) = 0;
    CHECK_FALSE(check_geometry(g));
    CHECK_FALSE(by_config(g));
    CHECK_FALSE(by_memory(g));
    CHECK(by_registry(g));
    auto body = as_json(g);
    CHECK_FALSE(by_http(body)); // a number that is there is meant
    body.erase(x.name);
    CHECK(by_http(body));
  }
  for (const auto& x : members_of_further()) {
    INFO(x.name);
    auto g = small();
    x.of(g) = 0;
    CHECK_FALSE(by_all(g));
  }
}

TEST_CASE("geometry bounds: the largest geometry has a page size that fits into 64 bits", "[base][geometry_bounds]") {
  kv_geometry g{1024, 2, 1024, 16384, 4, 4096, {}};
  g.further.assign(64, {1024, {2, 1024, 16384, 4}});
  CHECK(check_geometry(g).has_value());
  CHECK(g.page_bytes() == std::uint64_t{65} << 49U);
  CHECK(g.layer_count() == 66'560);
}

} // namespace base_geometry_bounds_test
