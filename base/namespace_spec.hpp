#pragma once

#include "base/digest.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The shape of one layer's part of a block on one rank.
struct kv_layer_shape {
  /// 2 where K and V are separate, 1 for MLA.
  std::uint32_t parts = 2;
  /// KV heads of one rank.
  std::uint32_t heads = 0;
  std::uint32_t head_size = 0;
  std::uint32_t element_bytes = 2;

  friend bool operator==(const kv_layer_shape&, const kv_layer_shape&) = default;

  /// Bytes of one head of one token in one part, which are contiguous in every layout.
  std::uint64_t content_bytes() const noexcept { return std::uint64_t{head_size} * element_bytes; }

  /// Bytes of one token, all parts and heads.
  std::uint64_t token_bytes() const noexcept { return content_bytes() * heads * parts; }
};

/// Consecutive layers of one shape.
struct kv_layer_group {
  std::uint32_t layers = 0;
  kv_layer_shape shape;

  friend bool operator==(const kv_layer_group&, const kv_layer_group&) = default;
};

/// The shape of one rank's part of a block of KV cache. All layers of most models have one shape; layers of another
/// shape (an indexer's cache beside MLA, a draft model) follow in `further`.
struct kv_geometry {
  std::uint32_t layers = 0;
  std::uint32_t parts = 2;
  std::uint32_t heads = 0;
  std::uint32_t head_size = 0;
  std::uint32_t element_bytes = 2;
  std::uint32_t block_tokens = 0;
  std::vector<kv_layer_group> further{};

  friend bool operator==(const kv_geometry&, const kv_geometry&) = default;

  /// The shape of the first `layers`.
  kv_layer_shape first_shape() const noexcept { return {parts, heads, head_size, element_bytes}; }

  /// The shape of each layer, in the model's order.
  std::vector<kv_layer_shape> shapes() const;

  /// All layers, `further` included.
  std::uint64_t layer_count() const noexcept;

  /// Bytes of one page: all layers of one block on one rank. The caller has checked the bounds, so that it does not
  /// overflow.
  std::uint64_t page_bytes() const noexcept;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, kv_layer_group& x) {
  return f(x.layers, x.shape.parts, x.shape.heads, x.shape.head_size, x.shape.element_bytes);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, kv_geometry& x) {
  return f(x.layers, x.parts, x.heads, x.head_size, x.element_bytes, x.block_tokens, x.further);
}

/// Everything that must be equal for the bytes of two pages to be exchangeable. Two models can never share a page,
/// because the identity is part of every slab file and every page header.
struct namespace_spec {
  /// The name for logs and operators; not part of the identity.
  std::string name;
  std::string model;
  std::string revision;
  std::string dtype;
  /// The order of bytes inside a page; see docs/page-format.md.
  std::string layout = "layer-part-head-token";
  std::string salt;
  /// The same text in the namespaces of all groups of layers of a model that has several, and in no others: a digest of
  /// all of them, with `ends_anywhere` behind it where hits may end without a page of some group. Empty where the model
  /// has one group.
  std::string group_of;
  std::uint32_t world_size = 1;
  kv_geometry geometry;

  friend bool operator==(const namespace_spec&, const namespace_spec&) = default;

  /// The fields of the identity as unambiguous text, one `name=length:value` a line.
  std::string identity_text() const;

  /// Behind `group_of` of a model of which a group may need no page of a hit, as with chunked attention.
  static constexpr std::string_view ends_anywhere = "+chunks";

  /// Whether every group of a model with several groups needs the page with which a hit ends.
  bool hits_end_with_pages() const noexcept { return !group_of.ends_with(ends_anywhere); }

  /// Digest of `identity_text`.
  namespace_id id() const { return hash_namespace(identity_text()); }
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, namespace_spec& x) {
  return f(x.name, x.model, x.revision, x.dtype, x.layout, x.salt, x.group_of, x.world_size, x.geometry);
}

} // namespace troupe
