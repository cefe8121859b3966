#include "lmcache/context.hpp"

#include "base/geometry_bounds.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

namespace troupe::lmcache {

namespace {

/// A type of elements, by its PyTorch name and its name in a namespace.
struct element_type {
  std::string_view torch;
  std::string_view dtype;
  std::uint32_t bytes = 0;
};

constexpr std::array element_types{
    element_type{"bfloat16", "bfloat16", 2},    element_type{"float16", "float16", 2},
    element_type{"half", "float16", 2},         element_type{"float32", "float32", 4},
    element_type{"float", "float32", 4},        element_type{"float8_e4m3fn", "fp8_e4m3", 1},
    element_type{"float8_e5m2", "fp8_e5m2", 1}, element_type{"int8", "int8", 1},
    element_type{"uint8", "int8", 1},
};

constexpr std::string_view own_revision = "lmcache 1, ";

/// The name is for people; its end makes it unique.
std::string name_of(const namespace_spec& ns) {
  std::string out = "lmcache-";
  for (const auto c : std::string_view(ns.model).substr(0, 32)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
    out.push_back(plain ? c : '-');
  }
  return out + "-" + to_string(ns.id()).substr(0, 16);
}

/// Limit of a worker's groups that are described one by one.
constexpr std::size_t groups_shown_max = 8;

std::string describe(const protocol::group_layout& x) {
  auto out = std::to_string(x.layers) + " layers ";
  if (x.recurrent)
    return out + "of recurrent states";
  if (x.window_chunks > 0)
    return out + "with a window of " + std::to_string(x.window_chunks) + " chunks";
  return out + "of the whole prefix";
}

/// Several groups need pages of several sizes for one chunk, and hits that depend on the group.
result<void> check_groups(const protocol::context_registration& x, std::uint32_t chunk_tokens) {
  if (x.groups.empty())
    return {};
  if (x.groups.size() > 1) {
    std::string all;
    for (const auto& group : std::span(x.groups).first(std::min(x.groups.size(), groups_shown_max)))
      all.append(all.empty() ? "" : "; ").append(describe(group));
    return fail(errc::unsupported, "several groups of KV caches (" + std::to_string(x.groups.size()) + ": " + all +
                                       "), but this node supports a single group of equal layers: if the groups are "
                                       "windows, vLLM makes one of them with --disable-hybrid-kv-cache-manager");
  }
  const auto& group = x.groups.front();
  if (group.recurrent || group.window_chunks > 0)
    return fail(errc::unsupported, "a KV cache of " + describe(group));
  if (group.layers != x.layers || group.hidden != x.hidden || group.dtype != x.dtype ||
      (group.window_tokens != 0 && group.window_tokens != chunk_tokens) ||
      (group.planes != 0 && (group.planes == 1) != x.one_plane))
    return fail(errc::invalid_argument, "a group of KV caches that differs from the registration that names it");
  return {};
}

} // namespace

result<context> context_of(const protocol::context_registration& x, std::uint32_t chunk_tokens, block_order order) {
  if (auto served = check_groups(x, chunk_tokens); !served)
    return tl::unexpected<error>(served.error());
  const auto type = std::ranges::find(element_types, x.dtype, &element_type::torch);
  if (type == element_types.end())
    return fail(errc::unsupported, "elements of type '" + std::string(x.dtype.substr(0, 64)) + "'");
  if (x.block_tokens == 0 || chunk_tokens % x.block_tokens != 0)
    return fail(errc::invalid_argument, "a chunk of " + std::to_string(chunk_tokens) +
                                            " tokens is not a multiple of blocks of " + std::to_string(x.block_tokens) +
                                            ": set lmcache.chunk_tokens to a multiple");
  if (x.chunk_slots != 0 && x.chunk_slots != chunk_tokens)
    return fail(errc::unsupported, "chunks of " + std::to_string(x.chunk_slots) +
                                       " slots, but lmcache.chunk_tokens is " + std::to_string(chunk_tokens));
  context out;
  auto& ns = out.ns;
  ns.model = x.model;
  ns.dtype = type->dtype;
  ns.world_size = x.world_size;
  ns.revision = std::string(own_revision) + "planes-layers-tokens-hidden of " + std::string(type->torch);
  if (order == block_order::heads_first)
    ns.revision = std::string(own_revision) + "planes-layers-blocks-heads-tokens of " + std::string(type->torch) +
                  ", blocks of " + std::to_string(x.block_tokens);
  auto& shape = ns.geometry;
  shape.layers = x.layers;
  shape.parts = x.one_plane ? 1 : 2;
  // The size of a head is unknown here.
  shape.heads = 1;
  shape.head_size = x.hidden;
  while (shape.head_size > geometry_bounds::head_size.most && shape.head_size % 2 == 0) {
    shape.head_size /= 2;
    shape.heads *= 2;
  }
  shape.element_bytes = type->bytes;
  shape.block_tokens = chunk_tokens;
  if (auto fine = check_geometry(shape); !fine)
    return tl::unexpected<error>(fine.error());
  ns.name = name_of(ns);
  if (!x.one_plane)
    out.shape.sizes.push_back(2);
  for (const auto size : {x.layers, chunk_tokens, x.hidden})
    out.shape.sizes.push_back(size);
  out.shape.dtype = type->torch;
  return out;
}

bool is_own(const namespace_spec& ns) noexcept {
  return ns.revision.starts_with(own_revision);
}

} // namespace troupe::lmcache
