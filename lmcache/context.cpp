#include "lmcache/context.hpp"

#include "base/geometry_bounds.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

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

/// Ends the revision of the first group that needs whole prefixes.
constexpr std::string_view prefix_mark = ", the prefix of the others";

void append_number(std::string& out, std::string_view name, std::uint64_t value) {
  out.append(name).append("=").append(std::to_string(value)).append("\n");
}

/// The name is for people; its end makes it unique.
std::string name_of(const namespace_spec& ns) {
  std::string out = "lmcache-";
  for (const auto c : std::string_view(ns.model).substr(0, 32)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
    out.push_back(plain ? c : '-');
  }
  return out + "-" + to_string(ns.id()).substr(0, 16);
}

/// What the pages of a namespace contain.
struct page_contents {
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;
  std::string_view dtype;
  bool one_plane = false;
  /// Tokens of a chunk that are in its page.
  std::uint32_t tokens = 0;
  /// Ends the text that makes the namespace unique.
  std::string kind;
};

result<context_group> make_group(const protocol::context_registration& x, const page_contents& page) {
  const auto type = std::ranges::find(element_types, page.dtype, &element_type::torch);
  if (type == element_types.end())
    return fail(errc::unsupported, "elements of type '" + std::string(page.dtype.substr(0, 64)) + "'");
  context_group out;
  auto& ns = out.ns;
  ns.model = x.model;
  ns.dtype = type->dtype;
  ns.world_size = x.world_size;
  ns.revision = std::string(own_revision) + page.kind;
  auto& shape = ns.geometry;
  shape.layers = page.layers;
  shape.parts = page.one_plane ? 1 : 2;
  // The size of a head is unknown here.
  shape.heads = 1;
  shape.head_size = page.hidden;
  while (shape.head_size > geometry_bounds::head_size.most && shape.head_size % 2 == 0) {
    shape.head_size /= 2;
    shape.heads *= 2;
  }
  shape.element_bytes = type->bytes;
  shape.block_tokens = page.tokens;
  if (auto fine = check_geometry(shape); !fine)
    return tl::unexpected<error>(fine.error());
  if (!page.one_plane)
    out.shape.sizes.push_back(2);
  for (const auto size : {page.layers, page.tokens, page.hidden})
    out.shape.sizes.push_back(size);
  out.shape.dtype = type->torch;
  return out;
}

// -- several groups ---------------------------------------------------------------------------------------------------

std::string describe(const protocol::group_layout& x) {
  auto out = std::to_string(x.layers) + " layers ";
  if (x.recurrent)
    return out + "of recurrent states";
  if (x.window_chunks > 0)
    return out + "with a window of " + std::to_string(x.window_chunks) + " chunks";
  return out + "of the whole prefix";
}

std::uint32_t tokens_in_page(const protocol::group_layout& x, std::uint32_t chunk_tokens) {
  return x.window_tokens == 0 ? chunk_tokens : x.window_tokens;
}

/// Why a group cannot be served; empty if it can.
std::string fault_of(const protocol::group_layout& x, std::uint32_t chunk_tokens) {
  const auto tokens = tokens_in_page(x, chunk_tokens);
  const auto chunk = "a chunk of " + std::to_string(chunk_tokens) + " tokens";
  if (x.block_tokens == 0 || chunk_tokens % x.block_tokens != 0)
    return chunk + " is not a multiple of blocks of " + std::to_string(x.block_tokens) +
           ": set lmcache.chunk_tokens to a multiple";
  if (tokens > chunk_tokens || tokens % x.block_tokens != 0)
    return "pages with " + std::to_string(tokens) + " tokens of " + chunk + ", in blocks of " +
           std::to_string(x.block_tokens);
  // LMCache's workers leave out a chunk only if they have none of its blocks: of a chunk with several states, the last
  // one may be missing, and another block would be stored in its place.
  if (x.recurrent && x.block_tokens != chunk_tokens)
    return chunk +
           " has several states, and LMCache's worker does not say which of them it has: set "
           "lmcache.chunk_tokens to " +
           std::to_string(x.block_tokens);
  if (x.recurrent && x.window_chunks != 1)
    return "a hit needs the states of " + std::to_string(x.window_chunks) +
           " chunks, but only that of the last one "
           "can be needed";
  if (!x.recurrent && tokens < chunk_tokens && x.window_chunks != 1)
    return "pages with the last " + std::to_string(tokens) +
           " tokens of a chunk, but a hit needs more than the last "
           "chunk";
  return {};
}

