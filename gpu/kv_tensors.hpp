#pragma once

#include "base/error.hpp"
#include "gpu/kv_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// KV caches as engines register them: for each layer a view of memory with four axes, whose strides say how it lies.

namespace troupe {

/// One layer's KV cache, [blocks, heads, tokens, content]: element c of head h of token t of block b lies at
/// `base + b * block_stride + h * head_stride + t * token_stride + c * content_stride`. In vLLM these are the axes B,
/// H, N and C of a layer's view, in whichever of its six orders; `content` holds K and V of one token and head side by
/// side, or a latent vector, where there is one head. All layers may lie in one piece of memory, and in each other's
/// gaps.
struct kv_tensor {
  /// Of block 0.
  std::byte* base = nullptr;
  /// Bytes from `base` that may be touched.
  std::uint64_t bytes = 0;
  std::uint32_t blocks = 0;
  std::uint32_t heads = 1;
  std::uint32_t tokens = 0;
  std::uint32_t content = 0;
  std::uint32_t element_bytes = 2;
  /// All in bytes.
  std::uint64_t block_stride = 0;
  std::uint64_t head_stride = 0;
  std::uint64_t token_stride = 0;
  std::uint64_t content_stride = 0;

  friend bool operator==(const kv_tensor&, const kv_tensor&) = default;
};

/// What pages have of `kv_tensor::content`.
enum class kv_content : std::uint8_t {
  /// K and V of a token stay together: the geometry has one part, whose head size is the whole content. The longest
  /// pieces, so the fastest; MLA is always so.
  joined,
  /// First all K, then all V, as in engines that keep them apart: the geometry has two parts, each with half of the
  /// content.
  parted,
  /// The bytes of a block, as they lie. For kernels that order the elements of a block in their own way, as those of
  /// vLLM's CPU backend do: nothing smaller than a block means anything, and heads, tokens and content only say how
  /// many bytes it has. A page is one block. What packs differently must have namespaces of its own, by the salt.
  opaque,
};

/// "joined", "parted", "opaque".
std::string_view to_string(kv_content content) noexcept;

/// What `namespace_spec::layout` says of pages made so.
std::string_view page_layout(kv_content content) noexcept;

/// The whole cache of a worker: one tensor per layer, in the order of the model's layers, with as many blocks of as
/// many tokens each; heads, content and elements may differ. The geometry follows from the tensors: layers of one shape
/// that follow each other are a group. `blocks_per_page` of the engine's blocks make one page.
///
/// Errors: those of `validate`; invalid_argument where tensors disagree, where the elements of a content do not follow
/// each other, where a content has no two equal halves (`parted`), or where something lies between the bytes of a block
/// (`opaque`), or a page is not one block (`opaque`).
result<kv_cache_view> make_kv_cache_view(std::span<const kv_tensor> layers, kv_content content,
                                         std::uint32_t blocks_per_page = 1);

} // namespace troupe
