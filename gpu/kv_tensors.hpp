#pragma once

#include "base/error.hpp"
#include "gpu/kv_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// KV caches as engines register them: for each layer a view of memory with four axes and their strides.

namespace troupe {

/// One layer's KV cache, [blocks, heads, tokens, content]: element c of head h of token t of block b is at `base + b *
/// block_stride + h * head_stride + t * token_stride + c * content_stride`. In vLLM these are the axes B, H, N and C of
/// a layer's view, in any of its six orders; `content` holds K and V of one token and head side by side, or a latent
/// vector, where there is one head. All layers may share one piece of memory, and be interleaved.
struct kv_tensor {
  /// The start of block 0.
  std::byte* base = nullptr;
  /// Bytes from `base` that may be touched.
  std::uint64_t bytes = 0;
  std::uint32_t blocks = 0;
  std::uint32_t heads = 1;
  std::uint32_t tokens = 0;
  std::uint32_t content = 0;
  std::uint32_t element_bytes = 2;
  /// All strides are in bytes.
  std::uint64_t block_stride = 0;
  std::uint64_t head_stride = 0;
  std::uint64_t token_stride = 0;
  std::uint64_t content_stride = 0;

  friend bool operator==(const kv_tensor&, const kv_tensor&) = default;
};

/// How pages arrange `kv_tensor::content`.
enum class kv_content : std::uint8_t {
  /// K and V of a token stay together: the geometry has one part, whose head size is the whole content. It has the
  /// longest pieces, so it is the fastest; MLA always uses it.
  joined,
  /// First all K, then all V, as in engines that separate them: the geometry has two parts, each with half of the
  /// content.
  parted,
  /// The bytes of a block, unchanged. For kernels that order the elements of a block in their own way, such as those of
  /// vLLM's CPU backend: only whole blocks have a meaning, and heads, tokens and content only give the size. A page is
  /// one block. Engines with different orders need separate namespaces, by the salt.
  opaque,
};

/// "joined", "parted", "opaque".
std::string_view to_string(kv_content content) noexcept;

/// The `namespace_spec::layout` of such pages.
std::string_view page_layout(kv_content content) noexcept;

/// Makes the view of a worker's whole cache: one tensor per layer, in the order of the model's layers, with equal
/// numbers of blocks and tokens; heads, content and elements may differ. The geometry follows from the tensors:
/// consecutive layers of one shape are a group. `blocks_per_page` engine blocks make one page.
///
/// Errors: those of `validate`; `invalid_argument` where tensors contradict each other, where the elements of a content
/// are not contiguous, where a content has no two equal halves (`parted`), or where the bytes of a block are not
/// contiguous or a page is not one block (`opaque`).
result<kv_cache_view> make_kv_cache_view(std::span<const kv_tensor> layers, kv_content content,
                                         std::uint32_t blocks_per_page = 1);

} // namespace troupe