/// All that decides about the pages and hits of a group, as unambiguous text.
std::string identity_of(const protocol::group_layout& x, bool one_plane, std::uint32_t chunk_tokens) {
  std::string out;
  append_number(out, "layers", x.layers);
  append_number(out, "hidden", x.hidden);
  append_number(out, "planes", one_plane ? 1 : 2);
  append_number(out, "tokens", tokens_in_page(x, chunk_tokens));
  append_number(out, "window_chunks", x.window_chunks);
  append_number(out, "recurrent", x.recurrent ? 1 : 0);
  return out.append("dtype=").append(x.dtype).append("\n");
}

bool is_one_plane(const protocol::context_registration& x, const protocol::group_layout& group) {
  return group.planes == 0 ? x.one_plane : group.planes == 1;
}

/// One namespace for each group.
result<context> context_of_groups(const protocol::context_registration& x, std::uint32_t chunk_tokens) {
  const auto count = std::to_string(x.groups.size());
  std::string whole = "troupe lmcache groups 1\n";
  append_number(whole, "chunk_tokens", chunk_tokens);
  for (const auto& group : x.groups)
    whole += identity_of(group, is_one_plane(x, group), chunk_tokens);
  const auto digest = to_string(hash_namespace(whole));
  context out;
  bool has_prefix = false;
  for (std::size_t i = 0; i < x.groups.size(); ++i) {
    const auto& group = x.groups[i];
    const auto name = "group " + std::to_string(i) + " of " + count + " (" + describe(group) + "): ";
    if (auto fault = fault_of(group, chunk_tokens); !fault.empty())
      return fail(errc::unsupported, name + std::move(fault));
    const auto tokens = tokens_in_page(group, chunk_tokens);
    auto kind = "planes-layers-tokens-hidden of " + std::string(group.dtype.substr(0, 64)) + ", group " +
                std::to_string(i) + ", the last " + std::to_string(tokens) + " of " + std::to_string(chunk_tokens) +
                " tokens";
    if (const bool is_full = group.window_chunks == 0; is_full && !std::exchange(has_prefix, true))
      kind += prefix_mark;
    auto made =
        make_group(x, {group.layers, group.hidden, group.dtype, is_one_plane(x, group), tokens, std::move(kind)});
    if (!made)
      return fail(made.error().code, name + made.error().text);
    made->ns.group_of = digest;
    made->ns.name = name_of(made->ns);
    made->window_chunks = group.window_chunks;
    made->recurrent = group.recurrent;
    out.groups.push_back(std::move(*made));
  }
  return out;
}

/// A single group repeats what the registration says.
result<void> check_group(const protocol::context_registration& x, std::uint32_t chunk_tokens) {
  if (x.groups.empty())
    return {};
  const auto& group = x.groups.front();
  if (group.recurrent || group.window_chunks > 0)
    return fail(errc::unsupported, "a KV cache of " + describe(group) + " and of nothing else");
  if (group.layers != x.layers || group.hidden != x.hidden || group.dtype != x.dtype ||
      (group.window_tokens != 0 && group.window_tokens != chunk_tokens) ||
      (group.planes != 0 && (group.planes == 1) != x.one_plane))
    return fail(errc::invalid_argument, "a group of KV caches that differs from the registration that names it");
  return {};
}

} // namespace

result<context> context_of(const protocol::context_registration& x, std::uint32_t chunk_tokens, block_order order) {
  if (x.chunk_slots != 0 && x.chunk_slots != chunk_tokens)
    return fail(errc::unsupported, "chunks of " + std::to_string(x.chunk_slots) +
                                       " slots, but lmcache.chunk_tokens is " + std::to_string(chunk_tokens));
  if (x.groups.size() > 1)
    return context_of_groups(x, chunk_tokens);
  if (auto served = check_group(x, chunk_tokens); !served)
    return tl::unexpected<error>(served.error());
  if (x.block_tokens == 0 || chunk_tokens % x.block_tokens != 0)
    return fail(errc::invalid_argument, "a chunk of " + std::to_string(chunk_tokens) +
                                            " tokens is not a multiple of blocks of " + std::to_string(x.block_tokens) +
                                            ": set lmcache.chunk_tokens to a multiple");
  const std::string type(x.dtype.substr(0, 64));
  auto made = make_group(x, {x.layers, x.hidden, x.dtype, x.one_plane, chunk_tokens,
                             order == block_order::heads_first ? "planes-layers-blocks-heads-tokens of " + type +
                                                                     ", blocks of " + std::to_string(x.block_tokens)
                                                               : "planes-layers-tokens-hidden of " + type});
  if (!made)
    return tl::unexpected<error>(made.error());
  made->ns.name = name_of(made->ns);
  context out;
  out.groups.push_back(std::move(*made));
  return out;
}

bool is_own(const namespace_spec& ns) noexcept {
  return ns.revision.starts_with(own_revision);
}

bool is_of_prefix(const namespace_spec& ns) noexcept {
  return is_own(ns) && (ns.group_of.empty() || std::string_view(ns.revision).ends_with(prefix_mark));
}

} // namespace troupe::lmcache
